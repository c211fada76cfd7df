"""Cuts a recorded run into the files that the ranks of a parallel run would have written: slice_dump.py RUN.safetensors LAYOUT OUT_DIR

LAYOUT: tpN (heads, MLP columns and vocabulary), epN (experts), dpN (sequences of equal length), dpNepN (both). As DeepSeek's
convert.py divides the weights; what is not divided is a replica.
"""
import json
import pathlib
import re
import struct
import sys

TP_COLUMNS = re.compile(r"\.(q_b|kv_b|q_rope|probs|lse|context|q_latent|o_latent|gate|up|act)$|(^|\.)logits$")
EXPERT = re.compile(r"\.moe\.expert\.(\d+)(\.|$)")


def read(path):
    """Tensors of a file: name -> (dtype, shape, bytes)."""
    data = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    body = data[8 + length :]
    return {name: (t["dtype"], t["shape"], body[slice(*t["data_offsets"])]) for name, t in header.items()}


def write(path, tensors):
    header, body = {}, b""
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + body)


def cut(tensor, dimension, begin, end):
    """Indices [begin, end) along the first or second dimension."""
    dtype, shape, data = tensor
    num_outer = shape[0] if dimension else 1
    outer_bytes = len(data) // num_outer
    step = outer_bytes // shape[dimension]
    parts = [data[i * outer_bytes + begin * step : i * outer_bytes + end * step] for i in range(num_outer)]
    return dtype, [*shape[:dimension], end - begin, *shape[dimension + 1 :]], b"".join(parts)


def share(extent, rank, count):
    return extent * rank // count, extent * (rank + 1) // count


def rows_of_expert(tensors, name, expert, rank, count):
    """Rows of the expert's tensor that belong to the tokens of a DP rank."""
    _, (num_tokens, k), data = tensors[name[: name.index(".expert.")] + ".topk_ids"]
    ids = struct.unpack(f"<{num_tokens * k}i", data)
    return [ids[: token * k].count(expert) for token in share(num_tokens, rank, count)]


def rank_part(tensors, rank, degrees, num_experts):
    tp, ep, dp = (degrees.get(axis, 1) for axis in ("tp", "ep", "dp"))
    mine = {}
    for name, tensor in tensors.items():
        expert = EXPERT.search(name)
        if expert and ep > 1:
            if int(expert[1]) * ep // num_experts == rank:
                mine[name] = tensor
            continue
        if dp > 1:
            rows = rows_of_expert(tensors, name, int(expert[1]), rank, dp) if expert else share(tensor[1][0], rank, dp)
            tensor = cut(tensor, 0, *rows)
        if tp > 1 and TP_COLUMNS.search(name.split("/")[1]):
            tensor = cut(tensor, 1, *share(tensor[1][1], rank, tp))
        if tensor[1][0] > 0:
            mine[name] = tensor
    return mine


def slice_run(tensors, layout, num_experts):
    degrees = {axis: int(degree) for axis, degree in re.findall(r"(tp|ep|dp)(\d+)", layout)}
    return [rank_part(tensors, rank, degrees, num_experts) for rank in range(max(degrees.values()))]


def main(run, layout, directory, num_experts=16):
    pathlib.Path(directory).mkdir(parents=True, exist_ok=True)
    for rank, tensors in enumerate(slice_run(read(run), layout, int(num_experts))):
        write(pathlib.Path(directory) / f"rank{rank}.safetensors", tensors)


if __name__ == "__main__":
    main(*sys.argv[1:])
