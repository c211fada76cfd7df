"""Generated checkpoints from the command line: recorded, exported, verified, and refused in one line."""
import os
import pathlib
import subprocess
import tempfile
import unittest

BIN = pathlib.Path(os.environ["DSV3_BIN_DIR"])


def run(program, *arguments):
    return subprocess.run([BIN / program, *map(str, arguments)], capture_output=True, text=True, timeout=60)


class SyntheticCliTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def done(self, *command):
        result = run(*command)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def record(self, checkpoint, name):
        out = self.folder / name
        self.done("dsv3-golden", "record", "--checkpoint", checkpoint, "--prompt-ids", "1,2,3", "--out", out)
        return out

    def test_an_export_records_the_same_bits(self):
        exported = self.folder / "edge"
        self.done("dsv3-golden", "export", "synthetic:edge?seed=5", "--out", exported)
        generated = self.record("synthetic:edge?seed=5", "generated")
        self.assertIn("0 differ", self.done("dsv3-golden", "diff", generated, self.record(exported, "read")))

    def test_verify_finds_the_weights_again(self):
        golden = self.record("synthetic:edge", "golden")
        self.assertIn("PASS", self.done("dsv3-verify", "--golden", golden, "--against", golden))
        other = run("dsv3-verify", "--golden", golden, "--checkpoint", "synthetic:edge?seed=1", "--against", golden)
        self.assertEqual(other.returncode, 2)
        self.assertIn("not the checkpoint the golden file was made from", other.stderr)

    def test_bad_arguments_get_one_line(self):
        out = self.folder / "out"
        for arguments, fragment in (
            (("export", "synthetic:pico", "--out", out), "nano, ragged, notv3, edge, wide, par, full"),
            (("export", "synthetic:nano?seed=x", "--out", out), "?seed=N"),
            (("export", self.folder, "--out", out), "expected synthetic:NAME"),
            (("export", "synthetic:nano", "--out", self.folder), "exists already"),
            (("export", "synthetic:nano", "--dtype", "fp16", "--out", out), "fp16"),
            (("record", "--checkpoint", "synthetic:pico", "--prompt-ids", "1", "--out", out), "no such fixture"),
        ):
            result = run("dsv3-golden", *arguments)
            self.assertEqual((result.returncode, result.stdout, result.stderr.count("\n")), (2, "", 1), result.stderr)
            self.assertIn(fragment, result.stderr)
        self.assertEqual(list(self.folder.iterdir()), [])


if __name__ == "__main__":
    unittest.main()
