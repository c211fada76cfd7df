"""The loop of measuring and predicting on this machine: dsv3-bench -> dsv3-sim calibrate -> predictions for a second run of the bench.

What it shows: the errors that calibrate states, of rows left out of its fit, are those that a later run meets. What it does not show: that
one fixed time and one roofline describe a CPU well, whose kernels change with the number of tokens; how well they do is what is printed."""
import json
import math
import pathlib
import statistics
import tempfile
import unittest

from inputs import MINI, output, records

DTYPES = {"gemm_fp8": "F8_E4M3", "gemm_bf16": "BF16"}


def fewest_covered(rows, share, chance):
    """The largest count that a binomial of `share` stays below with at most `chance`."""
    below = 0.0
    for count in range(rows + 1):
        below += math.comb(rows, count) * share ** count * (1 - share) ** (rows - count)
        if below > chance:
            return count
    raise AssertionError("chance is not below 1")


def predicted_us(row, constants, hardware):
    """docs/simulator.md, families of linears: fixed + the 3-norm of reading and multiplying, at fractions of the peaks. A CPU has no FP8
    arithmetic: its products are at the BF16 peak in either family."""
    read_us = (int(row["weight_bytes"]) + int(row["activation_bytes"])) / (hardware["memory_gb_per_s"]["value"] * 1e3 * constants["memory"])
    multiply_us = int(row["flops"]) / (hardware["bf16_dense_tflops"]["value"] * 1e6 * constants["math"])
    return constants["fixed_us"] + (read_us ** 3 + multiply_us ** 3) ** (1 / 3)


class LoopTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        output("dsv3-bench", "host", "--min-time", 0.1, "--hardware", cls.folder / "cpu.json")
        for name in ("first.csv", "second.csv"):
            output("dsv3-bench", "reference", "--filter", "v3 attn", "--min-time", 0.01, "--repetitions", 3, "--out", cls.folder / name)
        cls.table = json.loads(output("dsv3-sim", "calibrate", "--records", cls.folder / "first.csv", "--system", cls.folder / "cpu.json",
                                      "--out", cls.folder / "fitted.json", "--json"))["ops"]

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def test_stated_errors_hold_for_a_second_run(self):
        hardware = json.loads((self.folder / "cpu.json").read_text())
        fitted = json.loads((self.folder / "fitted.json").read_text())
        # A hardware file goes by its stem.
        constants_of = next(item for name, item in fitted.items() if name.endswith("cpu") or name.endswith("cpu.json"))
        self.assertEqual({row["family"] for row in self.table}, set(DTYPES))
        for row in self.table:
            constants = constants_of[row["family"]]
            stated = {"median": row["median_abs_error_pct"] / 100, "p90": row["p90_abs_error_pct"] / 100}
            runs = [{(r["op"], r["tokens"]): r for r in records(self.folder / name)
                     if r["dtype"] == DTYPES[row["family"]] and r["op"].startswith("bench.")} for name in ("first.csv", "second.csv")]
            self.assertEqual(set(runs[0]), set(runs[1]))
            self.assertGreaterEqual(len(runs[0]), 16)
            # Others on the machine make a whole run slower: what all rows have in common is not the model's.
            changes = {key: float(again["time_us"]) / float(runs[0][key]["time_us"]) for key, again in runs[1].items()}
            slower = statistics.median(changes.values())
            noise = [abs(math.log(change / slower)) for change in changes.values()]
            errors = [abs(slower * predicted_us(again, constants, hardware) / float(again["time_us"]) - 1) for again in runs[1].values()]
            # The error stated for the model and what a row moves by from run to run are independent: their squares add.
            limit = math.hypot(stated["p90"], statistics.quantiles(noise, n=10)[-1])
            covered = sum(error <= limit for error in errors)
            print(f"{row['family']}: {len(errors)} rows; stated error {stated['median']:.0%} median, {stated['p90']:.0%} p90; met in a second "
                  f"run {statistics.median(errors):.0%} median; that run {slower - 1:+.0%} as a whole, rows {statistics.median(noise):.0%} apart "
                  f"beyond it; {covered} within {limit:.0%}")
            # 90 % of rows are within that, if it is true; once in 1000 runs of the test fewer than this would be.
            self.assertGreaterEqual(covered, fewest_covered(len(errors), 0.9, 1e-3))
            # A row's error moves by as much as its time did; nine in ten moved by less than this.
            self.assertLessEqual(statistics.median(errors), stated["median"] + statistics.quantiles(noise, n=10)[-1])

    def test_an_estimate_for_the_machine_takes_the_fitted_constants(self):
        parts = json.loads(output("dsv3-sim", "explain", "--system", self.folder / "cpu.json", "--calibration", self.folder / "fitted.json",
                                  "--layout", "tp1", "--bs", 1, "--isl", 16, "--osl", 16, "--decode-only", "--model",
                                  MINI / "checkpoint", "--json"))
        dense = next(row for row in parts["decode_step"] if row["part"] == "dense layers")
        self.assertIn("fit on cpu: op records of linears", dense["source"])


if __name__ == "__main__":
    unittest.main()
