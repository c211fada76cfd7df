"""dsv3-sim as its users call it, for the tests beside this file."""
import os
import pathlib
import subprocess
import unittest

PROGRAM = pathlib.Path(os.environ["DSV3_BIN_DIR"]) / "dsv3-sim"


def run(*arguments):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=100)


class SimTestCase(unittest.TestCase):
    def output(self, *arguments):
        result = run(*arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def refused(self, arguments, *fragments):
        """Exit 2, nothing on stdout, one line on stderr that names what is wrong."""
        result = run(*arguments)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertEqual(result.stdout, "")
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        for fragment in fragments:
            self.assertIn(fragment, result.stderr)
