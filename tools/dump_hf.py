#!/usr/bin/env python3
"""Runs a DeepseekV3ForCausalLM of transformers on the prompts of a cases file and dumps its modules' outputs in `hf` names.

Usage: tools/dump_hf.py CHECKPOINT CASES.json OUT.safetensors [--case p7 --case p2] [--dtype bfloat16]
Then:  dsv3-verify --golden G --against OUT.safetensors --format hf
Needs torch, transformers and safetensors. Prompts only: decode steps depend on the cache class of the transformers version.
"""

import argparse
import json

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

# Modules whose input is an op of its own.
INPUTS = ("self_attn.o_proj", "post_attention_layernorm", "mlp.down_proj", "shared_experts.down_proj")


def hook_modules(model, found):
    def store(name, value):
        found[name] = value.detach().cpu().contiguous().clone()

    def hook_of(name):
        def hook(module, inputs, output):
            if name.endswith(INPUTS):
                store(name + ".in", inputs[0])
            if name.endswith("mlp.gate"):
                store_router(name, output)
            elif isinstance(output, tuple):
                store(name, output[0])
            elif isinstance(output, torch.Tensor):
                store(name, output)

        return hook

    # What the router gives, and in which order, differs between versions of transformers.
    def store_router(name, output):
        parts = output if isinstance(output, tuple) else (output,)
        ids = [part for part in parts if not part.is_floating_point()]
        for part in parts:
            if not part.is_floating_point():
                store(name + ".indices", part)
            elif ids and part.shape == ids[0].shape:
                store(name + ".weights", part)
            else:
                store(name + ".logits", part)

    for name, module in model.named_modules():
        if name.startswith("model.") and "rotary" not in name:
            module.register_forward_hook(hook_of(name))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("cases")
    parser.add_argument("out")
    parser.add_argument("--case", action="append", help="only these prompts (repeat)")
    parser.add_argument("--dtype", default="bfloat16")
    arguments = parser.parse_args()

    with open(arguments.cases, encoding="utf-8") as file:
        prompts = json.load(file)["prompts"]
    model = AutoModelForCausalLM.from_pretrained(
        arguments.checkpoint, dtype=getattr(torch, arguments.dtype), attn_implementation="eager"
    ).eval()
    found, tensors = {}, {}
    hook_modules(model, found)
    for case in arguments.case or prompts:
        found.clear()
        with torch.no_grad():
            found["logits"] = model(torch.tensor([prompts[case]])).logits.cpu().contiguous()
        tensors.update({f"{case}/{name}": tensor for name, tensor in found.items()})
    save_file(tensors, arguments.out)
    print(f"{arguments.out}: {len(tensors)} tensors")


if __name__ == "__main__":
    main()
