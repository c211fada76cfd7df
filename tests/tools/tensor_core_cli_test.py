"""dsv3-verify tensor-core as a user meets it: verdicts, exit codes, JSON, the forms of a CSV file, and what --fit says."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

VERIFY = os.path.join(os.environ["DSV3_BIN_DIR"], "dsv3-verify")
DATA = pathlib.Path(__file__).resolve().parents[1] / "reference" / "data" / "tensor_core"


def run(*arguments):
    return subprocess.run([VERIFY, "tensor-core", *map(str, arguments)], capture_output=True, text=True, check=False)


class TensorCore(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def write(self, text, name="v.csv"):
        path = pathlib.Path(self.folder.name) / name
        path.write_bytes(text.encode("utf-8"))
        return path

    def check_rejected(self, text, *words, input_format="bf16"):
        result = run("--csv", self.write(text), "--recipe", "hopper", "--input", input_format)
        self.assertEqual(result.returncode, 2, result.stdout)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)

    def test_measured_rows_agree(self):
        for name, recipe, fmt in [("a100_bf16", "ampere", "bf16"), ("ada_bf16", "ada", "bf16"),
                                  ("ada_e4m3", "ada", "e4m3"), ("h100_bf16", "hopper", "bf16"),
                                  ("h100_e4m3", "hopper", "e4m3")]:
            result = run("--csv", DATA / f"{name}_fp32.csv", "--recipe", recipe, "--input", fmt, "--json")
            verdict = json.loads(result.stdout)
            self.assertEqual((result.returncode, verdict["rows"], verdict["mismatches"]), (0, 60, 0), name)

    def test_wrong_recipe_exits_1_and_shows_the_row(self):
        result = run("--csv", DATA / "h100_bf16_fp32.csv", "--recipe", "ampere", "--input", "bf16")
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stdout, r"first: row \d+, got [0-9a-f]{8}, the file has [0-9a-f]{8}")
        verdict = json.loads(run("--csv", DATA / "h100_bf16_fp32.csv", "--recipe", "ampere", "--input", "bf16",
                                 "--json").stdout)
        self.assertGreater(verdict["mismatches"], 0)
        self.assertEqual(verdict["paths"][0]["L"], 8)

    def test_one_wrong_bit_is_one_mismatch(self):
        lines = (DATA / "h100_bf16_fp32.csv").read_text().splitlines()
        last = lines[-1]
        lines[-1] = last[:-1] + ("0" if last[-1] != "0" else "1")
        result = run("--csv", self.write("\n".join(lines)), "--recipe", "hopper", "--input", "bf16")
        self.assertEqual(result.returncode, 1)
        self.assertIn("60 rows, 1 mismatches", result.stdout)

    def test_forms_of_a_file(self):
        # 1 * 1 + 1 = 2: other column order, names, case, CRLF, blank line, 0x, an unknown column.
        forms = ["a_hex,b_hex,c_fp32_hex,d_fp32_hex\n3f80,3f80,3f800000,40000000\n",
                 "D,note,C,B,A\r\n0x40000000,x,3F800000,3F80,3F80\r\n\r\n",
                 "\ufeffa,b,c_hex,d_hex\n3f80 0000, 3f80 0000, 3f800000, 40000000"]
        for form in forms:
            result = run("--csv", self.write(form), "--recipe", "hopper", "--input", "bf16")
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_tf32_operands_have_8_digits_and_drop_13_bits(self):
        text = "a_hex,b_hex,c_fp32_hex,d_fp32_hex\n3f801fff,40000000,00000000,40000000\n"
        for recipe in ["ampere", "ada", "hopper", "blackwell"]:
            self.assertEqual(run("--csv", self.write(text), "--recipe", recipe, "--input", "tf32").returncode, 0)

    def test_fp16_results_have_4_digits(self):
        text = "a_hex,b_hex,c_fp16_hex,d_fp16_hex\n3c00,1001,3c00,3c01\n"
        self.assertEqual(run("--csv", self.write(text), "--recipe", "hopper", "--input", "fp16").returncode, 0)

    def test_bad_files_get_one_line(self):
        header = "a_hex,b_hex,c_fp32_hex,d_fp32_hex\n"
        self.check_rejected("", "empty")
        self.check_rejected(header, "no rows")
        self.check_rejected("x,y\n1,2\n", "line 1", "a_hex")
        self.check_rejected(header + "3f80,3f80,3f800000\n", "line 2", "3 cells")
        self.check_rejected(header + "3f8,3f80,3f800000,40000000\n", "line 2", "column a", "4 hexadecimal digits")
        self.check_rejected(header + "3f80,3f803f80,3f800000,40000000\n", "1 operands in a, 2 in b")
        self.check_rejected(header + "3f80,3fgg,3f800000,40000000\n", "column b")
        self.check_rejected(header + "3f80,3f80,3f8000,40000000\n", "column c")
        result = run("--csv", "missing.csv", "--recipe", "hopper", "--input", "bf16")
        self.assertEqual((result.returncode, result.stderr.count("\n")), (2, 1))

    def test_bad_flags(self):
        file = DATA / "a100_bf16_fp32.csv"
        for flags, word in [(["--recipe", "volta", "--input", "bf16"], "expected ampere"),
                            (["--recipe", "ampere", "--input", "e4m3"], "no tensor cores for e4m3"),
                            (["--recipe", "ampere", "--input", "int8"], "int8"),
                            (["--input", "bf16"], "--recipe or --fit"),
                            (["--recipe", "hopper", "--input", "bf16", "--path", "tcgen05"], "no path tcgen05")]:
            result = run("--csv", file, *flags)
            self.assertEqual(result.returncode, 2, flags)
            self.assertIn(word, result.stderr)

    def test_fit_finds_the_step(self):
        for name, fmt, expected in [("h100_bf16", "bf16", (16, 25, 23)), ("ada_e4m3", "e4m3", (16, 13, 13)),
                                    ("a100_bf16", "bf16", (8, 24, 23)), ("h100_e4m3", "e4m3", (32, 13, 13))]:
            result = run("--csv", DATA / f"{name}_fp32.csv", "--input", fmt, "--fit", "--json")
            report = json.loads(result.stdout)
            steps = {(f["L"], f["F"], f["P"], f["align"], f["result"]) for f in report["fits"]}
            self.assertEqual(steps, {(*expected, "toward_zero", "toward_zero")}, name)
            self.assertTrue(any("NaN" in sentence for sentence in report["cannot_tell"]))

    def test_fit_says_what_one_row_cannot_tell(self):
        text = "a,b,c,d\n3f80,3f80,3f800000,40000000\n"
        report = json.loads(run("--csv", self.write(text), "--input", "bf16", "--fit", "--json").stdout)
        self.assertTrue(any(s.startswith("F: ") for s in report["cannot_tell"]))
        self.assertTrue(any(s.startswith("rounding of the result") for s in report["cannot_tell"]))

    def test_fit_without_an_explanation_exits_1(self):
        text = "a,b,c,d\n3f80,3f80,3f800000,40400000\n"
        self.assertEqual(run("--csv", self.write(text), "--input", "bf16", "--fit").returncode, 1)

    def test_stated_arithmetic(self):
        step = {"inputs": ["bf16"], "products": 16, "align_bits": 25, "result_bits": 23}
        file = self.write(json.dumps({"name": "mine", "units": [step]}), "a.json")
        self.assertEqual(run("--csv", DATA / "h100_bf16_fp32.csv", "--recipe", file, "--input", "bf16").returncode, 0)
        step["align_bits"] = 24
        file = self.write(json.dumps({"name": "mine", "units": [step]}), "a.json")
        self.assertEqual(run("--csv", DATA / "h100_bf16_fp32.csv", "--recipe", file, "--input", "bf16").returncode, 1)


if __name__ == "__main__":
    unittest.main()
