"""dsv3-sim skew, alltoall and validate as their users call them."""
import csv
import io
import json
import pathlib
import tempfile
import unittest

from sim_program import SimTestCase


class MoeTest(SimTestCase):
    def test_the_pasted_examples_are_what_the_program_prints(self):
        for command in ("skew", "alltoall"):
            text = self.output(command, "--help")
            example = text[text.index("Example:\n  $ ") + len("Example:\n  $ "):].splitlines()
            lines = [line[2:] for line in example[1:] if line.startswith("  ")]
            self.assertEqual(self.output(*example[0].split()[1:]).splitlines(), lines)

    def test_the_seed_decides(self):
        arguments = ("skew", "--ep", 16, "--batch", 16, "--steps", 5, "--csv", "--seed")
        self.assertEqual(self.output(*arguments, 3), self.output(*arguments, 3))
        self.assertNotEqual(self.output(*arguments, 3), self.output(*arguments, 4))

    def test_json_has_rows_with_units_in_the_names(self):
        rows = json.loads(self.output("alltoall", "--ep", "32,64", "--tokens", 128, "--samples", 20, "--json"))["alltoall"]
        self.assertEqual([row["ep"] for row in rows], [32, 64])
        # DeepEP low latency at 128 tokens a rank on H100: 143 and 167 us dispatch, 263 and 305 us combine (aiconfigurator's table).
        for row, dispatch, combine in zip(rows, (143, 166.8), (263.3, 304.7)):
            self.assertAlmostEqual(row["dispatch_us"], dispatch, delta=0.05 * dispatch)
            self.assertAlmostEqual(row["combine_us"], combine, delta=0.05 * combine)
            self.assertLess(row["dispatch_us"], row["dispatch_us_p50"])
            self.assertLessEqual(row["dispatch_us_p50"], row["dispatch_us_p99"])

    def test_matrix_of_four_ranks_conserves_bytes(self):
        document = json.loads(self.output("alltoall", "--matrix", "--ep", 4, "--tokens", 2, "--experts", 8, "--top-k", 2, "--json"))
        self.assertEqual(len(document["tokens"]), 8)
        self.assertEqual(sum(row[f"to_{to}"] for row in document["matrix"] for to in range(4)), 16)
        ranks = document["ranks"]
        self.assertEqual(sum(row["dispatch_bytes_sent"] for row in ranks), sum(row["dispatch_bytes_received"] for row in ranks))

    def test_a_trace_is_replayed_exactly(self):
        with tempfile.TemporaryDirectory() as folder:
            trace = pathlib.Path(folder) / "trace.csv"
            trace.write_text("layer,token,rank,expert\n3,0,0,0\n3,0,0,200\n3,1,1,255\n3,1,1,1\n")
            ranks = json.loads(self.output("alltoall", "--trace", trace, "--ep", 2, "--json"))["ranks"]
            self.assertEqual([row["dispatch_bytes_sent"] for row in ranks], [7392, 7392])
            self.assertEqual([row["rows"] for row in ranks], [2, 2])
            self.refused(("alltoall", "--trace", trace, "--layer", 9), "no layer 9")

    def test_placements_are_written_whole(self):
        with tempfile.TemporaryDirectory() as folder:
            sglang = pathlib.Path(folder) / "sglang.json"
            vllm = pathlib.Path(folder) / "vllm.json"
            self.output("skew", "--ep", 32, "--batch", 32, "--steps", 1, "--write-sglang", sglang, "--write-vllm", vllm)
            slots = json.loads(sglang.read_text())["physical_to_logical_map"]
            self.assertEqual([len(slots), len(slots[0])], [61, 288])
            self.assertTrue(all(set(layer) == set(range(256)) for layer in slots))
            layers = json.loads(vllm.read_text())
            self.assertEqual([layers["moe_layer_count"], layers["layer_list"][0]["device_count"]], [58, 32])
            self.assertEqual(layers["layer_list"][5]["device_list"][1]["device_expert"], slots[8][9:18])

    def test_validate_prints_rows_and_summary(self):
        with tempfile.TemporaryDirectory() as folder:
            table = pathlib.Path(folder) / "table.csv"
            table.write_text("gpu,num_nodes,ep_size,tokens_per_rank,hidden,topk,num_experts,dispatch_latency_us,combine_latency_us,notes\n"
                             "H100 80GB HBM3,4,32,128,7168,8,256,143,263.3,\nH200,1,8,128,7168,8,256,35.12,67.75,\n")
            document = json.loads(self.output("validate", "--alltoall", table, "--json"))
            self.assertEqual(document["rows"], 4)
            for key in ("rows", "median_abs_error_pct", "p90_abs_error_pct", "bias_pct", "coverage_90_pct"):
                self.assertEqual(document[key], document["summary"][key])
            self.assertLess(document["median_abs_error_pct"], 5)
            rows = list(csv.DictReader(io.StringIO(self.output("validate", "--alltoall", table, "--csv", "--table", "each_row"))))
            self.assertEqual([row["phase"] for row in rows], ["dispatch", "combine"] * 2)
            self.assertTrue(all(float(row["low_us"]) < float(row["predicted_us"]) < float(row["high_us"]) for row in rows))

    def test_bad_input_says_what_would_work(self):
        self.refused(("skew", "--ep", 48), "--redundant-experts 32", "--pad")
        self.refused(("skew", "--ep", 32, "--redundant-experts", 5), "32 ranks", "redundant")
        self.refused(("skew", "--skew", "zipf:1"), "lognormal:SIGMA")
        self.refused(("skew", "--model", "llama-3-8b"), "dense")
        self.refused(("skew", "--batch", "-1"), "--batch -1")
        self.refused(("alltoall", "--system", "h99"), "h100")
        self.refused(("alltoall", "--backend", "nvlink-one-sided", "--ep", 16), "deepep-ll")
        self.refused(("alltoall", "--backend", "deepep"), "deepep-normal")
        self.refused(("validate", "--alltoall", "nowhere.csv"), "nowhere.csv")


if __name__ == "__main__":
    unittest.main()
