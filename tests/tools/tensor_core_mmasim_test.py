"""dsv3-verify tensor-core against MMA-Sim (PyPI mmasim), a published model of tensor cores: both compute the same vectors, special
values, subnormals and huge spreads included. Skipped where mmasim is not installed."""
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

try:
    import torch
    from mmasim.arithmetic.fdpa import MMA_T_FDPA
except ImportError:
    print("skipped: mmasim is not installed")
    sys.exit(77)

VERIFY = os.path.join(os.environ["DSV3_BIN_DIR"], "dsv3-verify")
NUM_ROWS = 4000
# recipe, path, operand format, K, and MMA-Sim's parameters: F, rounding, L, exponent of zero
UNITS = [
    ("ampere", "mma.sync", "bf16", 16, 24, "RZ-FP32", 8, -132),
    ("ampere", "mma.sync", "fp16", 16, 24, "RZ-FP32", 8, -132),
    ("ada", "mma.sync", "e4m3", 32, 13, "RZ-E8M13", 16, -132),
    ("hopper", "wgmma", "bf16", 16, 25, "RZ-FP32", 16, -133),
    ("hopper", "wgmma", "fp16", 32, 25, "RZ-FP32", 16, -133),
    ("hopper", "wgmma", "e4m3", 64, 13, "RZ-E8M13", 32, -133),
    ("hopper", "wgmma", "e5m2", 32, 13, "RZ-E8M13", 32, -133),
    ("blackwell", "tcgen05", "e4m3", 32, 25, "RZ-FP32", 32, -133),
]
TYPES = {"bf16": (4, torch.int16, torch.bfloat16), "fp16": (4, torch.int16, torch.float16),
         "e4m3": (2, torch.uint8, torch.float8_e4m3fn), "e5m2": (2, torch.uint8, torch.float8_e5m2)}


def signed(code, bits):
    return code - (1 << bits) if code >> (bits - 1) else code


def draw(rng, num_digits, row):
    """One code; rows differ in what they stress."""
    bits = 4 * num_digits
    code = rng.getrandbits(bits)
    sign = code & (1 << (bits - 1))
    if row % 4 == 1:
        return sign | code % 9  # zeros and subnormals
    if row % 4 == 2:
        return sign | ((1 << (bits - 2)) + code % 64) & ((1 << (bits - 1)) - 1)  # of one size: cancellation
    return code


def vectors(fmt, length, rng):
    digits, raw, dtype = TYPES[fmt]
    rows = []
    for row in range(NUM_ROWS):
        a = [draw(rng, digits, row) for _ in range(length)]
        b = [draw(rng, digits, row // 4) for _ in range(length)]
        c = draw(rng, 8, row // 16)
        rows.append((a, b, c))

    def tensor(codes):
        fix = (lambda x: x) if raw == torch.uint8 else (lambda x: signed(x, 16))
        return torch.tensor([[fix(x) for x in row] for row in codes], dtype=raw).view(dtype)

    c = torch.tensor([signed(r[2], 32) for r in rows], dtype=torch.int32).view(torch.float32)
    return digits, rows, tensor([r[0] for r in rows]), tensor([r[1] for r in rows]), c


def main():
    rng = random.Random(5)
    total = 0
    for recipe, path, fmt, length, align, rounding, step, zero in UNITS:
        digits, rows, a, b, c = vectors(fmt, length, rng)
        d = MMA_T_FDPA(align, rounding, step, zero, fmt, fmt).dpa(a, b, c).view(torch.int32).tolist()
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "vectors.csv")
            with open(file, "w", encoding="ascii") as out:
                out.write("a_hex,b_hex,c_fp32_hex,d_fp32_hex\n")
                for (x, y, z), result in zip(rows, d):
                    cells = ["".join(f"{v:0{digits}x}" for v in x), "".join(f"{v:0{digits}x}" for v in y)]
                    out.write(",".join(cells + [f"{z:08x}", struct.pack(">i", result).hex()]) + "\n")
            run = subprocess.run([VERIFY, "tensor-core", "--csv", file, "--recipe", recipe, "--path", path, "--input",
                                  fmt, "--json"], capture_output=True, text=True, check=False)
            verdict = json.loads(run.stdout)
            print(f"{recipe} {path} {fmt}: {verdict['rows']} vectors, {verdict['mismatches']} mismatches")
            if run.returncode != 0 or verdict["mismatches"] != 0:
                print(run.stdout)
                sys.exit(1)
            total += verdict["rows"]
    print(f"{total} vectors agree with MMA-Sim")


main()
