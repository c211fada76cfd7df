"""Recorded runs of synthetic:par, cut into ranks: the same verdict as the whole, and a fault in one rank names the rank."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import slice_dump

BIN = pathlib.Path(os.environ["DSV3_BIN_DIR"])
NUM_EXPERTS = 16
# Four sequences for four DP ranks.
CASES = {"batch2": {"b4": [[11, 48, 85], [122, 32, 7], [400, 901, 13], [5, 5, 600]]}}


class RanksCliTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.folder.name)
        (cls.path / "cases.json").write_text(json.dumps(CASES))
        subprocess.run(
            [BIN / "dsv3-golden", "record", "--checkpoint", "synthetic:par", "--cases", cls.path / "cases.json"]
            + ["--out", cls.path / "run.safetensors"],
            check=True,
            capture_output=True,
        )
        cls.run_tensors = slice_dump.read(cls.path / "run.safetensors")
        cls.whole = cls.verdict(cls.path / "run.safetensors")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def verdict(cls, dump, *flags):
        result = subprocess.run(
            [BIN / "dsv3-verify", "--golden", cls.path / "run.safetensors", "--against", dump, "--json", *flags],
            capture_output=True,
            text=True,
        )
        assert result.stdout, result.stderr
        return json.loads(result.stdout)

    def of_ranks(self, ranks, layout):
        with tempfile.TemporaryDirectory() as directory:
            for rank, tensors in enumerate(ranks):
                slice_dump.write(f"{directory}/dump_rank{rank}.safetensors", tensors)
            return self.verdict(directory, "--layout", layout)

    def sliced(self, layout):
        return slice_dump.slice_run(self.run_tensors, layout, NUM_EXPERTS)

    def test_slices_get_the_verdict_of_the_whole(self):
        self.assertEqual(self.whole["verdict"], "pass")
        for layout in ("tp2", "tp4", "ep4", "dp4", "dp4ep4"):
            with self.subTest(layout):
                ranks = self.sliced(layout)
                largest = max(sum(len(data) for _, _, data in tensors.values()) for tensors in ranks)
                self.assertLess(largest, sum(len(data) for _, _, data in self.run_tensors.values()))
                verdict = self.of_ranks(ranks, layout)
                self.assertEqual(verdict["verdict"], "pass")
                statuses = [[(op["op"], op["status"]) for op in v["ops"]] for v in (verdict, self.whole)]
                self.assertEqual(*statuses)

    def test_a_fault_in_one_rank_names_the_rank(self):
        for layout, op, rank in (
            ("tp2", "layer.1.attn.q_b", 1),
            ("tp4", "layer.2.moe.shared.up", 2),
            ("tp4", "layer.1.attn.o_proj", 3),  # a replica
            ("ep4", None, 2),
            ("dp4", "layer.0.attn.kv_a", 1),
        ):
            with self.subTest(f"{layout} {op}"):
                ranks = self.sliced(layout)
                if op is None:  # an expert of the rank
                    experts = [n for n in ranks[rank] if ".expert." in n and n.endswith(".gate")]
                    op = sorted(experts)[0].split("/")[1]
                dtype, shape, data = ranks[rank][f"b4/{op}"]
                # The exponent of the first BF16 element moves by one.
                ranks[rank][f"b4/{op}"] = (dtype, shape, bytes([data[0], data[1] ^ 1]) + data[2:])
                first = self.of_ranks(ranks, layout)["first_divergence"]
                self.assertEqual((first["op"], first["rank"]), (op, rank))


if __name__ == "__main__":
    unittest.main()
