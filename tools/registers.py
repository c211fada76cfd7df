#!/usr/bin/env python3
"""Registers and spills of each kernel, from what `nvcc -Xptxas=-v` says, as a table.

Usage: tools/registers.py [LOG]        (standard input without LOG)
  cmake -B build-cuda -DDSV3_CUDA=ON && ninja -C build-cuda gpu_cuda | tools/registers.py
Exit status: 0 no kernel spills, 1 one does, 2 the log names no kernel.
"""

import argparse
import re
import subprocess
import sys

COMPILING = re.compile(r"Compiling entry function '(\S+)' for '(\S+)'")
SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")
ARGUMENTS = re.compile(r"\(.*")
NAMESPACES = re.compile(r"\b(?:\w+::)+")
WORDS = re.compile(r"^void |_kernel\b")


def readable(mangled):
    """gpu::cuda::fp8_linear_kernel<16>(...) -> fp8_linear<16>"""
    name = subprocess.run(["c++filt", mangled], capture_output=True, text=True, check=True).stdout.strip()
    return WORDS.sub("", NAMESPACES.sub("", ARGUMENTS.sub("", name)))


def kernels_of(lines):
    """[(name, architecture, registers, spilled bytes, stack bytes)], in the order of the log."""
    found = []
    name = arch = None
    stack = spilled = 0
    for line in lines:
        if match := COMPILING.search(line):
            name, arch = match.groups()
        elif match := SPILLS.search(line):
            stack, stores, loads = (int(number) for number in match.groups())
            spilled = stores + loads
        elif (match := REGISTERS.search(line)) and name:
            found.append((readable(name), arch, int(match.group(1)), spilled, stack))
            name = None
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", nargs="?", help="nvcc's output")
    log = parser.parse_args().log
    try:
        with open(log, encoding="utf-8") if log else sys.stdin as lines:
            kernels = kernels_of(lines)
    except OSError as error:
        print(f"{log}: {error.strerror}", file=sys.stderr)
        return 2
    if not kernels:
        print(f"{log or 'standard input'}: no kernel in it; expected the output of nvcc -Xptxas=-v", file=sys.stderr)
        return 2
    print("| kernel | architecture | registers | spilled bytes | stack bytes |")
    print("|---|---|---|---|---|")
    for name, arch, registers, spilled, stack in sorted(kernels):
        print(f"| {name} | {arch} | {registers} | {spilled} | {stack} |")
    return 1 if any(spilled for _, _, _, spilled, _ in kernels) else 0


if __name__ == "__main__":
    sys.exit(main())
