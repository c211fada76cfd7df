"""The programs as their users call them: exit codes, one clear line for bad input, JSON that parses."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree

BIN = pathlib.Path(os.environ["DSV3_BIN_DIR"])
ROOT = pathlib.Path(__file__).resolve().parents[2]
MINI = ROOT / "golden/data/mini"


def run(program, *arguments):
    return subprocess.run([BIN / program, *map(str, arguments)], capture_output=True, text=True, timeout=60)


class CliTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.golden = pathlib.Path(cls.folder.name) / "golden.safetensors"
        made = run("dsv3-golden", "record", "--checkpoint", MINI / "checkpoint", "--cases", MINI / "prompts.json",
                   "--case", "p1,p2", "--case", "p7", "--out", cls.golden)
        assert made.returncode == 0, made.stderr

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def path(self, name):
        return pathlib.Path(self.folder.name) / name

    def verify(self, *more):
        return run("dsv3-verify", "--golden", self.golden, "--checkpoint", MINI / "checkpoint", "--against",
                   MINI / "v32_fp8.safetensors", "--format", "v32", *more)

    def refused(self, result, *fragments):
        """Exit 2, nothing on stdout, one line on stderr that names what is wrong."""
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertEqual(result.stdout, "")
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        for fragment in fragments:
            self.assertIn(fragment, result.stderr)

    def test_help_shows_an_example_and_the_exit_codes(self):
        for program in ("dsv3-golden", "dsv3-verify"):
            result = run(program, "--help")
            self.assertEqual(result.returncode, 0)
            self.assertIn("Examples:", result.stdout)
            self.assertIn("Exit codes:", result.stdout)

    def test_a_seed_is_no_negative_number(self):
        for program in (("dsv3-golden", "op", "rms_norm"), ("dsv3-sim", "skew"), ("dsv3-sim", "estimate"), ("dsv3-infer",)):
            self.refused(run(*program, "--seed", "-1"), "--seed", "-1")

    def test_a_prompt_in_words_is_recorded_as_its_ids_are(self):
        prompt = json.loads((MINI / "prompts.jsonl").read_text().splitlines()[2])
        words, ids = self.path("words"), self.path("ids")
        record = ("dsv3-golden", "record", "--checkpoint", MINI / "checkpoint", "--ops", "logits")
        self.assertEqual(run(*record, "--prompt", prompt["text"], "--out", words).returncode, 0)
        self.assertEqual(run(*record, "--prompt-ids", ",".join(map(str, prompt["ids"])), "--out", ids).returncode, 0)
        self.assertEqual(run("dsv3-golden", "diff", words, ids).returncode, 0)
        self.assertIn(f"p{len(prompt['ids'])}/logits", run("dsv3-golden", "list", words).stdout)
        self.refused(run("dsv3-golden", "record", "--checkpoint", "synthetic:nano", "--prompt", "a", "--out", words),
                     "tokenizer.json")

    def test_version_names_the_project(self):
        self.assertRegex(run("dsv3-verify", "--version").stdout, r"^dsv3 \d+\.\d+\.\d+ \(")

    def test_an_independent_dump_passes(self):
        result = self.verify()
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertIn("PASS against profile v32", result.stdout)

    def test_json_verdict_has_the_pinned_keys(self):
        verdict = json.loads(self.verify("--json").stdout)
        self.assertEqual(verdict["verdict"], "pass")
        self.assertEqual(verdict["profile"], "v32")
        self.assertIsNone(verdict["first_divergence"])
        self.assertEqual(verdict["undecided"], [])
        for key in ("case", "op", "rank", "status", "free_status", "variant", "max_bound_use", "max_ulp", "bias_z", "cosine",
                    "calc_diff"):
            self.assertIn(key, verdict["ops"][0])

    def test_a_fault_fails_and_is_named(self):
        faulty = self.path("faulty.safetensors")
        made = run("dsv3-golden", "record", "--checkpoint", MINI / "checkpoint", "--cases", MINI / "prompts.json", "--case",
                   "p1,p2,p7", "--fault", "k-01", "--out", faulty)
        self.assertEqual(made.returncode, 0, made.stderr)
        junit = self.path("junit.xml")
        result = run("dsv3-verify", "--golden", self.golden, "--checkpoint", MINI / "checkpoint", "--against", faulty, "--json",
                     "--junit", junit)
        self.assertEqual(result.returncode, 1)
        first = json.loads(result.stdout)["first_divergence"]
        self.assertEqual((first["op"], first["case"], first["rank"]), ("layer.1.attn.o_proj", "p1", 0))
        self.assertEqual(first["reads"], ["layer.1.attn.context"])
        self.assertEqual(len(first["coordinate"]), 2)
        failures = xml.etree.ElementTree.parse(junit).findall(".//failure")
        self.assertEqual(len(failures), 3)  # p1, p2, p7

    def test_cases_that_cannot_be_judged_are_undecided(self):
        out = self.path("p33.safetensors")
        run("dsv3-golden", "record", "--checkpoint", MINI / "checkpoint", "--cases", MINI / "prompts.json", "--case", "p33",
            "--out", out)
        result = run("dsv3-verify", "--golden", out, "--checkpoint", MINI / "checkpoint", "--against",
                     MINI / "v32_fp8.safetensors", "--format", "v32", "--json")
        self.assertEqual(result.returncode, 2)
        verdict = json.loads(result.stdout)
        self.assertEqual(verdict["verdict"], "undecided")
        self.assertTrue(any("p33/layer.0.attn_norm" in line for line in verdict["undecided"]))

    def test_prompt_ids_and_greedy_decode(self):
        out = self.path("ids.safetensors")
        result = run("dsv3-golden", "record", "--checkpoint", MINI / "checkpoint", "--prompt-ids", "0,34,262", "--decode", "2",
                     "--mtp", "--mode", "exact", "--ops", "logits,mtp.0.logits", "--out", out)
        self.assertEqual(result.returncode, 0, result.stderr)
        names = [row["name"] for row in json.loads(run("dsv3-golden", "list", out, "--json").stdout)]
        self.assertEqual(names, ["d0/logits", "d0/mtp.0.logits", "d1/logits", "d1/mtp.0.logits", "p3/logits", "p3/mtp.0.logits"])

    def test_profile_fp16_is_recorded_and_verified_and_goes_with_published_sums(self):
        out = self.path("fp16.safetensors")
        record = ("dsv3-golden", "record", "--checkpoint", MINI / "checkpoint", "--prompt-ids", "0,34", "--profile", "fp16")
        self.assertEqual(run(*record, "--out", out).returncode, 0)
        rows = {row["name"]: row["dtype"] for row in json.loads(run("dsv3-golden", "list", out, "--json").stdout)}
        self.assertEqual((rows["p2/embed"], rows["p2/layer.0.output"]), ("F16", "F32"))
        self.assertIn("held at 1 / routed_scaling_factor", run("dsv3-golden", "show", out).stdout)
        verdict = run("dsv3-verify", "--golden", out, "--checkpoint", MINI / "checkpoint", "--against", out, "--format", "dsv3")
        self.assertEqual(verdict.returncode, 0, verdict.stdout)
        self.assertIn("PASS against profile fp16", verdict.stdout)
        self.refused(run(*record, "--gemm", "bf16", "--out", out), "--gemm bf16", "fp16")
        self.refused(run(*record, "--mode", "hopper", "--out", out), "fp16", "published or fast")

    def test_bounds_are_stored_beside_the_tensors(self):
        out = self.path("bounds.safetensors")
        result = run("dsv3-golden", "record", "--checkpoint", MINI / "checkpoint", "--prompt-ids", "0,34", "--bounds", "--ops",
                     "layer.0.attn.q_a,layer.1.moe.topk_ids,logits", "--out", out)
        self.assertEqual(result.returncode, 0, result.stderr)
        rows = {row["name"]: row for row in json.loads(run("dsv3-golden", "list", out, "--json").stdout)}
        self.assertEqual(set(rows), {"p2/layer.0.attn.q_a", "p2/layer.0.attn.q_a.bound", "p2/layer.1.moe.topk_ids", "p2/logits",
                                     "p2/logits.bound"})
        self.assertEqual(rows["p2/logits.bound"], {"name": "p2/logits.bound", "dtype": "F64", "shape": [2, 2048]})

    def test_show_diff_and_faults(self):
        shown = run("dsv3-golden", "show", self.golden)
        self.assertIn("profile v32", shown.stdout)
        self.assertIn("[0 1065]", shown.stdout)
        same = run("dsv3-golden", "diff", self.golden, self.golden)
        self.assertEqual((same.returncode, "0 differ" in same.stdout), (0, True))
        exact = self.path("exact.safetensors")
        run("dsv3-golden", "record", "--checkpoint", MINI / "checkpoint", "--cases", MINI / "prompts.json", "--case", "p1,p2,p7",
            "--mode", "exact", "--out", exact)
        self.assertEqual(run("dsv3-golden", "diff", self.golden, exact).returncode, 1)
        faults = json.loads(run("dsv3-golden", "faults", "--json").stdout)
        self.assertTrue({"bb-02", "bb-03", "bb-18", "k-01", "k-02"} <= {fault["id"] for fault in faults})
        self.assertLessEqual({"id", "op", "fixture", "description"}, set(faults[0]))

    def test_bad_input_gets_one_line(self):
        checkpoint = ("--checkpoint", MINI / "checkpoint")
        out = ("--out", self.path("never.safetensors"))
        record = ("dsv3-golden", "record")
        self.refused(run(*record, "--checkpoint", "/nowhere", "--prompt-ids", "1", *out), "/nowhere")
        self.refused(run(*record, *checkpoint, *out), "--prompt-ids", "--cases")
        self.refused(run(*record, *checkpoint, "--prompt-ids", "1,x", *out), "'x' is not a number")
        self.refused(run(*record, *checkpoint, "--prompt-ids", "2048", *out), "--prompt-ids", "[0, 2048)")
        self.refused(run(*record, *checkpoint, "--prompt-ids", ",".join(["1"] * 513), *out), "max_position_embeddings")
        self.refused(run(*record, *checkpoint, "--prompt-ids", "1", "--mode", "fancy", *out), "--mode fancy")
        self.refused(run(*record, *checkpoint, "--prompt-ids", "1", "--fault", "bb-00", *out), "bb-00", "bb-03")
        self.refused(run(*record, *checkpoint, "--prompt-ids", "1", "--layers", "9", *out), "--layers")
        self.refused(run(*record, *checkpoint, "--prompt-ids", "1", "--ops", "nothing", *out), "nothing")
        self.refused(run(*record, *checkpoint, "--cases", MINI / "prompts.json", "--case", "p8", *out), "p8")
        self.refused(run(*record, *checkpoint, "--prompt-ids", "1", "--out", "/nowhere/g"), "/nowhere/g")
        self.refused(run(*record, *checkpoint, "--prompt-ids", "1", "--speed", "11", *out), "--speed")
        self.refused(run("dsv3-golden"), "subcommand")
        self.refused(run("dsv3-golden", "show", MINI / "prompts.json"), "prompts.json")
        self.refused(run("dsv3-golden", "show", MINI / "v32_fp8.safetensors"), "v32_fp8.safetensors")
        self.refused(self.verify("--case", "p8"), "p8")
        self.refused(run("dsv3-verify", "--golden", self.golden, "--against", self.golden, "--format", "fancy"), "fancy", "v32")
        self.assertFalse(self.path("never.safetensors").exists())

    def test_another_checkpoint_is_refused(self):
        other = self.path("other")
        other.mkdir()
        for file in (MINI / "checkpoint").iterdir():
            text = file.read_bytes()
            if file.name == "config.json":
                text = text.replace(b'"routed_scaling_factor": 2.5', b'"routed_scaling_factor": 2.6')
            (other / file.name).write_bytes(text)
        result = run("dsv3-verify", "--golden", self.golden, "--checkpoint", other, "--against", MINI / "v32_fp8.safetensors",
                     "--format", "v32")
        self.refused(result, "not the checkpoint")


if __name__ == "__main__":
    unittest.main()
