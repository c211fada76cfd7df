#!/usr/bin/env python3
"""Holds #include lines and CMake link lines against the arrows of docs/design.md: which folder may use which.

Usage: tools/layering.py [repository root]
Prints one line per violation (file:line: what) and exits 1 if there is any.
"""

import argparse
import os
import pathlib
import re
import sys

# Folder -> the folders it may use besides itself. Folders with C++ sources that are not named here are violations.
ARROWS = {
    "model": set(),
    "reference": {"model"},
    "golden": {"model"},
    "gpu": {"model"},
    "simulator": {"model"},
    "report": {"model", "simulator"},
    "text": {"model"},
}
FREE = {"tools", "tests"}  # may use anything, but nobody may use them
KNOWN = ARROWS.keys() | FREE

SOURCE_SUFFIXES = {".hpp", ".cpp", ".h", ".cu", ".cuh"}
INCLUDE = re.compile(r'\s*#\s*include\s*[<"]([^">]+)[">]')
COMMAND = re.compile(r"\b(\w+)\s*\(([^()]*)\)")
TARGET_MAKERS = {"add_library", "add_executable"}
SOURCE_TAKERS = TARGET_MAKERS | {"target_sources"}


def files_below(root, wanted):
    """Paths relative to root, without hidden and build folders."""
    found = []
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = sorted(s for s in subfolders if not s.startswith((".", "build")))
        found += [pathlib.Path(folder, n).relative_to(root) for n in sorted(names) if wanted(n)]
    return found


def may_use(folder, other):
    return folder == other or folder in FREE or other in ARROWS.get(folder, set())


def check_includes(root):
    for path in files_below(root, lambda name: pathlib.Path(name).suffix in SOURCE_SUFFIXES):
        folder = path.parts[0]
        if folder not in KNOWN:
            yield f"{path}:1: folder {folder} has no arrows: add it to docs/design.md and tools/layering.py"
            continue
        text = (root / path).read_text(encoding="utf-8")
        for number, line in enumerate(text.splitlines(), start=1):
            match = INCLUDE.match(line)
            if not match:
                continue
            included = match[1]
            other = included.split("/")[0]
            if included.startswith(".") or (root / path.parent / included).exists():
                yield f"{path}:{number}: include path {included} does not start at the repository root"
            elif other in KNOWN and "/" in included and not may_use(folder, other):
                yield f"{path}:{number}: {folder} may not include {other} ({included})"


def commands(text):
    """(line number, command name, arguments) of each CMake command; arguments with parentheses inside are not parsed."""
    text = re.sub(r"#.*", "", text)
    for match in COMMAND.finditer(text):
        yield text.count("\n", 0, match.start()) + 1, match[1].lower(), match[2].split()


def check_links(root):
    lists = files_below(root, lambda name: name == "CMakeLists.txt" or name.endswith(".cmake"))
    parsed = [(path, list(commands((root / path).read_text(encoding="utf-8")))) for path in lists]
    owner = {
        arguments[0]: path.parts[0]
        for path, found in parsed
        for _, name, arguments in found
        if name in TARGET_MAKERS and arguments and path.parts[0] in KNOWN
    }
    for path, found in parsed:
        for number, name, arguments in found:
            if not arguments:
                continue
            folder = owner.get(arguments[0], path.parts[0])
            if folder not in ARROWS:
                continue
            if name == "target_link_libraries":
                for library in arguments[1:]:
                    other = owner.get(library, folder)
                    if not may_use(folder, other):
                        yield f"{path}:{number}: {folder} may not link {library} of {other}"
            elif name in SOURCE_TAKERS:
                for source in arguments[1:]:
                    step_out = re.match(r"(?:\.\./)+(\w+)/|\$\{(?:PROJECT|CMAKE)_SOURCE_DIR\}/(\w+)/", source)
                    other = step_out and (step_out[1] or step_out[2])
                    if other in KNOWN and not may_use(folder, other):
                        yield f"{path}:{number}: {folder} may not compile {source} of {other}"


def violations(root):
    root = pathlib.Path(root)
    return [*check_includes(root), *check_links(root)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", nargs="?", default=pathlib.Path(__file__).resolve().parent.parent)
    found = violations(parser.parse_args().root)
    for violation in found:
        print(violation)
    print(f"layering: {len(found)} violation(s)" if found else "layering: ok")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
