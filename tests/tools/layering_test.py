"""The layering check finds each kind of forbidden arrow, planted in a temporary tree, and lets the allowed ones pass."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "tools" / "layering.py"


class LayeringTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.write("model/CMakeLists.txt", "add_library(model STATIC a.cpp)\ntarget_link_libraries(model PUBLIC fmt::fmt)\n")
        self.write("model/a.hpp", "#pragma once\n#include <vector>\n")
        self.write("model/a.cpp", '#include "model/a.hpp"\n')
        self.write("reference/CMakeLists.txt", "add_library(reference b.cpp)\ntarget_link_libraries(reference PUBLIC model)\n")
        self.write("reference/b.cpp", '#include "model/a.hpp"\n#include "csv.h"\n')
        self.write("golden/CMakeLists.txt", "add_library(golden c.cpp)\ntarget_link_libraries(golden PUBLIC model)\n")
        self.write("golden/c.cpp", '#include "model/a.hpp"\n')
        self.write("tools/main.cpp", '#include "golden/c.hpp"\n#include "reference/b.hpp"\n')
        self.write("tools/CMakeLists.txt", "add_executable(main main.cpp)\ntarget_link_libraries(main golden reference)\n")

    def write(self, path, text):
        path = self.root / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="ascii")

    def check(self):
        result = subprocess.run([sys.executable, SCRIPT, self.root], capture_output=True, text=True)
        return result.returncode, result.stdout.splitlines()

    def assert_found(self, *expected):
        code, lines = self.check()
        self.assertEqual(lines[:-1], list(expected))
        self.assertEqual(code, 1)

    def test_a_tree_that_follows_the_arrows_passes(self):
        self.assertEqual(self.check(), (0, ["layering: ok"]))

    def test_the_ground_includes_nobody(self):
        self.write("model/a.cpp", '#include "model/a.hpp"\n\n#include "reference/b.hpp"\n')
        self.assert_found("model/a.cpp:3: model may not include reference (reference/b.hpp)")

    def test_reference_does_not_include_golden_in_either_quoting(self):
        self.write("reference/ops/d.hpp", '#include "golden/c.hpp"\n  #  include <golden/c.hpp>\n')
        self.assert_found(
            "reference/ops/d.hpp:1: reference may not include golden (golden/c.hpp)",
            "reference/ops/d.hpp:2: reference may not include golden (golden/c.hpp)",
        )

    def test_nobody_includes_tools_or_tests(self):
        self.write("golden/c.cpp", '#include "tests/shared_data.hpp"\n')
        self.assert_found("golden/c.cpp:1: golden may not include tests (tests/shared_data.hpp)")

    def test_gpu_and_reference_share_no_arithmetic(self):
        self.write("gpu/kernels/e.cu", '#include "reference/b.hpp"\n')
        self.assert_found("gpu/kernels/e.cu:1: gpu may not include reference (reference/b.hpp)")

    def test_include_paths_start_at_the_root(self):
        self.write("model/b.cpp", '#include "a.hpp"\n#include "../golden/c.hpp"\n')
        self.assert_found(
            "model/b.cpp:1: include path a.hpp does not start at the repository root",
            "model/b.cpp:2: include path ../golden/c.hpp does not start at the repository root",
        )

    def test_a_forbidden_link_is_found_across_lines_and_after_comments(self):
        self.write(
            "golden/CMakeLists.txt",
            "add_library(golden c.cpp)\n# links\ntarget_link_libraries(golden\n  PUBLIC model # ground\n  PRIVATE reference)\n",
        )
        self.assert_found("golden/CMakeLists.txt:3: golden may not link reference of reference")

    def test_a_second_target_of_a_folder_counts_as_the_folder(self):
        self.write("golden/CMakeLists.txt", "add_library(golden_store c.cpp)\n")
        self.write("reference/CMakeLists.txt", "add_library(reference b.cpp)\ntarget_link_libraries(reference golden_store)\n")
        self.assert_found("reference/CMakeLists.txt:2: reference may not link golden_store of golden")

    def test_a_source_borrowed_from_another_folder_is_found(self):
        self.write("golden/CMakeLists.txt", "add_library(golden c.cpp ../reference/b.cpp)\n")
        self.assert_found("golden/CMakeLists.txt:1: golden may not compile ../reference/b.cpp of reference")

    def test_a_folder_without_arrows_is_found(self):
        self.write("utility/f.hpp", "#pragma once\n")
        self.assert_found(
            "utility/f.hpp:1: folder utility has no arrows: add it to docs/design.md and tools/layering.py"
        )

    def test_build_folders_are_not_read(self):
        self.write("build-asan/generated/model/g.hpp", '#include "golden/c.hpp"\n')
        self.assertEqual(self.check()[0], 0)


if __name__ == "__main__":
    unittest.main()
