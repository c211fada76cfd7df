"""dsv3-verify score: every fault at its op, no legal run called faulty, and the same in both outputs."""
import json
import os
import pathlib
import subprocess
import unittest

BIN = pathlib.Path(os.environ["DSV3_BIN_DIR"])


def score(*arguments):
    return subprocess.run([BIN / "dsv3-verify", "score", *arguments], capture_output=True, text=True, timeout=600)


class ScoreCliTest(unittest.TestCase):
    def test_every_fault_is_found_at_its_op_and_no_legal_run_is_blamed(self):
        result = score("--legal", "12", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        report = json.loads(result.stdout)
        listed = subprocess.run([BIN / "dsv3-golden", "faults", "--json"], capture_output=True, text=True, check=True)
        self.assertEqual([f["id"] for f in report["faults"]], [f["id"] for f in json.loads(listed.stdout)])
        self.assertEqual({f["ours"] for f in report["faults"]}, {"at its op"})
        self.assertEqual([(row["runs"], row["ours"]) for row in report["legal"]], [(12, 0), (12, 0)])
        # No bound is loose, and no legal run leaves one.
        self.assertGreater(len(report["bounds"]), 20)
        for kind, bound in report["bounds"].items():
            if bound["elements"] > 0:
                self.assertGreaterEqual(bound["largest_use"], 1 / 50, kind)
                self.assertLessEqual(bound["largest_use"], 1, kind)
        # None of the figures in use elsewhere finds them all at their ops.
        for name in report["metrics"]:
            self.assertLess(report["totals"][name]["right_op"], len(report["faults"]), name)

    def test_the_table_names_each_fault(self):
        result = score("--legal", "0")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("bb-02   layer.*.moe.topk_weights", result.stdout)
        self.assertRegex(result.stdout, r"ours +(\d+) +\1 ")


if __name__ == "__main__":
    unittest.main()
