"""What dsv3-infer holds beside the mapped checkpoint, at the attention shapes of DeepSeek-V3: at most 200 MB (docs/speed.md).

One dense layer with V3's heads and a narrow residual stream, since heads are what a prompt's results grow with. The weights are holes in
a file, so that the checkpoint costs no disk; zeros take as much memory as numbers.
"""
import json
import math
import os
import pathlib
import struct
import subprocess
import tempfile
import time
import unittest

BIN = pathlib.Path(os.environ["DSV3_BIN_DIR"])
ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT_BYTES = 200e6

HIDDEN, HEADS, Q_LORA, KV_LORA, NOPE, ROPE, V, INTERMEDIATE, VOCAB = 256, 128, 1536, 512, 128, 64, 128, 256, 512
ATTENTION = {"q_a_proj": (Q_LORA, HIDDEN), "q_b_proj": (HEADS * (NOPE + ROPE), Q_LORA),
             "kv_a_proj_with_mqa": (KV_LORA + ROPE, HIDDEN), "kv_b_proj": (HEADS * (NOPE + V), KV_LORA),
             "o_proj": (HIDDEN, HEADS * V)}
MLP = {"gate_proj": (INTERMEDIATE, HIDDEN), "up_proj": (INTERMEDIATE, HIDDEN), "down_proj": (HIDDEN, INTERMEDIATE)}
GAINS = {"input_layernorm": HIDDEN, "post_attention_layernorm": HIDDEN, "self_attn.q_a_layernorm": Q_LORA,
         "self_attn.kv_a_layernorm": KV_LORA}


def tensors():
    """name -> (dtype, shape, bytes of an element)"""
    layer = "model.layers.0."
    named = {"model.embed_tokens.weight": ("BF16", [VOCAB, HIDDEN], 2), "lm_head.weight": ("BF16", [VOCAB, HIDDEN], 2),
             "model.norm.weight": ("BF16", [HIDDEN], 2)}
    for name, length in GAINS.items():
        named[f"{layer}{name}.weight"] = ("BF16", [length], 2)
    for part, linears in (("self_attn", ATTENTION), ("mlp", MLP)):
        for name, (rows, columns) in linears.items():
            weight = f"{layer}{part}.{name}.weight"
            named[weight] = ("F8_E4M3", [rows, columns], 1)
            named[weight + "_scale_inv"] = ("F32", [math.ceil(rows / 128), math.ceil(columns / 128)], 4)
    return named


def write_checkpoint(folder):
    config = json.loads((ROOT / "golden/data/mini/checkpoint/config.json").read_text())
    config.update(vocab_size=VOCAB, hidden_size=HIDDEN, intermediate_size=INTERMEDIATE, num_hidden_layers=1,
                  num_nextn_predict_layers=0, first_k_dense_replace=1, num_attention_heads=HEADS, num_key_value_heads=HEADS,
                  q_lora_rank=Q_LORA, kv_lora_rank=KV_LORA, qk_nope_head_dim=NOPE, qk_rope_head_dim=ROPE, v_head_dim=V,
                  max_position_embeddings=4096)
    (folder / "config.json").write_text(json.dumps(config))
    header, end = {}, 0
    for name, (dtype, shape, element_bytes) in tensors().items():
        begin, end = end, end + math.prod(shape) * element_bytes
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)
        for name, entry in header.items():
            if name.endswith("_scale_inv"):
                begin, end_of_scales = entry["data_offsets"]
                file.seek(8 + len(text) + begin)
                file.write(struct.pack("<f", 2**-7) * ((end_of_scales - begin) // 4))
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": dict.fromkeys(header, "model.safetensors")}))


def peak_anonymous_bytes(command):
    """Of the process while it runs, asked every 5 ms: memory that no file backs."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    peak_kib = 0
    while process.poll() is None:
        try:
            status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
        except (FileNotFoundError, ProcessLookupError):
            break
        peak_kib = max([peak_kib] + [int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon:")])
        time.sleep(0.005)
    assert process.wait() == 0
    return peak_kib * 1024


class PeakMemoryTest(unittest.TestCase):
    def test_a_prompt_at_the_heads_of_v3_stays_within_the_limit(self):
        with tempfile.TemporaryDirectory() as folder:
            write_checkpoint(pathlib.Path(folder))
            ids = ",".join(str(i * 37 % VOCAB) for i in range(512))
            peak = peak_anonymous_bytes([BIN / "dsv3-infer", "--checkpoint", folder, "--prompt-ids", ids, "--max-new-tokens", "2",
                                         "--ignore-eos", "--device", "cpu"])
            print(f"{peak / 1e6:.0f} MB beside the mapped checkpoint")
            self.assertGreater(peak, 30e6)  # kv_b alone, of 512 positions in BF16: otherwise nobody looked
            self.assertLess(peak, LIMIT_BYTES)


if __name__ == "__main__":
    unittest.main()
