"""estimate, search, compare and sensitivity as their users call them."""
import json
import tempfile
import unittest

from sim_program import SimTestCase


class PlanningTest(SimTestCase):
    def estimate(self, *flags):
        return json.loads(self.output("estimate", "--json", "--table", "estimate", *flags))["estimate"]

    def test_explain_adds_up(self):
        for preset in ("h200-tp8", "h100-ep72-decode"):
            rows = json.loads(self.output("explain", "--preset", preset, "--json", "--table", "decode_step"))["decode_step"]
            leaves = sum(row["total_ms"] for row in rows[:-1])
            self.assertAlmostEqual(leaves, rows[-1]["total_ms"], delta=1e-12 * leaves)

    # Without redundant experts: with them, copies of some of 256 equal experts would make equal loads unequal.
    def test_skew_costs_time_and_balancing_takes_some_back(self):
        wide = ["--gpu", "h100", "--layout", "dep64", "--bs", "128", "--decode-only"]
        even = self.estimate(*wide, "--skew", "balanced")["step_ms"]
        placed = self.estimate(*wide, "--eplb")["step_ms"]
        skewed = self.estimate(*wide)["step_ms"]
        self.assertLess(even, placed)
        self.assertLess(placed, skewed)

    def test_quantiles_of_a_step_are_in_order(self):
        row = self.estimate("--preset", "h100-ep72-decode")
        self.assertLessEqual(row["step_p50_ms"], row["step_p90_ms"])
        self.assertLessEqual(row["step_p90_ms"], row["step_p99_ms"])
        self.assertLessEqual(abs(row["step_p50_ms"] / row["step_ms"] - 1), 0.05)

    def test_hardware_what_ifs(self):
        base = self.estimate("--preset", "h100-ep72-decode")["step_ms"]
        for flags in (["--hbm", "x1.4"], ["--nvlink", "x2"], ["--nic", "800G"]):
            self.assertLessEqual(self.estimate("--preset", "h100-ep72-decode", *flags)["step_ms"], base)
        self.assertGreaterEqual(self.estimate("--preset", "h100-ep72-decode", "--comm-sms", "20")["step_ms"], base)

    def test_search_prints_a_plot_a_table_and_a_command(self):
        flags = ["search", "--gpu", "h200", "--gpus", "64", "--decode-only"]
        text = self.output(*flags, "--price", "2")
        self.assertIn("tokens/s a user", text)
        self.assertIn("$ for a million", text)
        rows = json.loads(self.output(*flags, "--json"))["pareto"]
        self.assertGreaterEqual(len(rows), 3)
        self.assertIn("--tp-size", self.output(*flags, "--emit", "sglang"))

    def test_compare_shows_what_differs(self):
        document = json.loads(self.output("compare", "h200-tp8", "h200-tp8 --hbm x2", "--json"))
        parts = {row["part"]: row for row in document["parts"]}
        self.assertLess(parts["ffn: experts"]["b_ms"], parts["ffn: experts"]["a_ms"])
        self.assertNotIn("engine: host", parts)

    def test_bad_input_is_one_line(self):
        self.refused(["estimate", "--bs", "-4"], "--bs -4")
        self.refused(["estimate", "--gpu", "h300"], "h300", "a100, b200")
        self.refused(["estimate", "--gpu", "h200", "--layout", "tp2"], "GPUs would hold it")
        self.refused(["estimate", "--layout", "dep48"], "--redundant-experts 32 would")
        self.refused(["estimate", "--nic", "fast"], "--nic fast", "800G")
        self.refused(["estimate", "--skew", "zipf"], "zipf", "lognormal")
        self.refused(["search", "--gpus", "2"], "no layout of 2 GPUs")
        self.refused(["search", "--gpus", "64", "--gpu", "h200", "--tpot", "0.01"], "closest is")
        self.refused(["compare", "h200-tp8", "nothing"], "nothing", "h200-tp8")
        with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
            file.write("system,backend,mode,isl_tokens,osl_tokens,concurrency,tpot_ms\nh200,sglang,agg,1024,1024,many,9\n")
            file.flush()
            self.refused(["validate", "--silicon", file.name], ":2:", "concurrency is 'many'", "expected a number")


if __name__ == "__main__":
    unittest.main()
