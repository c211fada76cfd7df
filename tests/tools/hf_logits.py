"""Logits of a checkpoint directory as HF transformers computes them in FP32: hf_logits.py CHECKPOINT IDS OUT.safetensors

IDS: token ids joined by commas. FP8 weights are dequantised by transformers itself.
"""
import sys

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM, FineGrainedFP8Config


def main(checkpoint, ids, out):
    options = {}
    if getattr(AutoConfig.from_pretrained(checkpoint), "quantization_config", None) is not None:
        options["quantization_config"] = FineGrainedFP8Config(dequantize=True)
    model, report = AutoModelForCausalLM.from_pretrained(
        checkpoint, dtype=torch.float32, attn_implementation="eager", output_loading_info=True, **options
    )
    # The MTP layer is not part of the class; everything else of the file has to be used, and nothing made up.
    unused = [name for name in report["unexpected_keys"] if not name.startswith("model.layers.4.")]
    if report["missing_keys"] or report["mismatched_keys"] or unused:
        sys.exit(f"{checkpoint}: {report}")
    with torch.no_grad():
        logits = model.eval()(torch.tensor([[int(i) for i in ids.split(",")]])).logits[0]
    save_file({"logits": logits.contiguous()}, out)


if __name__ == "__main__":
    main(*sys.argv[1:])
