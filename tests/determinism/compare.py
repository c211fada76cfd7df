"""Compares what builds of the determinism program printed, and says for each build, level and number of threads whether its bits are
those of the first.

Usage: compare.py BUILD=FILE...   (BUILD: how the program was compiled, for example "g++ -O3")
Exit: 0 if all are the same.
"""
import collections
import hashlib
import sys


def cells_of(path):
    """(level, threads) -> {(model, mode, op): hash}; lines of other programs go under the program's name."""
    cells = collections.defaultdict(dict)
    with open(path, encoding="ascii") as lines:
        for line in lines:
            level, threads, *what, value = line.split()
            cells[level, threads][tuple(what)] = value
    return cells


def first_difference(expected, got):
    names = sorted(expected.keys() | got.keys())
    return [" ".join(reversed(name)) for name in names if expected.get(name) != got.get(name)]


def main(arguments):
    failed = False
    expected = {}
    for argument in arguments:
        build, path = argument.rsplit("=", 1)
        cells = cells_of(path)
        if not cells:
            print(f"determinism: {build}: no hashes in {path}")
            failed = True
        for (level, threads), got in cells.items():
            what = "numerics" if level == "numerics" else "passes"
            reference = expected.setdefault(what, got)
            differing = first_difference(reference, got)
            together = hashlib.sha256("".join(got[name] for name in sorted(got)).encode()).hexdigest()[:16]
            verdict = "same" if not differing else f"DIFFER: {len(differing)}, first {differing[0]}"
            cell = "functions and sums" if what == "numerics" else f"{level}, {threads} thread" + "s" * (threads != "1")
            print(f"determinism: {build}, {cell}: {len(got)} hashes, together {together}, {verdict}")
            failed = failed or bool(differing)
    return 1 if failed or not expected else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
