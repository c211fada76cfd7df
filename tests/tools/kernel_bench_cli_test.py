"""dsv3-bench kernels: what launches have to move, from the shapes of DeepSeek-V3 by hand, and what is refused."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

BIN = pathlib.Path(os.environ["DSV3_BIN_DIR"])

HIDDEN = 7168
HEADS = 128
NOPE, ROPE, V = 128, 64, 128
LATENT = 512


def bench(*arguments):
    return subprocess.run([BIN / "dsv3-bench", "kernels", *map(str, arguments)], capture_output=True, text=True, timeout=60)


class KernelBenchTest(unittest.TestCase):
    def rows(self, *arguments):
        result = bench("--json", *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        out = json.loads(result.stdout)
        self.assertEqual(out["device"], "emulated")
        return out["rows"]

    def row(self, op, *arguments):
        rows = [row for row in self.rows("--filter", op, *arguments) if row["op"] == op]
        self.assertEqual(len(rows), 1)
        self.assertNotIn("time_us", rows[0])  # the emulation's time is nobody's
        return rows[0]

    def test_the_norm_moves_each_tensor_once(self):
        row = self.row("attn_norm", "--tokens", 4)
        gain = 2 * HIDDEN
        self.assertEqual(row["minimum_bytes"], 4 * HIDDEN * (2 + 2 + 2 + 1) + 4 * HIDDEN // 128 * 4 + gain)
        self.assertEqual(row["ratio"], 1)

    def test_one_row_for_each_number_of_tokens(self):
        rows = self.rows("--filter", "attn.q_rope", "--tokens", "1,3")
        self.assertEqual([row["tokens"] for row in rows], [1, 3])
        self.assertEqual(rows[0]["minimum_bytes"] * 3, rows[1]["minimum_bytes"])

    def test_flops_and_weights_of_a_linear(self):
        row = self.row("attn.kv_a", "--tokens", 2)
        out_dim = LATENT + ROPE
        self.assertEqual(row["flops"], 2 * 2 * out_dim * HIDDEN)
        weight = out_dim * HIDDEN + 4 * 5 * HIDDEN // 128  # 576 rows lie in 5 blocks of 128
        moved = 2 * HIDDEN + 4 * 2 * HIDDEN // 128 + 2 * 2 * out_dim
        self.assertEqual(row["minimum_bytes"], weight + moved)

    def test_prefill_reads_expanded_keys(self):
        tokens = 4
        row = self.row("attn.lse+context", "--preset", "prefill", "--tokens", tokens)
        pairs = tokens * (tokens + 1) // 2
        self.assertEqual(row["flops"], 2 * pairs * HEADS * (NOPE + ROPE + V))
        moved = 2 * (HEADS * (NOPE + ROPE + NOPE + V + V) + ROPE) + 4 * HEADS
        self.assertEqual(row["minimum_bytes"], tokens * moved + 4 * 6)
        self.assertIsNone(row["bar"])

    def refused(self, *arguments, says):
        result = bench(*arguments)
        self.assertEqual(result.returncode, 2)
        self.assertEqual(len(result.stderr.strip().splitlines()), 1, result.stderr)
        for word in says:
            self.assertIn(word, result.stderr)

    def test_refusals(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "kernels.csv"
            self.refused("--out", out, says=["--out", "times", "--device cuda"])
            self.assertFalse(out.exists())
        self.refused("--filter", "nonsense", says=["nonsense"])
        self.refused("--preset", "training", says=["--preset"])
        self.refused("--tokens", "1,0", says=["--tokens"])

    def test_without_a_gpu_there_are_no_times(self):
        result = bench("--device", "cuda", "--filter", "attn_norm")
        if result.returncode == 0:
            self.skipTest("there is a GPU")
        self.assertEqual(result.returncode, 2)
        self.assertIn("--device cuda", result.stderr)
        self.assertIn("--device emulated", result.stderr)


if __name__ == "__main__":
    unittest.main()
