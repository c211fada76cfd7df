"""dsv3-verify and dsv3-infer on the emulated device as their users call them."""
import csv
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

BIN = pathlib.Path(os.environ["DSV3_BIN_DIR"])
MINI = pathlib.Path(__file__).resolve().parents[2] / "golden/data/mini"
PROMPTS = [json.loads(line) for line in (MINI / "prompts.jsonl").read_text().splitlines()]


def run(program, *arguments):
    return subprocess.run([BIN / program, *map(str, arguments)], capture_output=True, text=True, timeout=100)


class Base(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)

    def refused(self, result, *fragments):
        """Exit 2, nothing on stdout, one line on stderr that names what is wrong."""
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertEqual(result.stdout, "")
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        for fragment in fragments:
            self.assertIn(fragment, result.stderr)


class VerifyTest(Base):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.golden = cls.folder / "g.safetensors"
        run("dsv3-golden", "record", "--checkpoint", MINI / "checkpoint", "--prompt-ids", "0,34,262", "--decode", 1,
            "--out", cls.golden)

    def verify(self, *arguments):
        return run("dsv3-verify", "--golden", self.golden, *arguments)

    def test_the_kernels_pass_whatever_the_order(self):
        for more in (("--order", "reverse"), ("--order", "random:9", "--races")):
            result = self.verify("--device", "emulated", *more)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
            self.assertIn("PASS against profile v32", result.stdout)

    def test_a_wrong_kernel_is_named(self):
        for fault, kernel in (("k-swiglu-sign", "swiglu"), ("k-rms-norm-count", "rms_norm")):
            result = self.verify("--device", "emulated", "--kernel-fault", fault, "--case", "p3")
            self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
            self.assertIn(f"computed by kernel: {kernel}\n", result.stdout)

    def test_a_race_is_named_with_its_line(self):
        result = self.verify("--device", "emulated", "--kernel-fault", "k-combine-barrier", "--case", "p3", "--races")
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertIn("FAULT kernel combine", result.stdout)
        self.assertIn("gpu/kernels/combine.cuh:", result.stdout)

    def test_bad_input_is_refused(self):
        self.refused(self.verify(), "--against", "--device")
        self.refused(self.verify("--device", "cuda"), "--device cuda", "--device emulated")
        self.refused(self.verify("--device", "emulated", "--order", "random"), "--order random", "random:SEED")
        self.refused(self.verify("--device", "emulated", "--kernel-fault", "k-none"), "k-none", "k-swiglu-sign")
        other = self.folder / "hf.safetensors"
        run("dsv3-golden", "record", "--checkpoint", MINI / "checkpoint", "--prompt-ids", "5", "--profile", "hf", "--out",
            other)
        self.refused(run("dsv3-verify", "--golden", other, "--device", "emulated"), "profile hf",
                     "dsv3-golden record --checkpoint", "--prompt-ids 5 --profile v32")


class Fp16Test(Base):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.golden = cls.folder / "g.safetensors"
        run("dsv3-golden", "record", "--checkpoint", "synthetic:par", "--prompt-ids", "0,34,26", "--decode", 1,
            "--profile", "fp16", "--out", cls.golden)

    def verify(self, *arguments):
        return run("dsv3-verify", "--golden", self.golden, "--device", "emulated", *arguments)

    def test_a_golden_of_profile_fp16_is_judged_on_one_rank_and_on_several(self):
        for more in ((), ("--tp", 2, "--ep", 2, "--order", "reverse")):
            result = self.verify(*more)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
            self.assertIn("PASS against profile fp16", result.stdout)

    def test_tokens_are_those_of_the_reference(self):
        # Without FP8: a code that rounds the other way moves the choices of random experts.
        prompt = ("--checkpoint", "synthetic:par", "--prompt-ids", "3,1,4,15", "--max-new-tokens", 4, "--profile", "fp16",
                  "--gemm", "fp16")
        outputs = [run("dsv3-infer", *prompt, "--json", "--device", *device)
                   for device in (("cpu",), ("emulated", "--mtp", 1, "--tp", 2, "--kv", "fp16"))]
        ids = [json.loads(output.stdout)["ids"] for output in outputs]
        self.assertEqual(len(ids[0]), 4)
        self.assertEqual(ids, ids[:1] * len(ids))

    def test_what_is_not_there_is_refused(self):
        self.refused(self.verify("--races"), "--races", "fp16")
        self.refused(self.verify("--kernel-fault", "k-swiglu-sign"), "--kernel-fault", "fp16")
        self.refused(self.verify("--kv", "bf16"), "--kv bf16", "fp16 or fp8")


class InferTest(Base):
    def infer(self, *arguments):
        return run("dsv3-infer", "--checkpoint", MINI / "checkpoint", *arguments)

    def test_the_text_is_the_stored_one(self):
        prompt = PROMPTS[1]  # all margins above 0.05
        result = self.infer("--prompt", prompt["text"], "--max-new-tokens", 6, "--device", "emulated", "--mtp", 1,
                            "--stats", "json")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertTrue(prompt["output_text"].startswith(result.stdout.removesuffix("\n")), result.stdout)
        self.assertIn("device memory: weights", result.stderr)
        stats = json.loads(result.stderr.splitlines()[-1])
        self.assertEqual(stats["ids"], prompt["output_ids"][:6])
        self.assertEqual(stats["prompt_tokens"], len(prompt["ids"]))

    def test_a_batch_that_waits_gives_the_same(self):
        batch = self.folder / "b.jsonl"
        batch.write_text("".join(json.dumps({"ids": p["ids"], "max_new_tokens": 3}) + "\n" for p in PROMPTS[:3]))
        outputs = [self.infer("--batch", batch, "--device", "emulated", *more).stdout
                   for more in (("--max-batch", 2), ("--graphs", "off", "--chunk", 5))]
        self.assertEqual(len(outputs[0].splitlines()), 3)
        self.assertEqual(*outputs)

    def test_traces(self):
        common = ("--prompt-ids", "0,34,262", "--max-new-tokens", 2, "--device", "emulated")
        records = self.folder / "ops.csv"
        routing = self.folder / "routing.csv"
        result = self.infer(*common, "--trace", records, "--trace-routing", routing)
        self.assertEqual(result.returncode, 0, result.stderr)
        with records.open() as file:
            rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
        self.assertEqual({row["source"] for row in rows}, {"emulated"})
        self.assertEqual({row["phase"] for row in rows}, {"prefill", "decode"})
        self.assertIn("layer.1.moe.expert.*.gate", {row["op"] for row in rows})
        # 3 tokens of prompt and 1 of decoding, 2 MoE layers, 4 experts of each.
        self.assertEqual(len(routing.read_text().splitlines()), 2 + 4 * 2 * 4)
        chrome = self.folder / "ops.json"
        self.infer(*common, "--trace", chrome)
        events = json.loads(chrome.read_text())["traceEvents"]
        self.assertIn("embed", {event["name"] for event in events})
        self.refused(self.infer(*common, "--trace", self.folder / "ops.txt"), "ops.txt", ".csv")

    def test_wishes_that_the_engine_does_not_have(self):
        prompt = ("--prompt-ids", "1,2", "--device", "emulated")
        self.refused(self.infer(*prompt, "--profile", "hf"), "--profile hf", "v32")
        self.refused(self.infer(*prompt, "--mode", "exact"), "--mode exact", "published")
        self.refused(self.infer(*prompt, "--attention", "naive"), "--attention naive")
        self.refused(self.infer(*prompt, "--page-size", 32), "--page-size 32", "64")
        self.refused(self.infer("--prompt-ids", "1,2", "--device", "cuda"), "--device cuda")


if __name__ == "__main__":
    unittest.main()
