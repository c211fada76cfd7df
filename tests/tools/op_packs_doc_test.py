"""The numpy example of docs/op-packs.md, run as it stands there, and the commands around it."""
import os
import pathlib
import subprocess
import tempfile
import unittest

try:
    import numpy
except ImportError:
    numpy = None

BIN = pathlib.Path(os.environ["DSV3_BIN_DIR"])
DOC = pathlib.Path(__file__).parents[2] / "docs" / "op-packs.md"


def run(*command, folder):
    return subprocess.run([BIN / command[0], *command[1:]], capture_output=True, text=True, timeout=60, cwd=folder)


def python_blocks():
    return [part.split("```")[0] for part in DOC.read_text(encoding="utf-8").split("```python\n")[1:]]


class OpPacksDocTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def pack(self, kind, *arguments):
        result = run("dsv3-golden", "op", kind, *arguments, "--out", f"{kind}.safetensors", folder=self.folder)
        self.assertEqual(result.returncode, 0, result.stderr)

    def execute(self, block, names):
        where = os.getcwd()
        os.chdir(self.folder)
        try:
            exec(compile(block, str(DOC), "exec"), names)
        finally:
            os.chdir(where)

    @unittest.skipIf(numpy is None, "numpy is not installed")
    def test_the_example_accepts_the_reference_and_refuses_a_changed_step(self):
        self.pack("linear", "--shape", "m=4,k=512,n=256")
        names = {}
        self.execute(python_blocks()[0], names)
        codes = names["pack"]["output"].copy()
        codes[1, 7] += 1
        wrong = python_blocks()[0].replace('pack["output"])', "changed)", 1)
        with self.assertRaises(AssertionError):
            self.execute(wrong, {"changed": codes})
        numpy.save(self.folder / "mine.npy", names["bf16"](names["pack"]["output"]))
        numpy.save(self.folder / "wrong.npy", names["bf16"](codes))
        for file, code, word in (("mine.npy", 0, "PASS"), ("wrong.npy", 1, "[1, 7]"), ("none.npy", 2, "none.npy")):
            result = run("dsv3-verify", "op", "linear.safetensors", "--output", file, folder=self.folder)
            self.assertEqual(result.returncode, code, result.stderr)
            self.assertIn(word, result.stdout + result.stderr)

    @unittest.skipIf(numpy is None, "numpy is not installed")
    def test_the_router_example_accepts_the_reference_and_refuses_another_expert(self):
        self.pack("router", "--shape", "tokens=4,hidden=512,experts=64,topk=4")
        names = {}
        self.execute(python_blocks()[0].split("pack = ")[0] + 'pack = read("router.safetensors")\n', names)
        names["ids"] = names["pack"]["output"].copy()
        self.execute(python_blocks()[1], names)
        names["ids"][2, 0] = (names["pack"]["may_be_chosen"][2] == 0).argmax()
        with self.assertRaises(AssertionError):
            self.execute(python_blocks()[1], names)

    def test_help_shows_sizes_and_an_example(self):
        result = run("dsv3-golden", "op", "linear", "--help", folder=self.folder)
        self.assertEqual(result.returncode, 0)
        for text in ("7168", "columns of y", "dsv3-golden op linear --shape m=4,k=512,n=256"):
            self.assertIn(text, result.stdout)

    def test_verify_judges_a_pack_as_its_own_output(self):
        self.pack("act_quant", "--shape", "tokens=2,dim=256")
        result = run("dsv3-verify", "op", "act_quant.safetensors", "--output", "act_quant.safetensors", "--json", folder=self.folder)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn('"pass": true', result.stdout)


if __name__ == "__main__":
    unittest.main()
