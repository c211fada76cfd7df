"""estimate, search, compare and sensitivity as their users call them."""
import json
import pathlib
import shlex
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

    # Between two GPUs whose constants could be borrowed nothing may jump: a faster part is never a slower step.
    def test_a_faster_part_is_never_slower(self):
        for flag, preset in (("--hbm", "h800-ep144-decode"), ("--peak", "h800-ep144-decode"), ("--nvlink", "h200-tp8")):
            factors = ("x1", "x1.1", "x1.2", "x1.4", "x1.8", "x2.5")
            times = [self.estimate("--preset", preset, flag, factor) for factor in factors]
            for slower, faster in zip(times, times[1:]):
                self.assertLessEqual(faster["tpot_ms"], slower["tpot_ms"], flag)
                self.assertLessEqual(faster["prompt_ms"], slower["prompt_ms"], flag)
                self.assertAlmostEqual(faster["tpot_high_ms"] / faster["tpot_ms"], slower["tpot_high_ms"] / slower["tpot_ms"], 6)

    def test_what_ifs_of_one_deployment(self):
        table = json.loads(self.output("sensitivity", "--preset", "h200-tp8", "--json"))["what_ifs"]
        rows = {row["flag"]: row for row in table}
        self.assertLess(rows["--hbm x1.4"]["tpot_change_pct"], 0)
        self.assertEqual(rows["--hbm x1.4"]["tpot_ms"], self.estimate("--preset", "h200-tp8", "--hbm", "x1.4")["tpot_ms"])
        wide = self.estimate("--preset", "h200-tp8", "--fp8-accumulation", "34bit")["tpot_ms"]
        self.assertEqual(rows["--fp8-accumulation 34bit"]["tpot_ms"], wide)
        self.refused(["estimate", "--fp8-accumulation", "16bit"], "--fp8-accumulation", "34bit")

    # Requests in the system = requests a second x the time that one spends in it (Little).
    def test_requests_and_their_time_agree(self):
        for flags in (["--preset", "h200-tp8"], ["--preset", "h800-ep32-prefill"], ["--gpu", "b200", "--layout", "dep8", "--bs", "16"]):
            row = self.estimate(*flags)
            workload = {"h200-tp8": (32, 1024), "h800-ep32-prefill": (8, 1)}.get(flags[1], (128, 1024))
            spent_s = (row["prompt_ms"] + workload[1] * row["tpot_ms"]) / 1e3
            self.assertAlmostEqual(row["requests_per_s"] * spent_s, workload[0], delta=1e-6 * workload[0])
            self.assertLessEqual(row["tpot_p50_ms"], row["tpot_p99_ms"])
        # One prompt a rank: nobody queues.
        row = self.estimate("--preset", "h800-ep32-prefill")
        self.assertAlmostEqual(row["ttft_ms"], row["prompt_ms"] + row["step_ms"], delta=1e-6 * row["ttft_ms"])

    def test_experts_8_ways_on_32_gpus_are_refused_with_all_buffers(self):
        self.refused(["estimate", "--preset", "h100-ep8-32gpus"], "weights and buffers take", "GPUs would hold it")

    def test_the_exchange_comes_out(self):
        row = self.estimate("--preset", "h100-ep72-decode")
        self.assertAlmostEqual(row["exchange_share_pct"], 100 * row["exchange_ms"] / row["step_ms"], delta=1e-9)
        self.assertLess(row["hidden_ms"], row["exchange_ms"])
        self.assertEqual(self.estimate("--preset", "h200-tp8")["exchange_ms"], 0)

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

    def test_a_trace_names_the_lanes_of_the_ranks(self):
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            self.output("trace", "--preset", "h100-ep72-decode", "--ranks", "0,71", "--out", file.name)
            events = json.loads(pathlib.Path(file.name).read_text())["traceEvents"]
        names = {event["args"]["name"] for event in events if event["ph"] == "M"}
        self.assertEqual(names, {"rank 0", "rank 71", "SM", "NVLink", "network", "host"})
        self.assertIn("dispatch", {event["name"] for event in events if event["ph"] == "X"})
        self.refused(["trace", "--preset", "h200-tp8", "--ranks", "8", "--out", "/dev/null"], "--ranks 8", "0 to 7")

    def test_a_step_log_corrects_the_engine(self):
        with tempfile.TemporaryDirectory() as folder:
            log, mine = folder + "/steps.csv", folder + "/mine.json"
            with open(log, "w") as file:
                file.write("sequences,context_tokens,step_ms\n1,1000,40\n8,1000,44\n32,4000,60\n64,4000,75\n")
            table = json.loads(self.output("calibrate", "--step-log", log, "--preset", "h200-tp8", "--out", mine, "--json"))
            errors = {row["constants"]: row["median_abs_error_pct"] for row in table["errors"]}
            self.assertLess(errors["after"], errors["before"])
            slow = self.estimate("--preset", "h200-tp8", "--engine", mine)
            self.assertGreater(slow["step_ms"], self.estimate("--preset", "h200-tp8")["step_ms"])
            self.refused(["estimate", "--engine", log], "steps.csv", "expected one of")

    def test_a_draft_at_its_break_even_changes_nothing(self):
        flags = ["--gpu", "h200", "--layout", "dep8", "--bs", "64", "--decode-only", "--json", "--table", "mtp"]
        rows = json.loads(self.output("estimate", "--mtp-acceptance", "0.85,0.7", *flags))["mtp"]
        self.assertEqual([row["depth"] for row in rows], [0, 1, 2])
        pays = rows[2]["break_even"]
        again = json.loads(self.output("estimate", "--mtp-acceptance", f"0.85,{pays}", *flags))["mtp"]
        self.assertAlmostEqual(again[2]["tpot_ms"], again[1]["tpot_ms"], delta=1e-9)

    def test_prompts_known_cut_and_unequal(self):
        flags = ["--preset", "h200-tp8"]
        whole = self.estimate(*flags)
        self.assertLess(self.estimate(*flags, "--prefix-hit", "0.5")["prompt_ms"], whole["prompt_ms"])
        self.assertEqual(self.estimate(*flags, "--prefill-chunk", "1048576")["prompt_ms"], whole["prompt_ms"])
        self.assertGreater(self.estimate(*flags, "--prefill-chunk", "512")["prompt_ms"], whole["prompt_ms"])
        self.assertGreater(self.estimate(*flags, "--isl-cv", "1")["prompt_ms"], whole["prompt_ms"])
        self.assertGreater(self.estimate(*flags, "--osl-cv", "1")["step_ms"], whole["step_ms"])
        rare = self.estimate(*flags, "--prefill-chunk", "512", "--steps-per-chunk", "100")
        self.assertIn("decode starves", rare["limit"])
        self.assertLess(rare["decode_sequences"], whole["decode_sequences"])

    def test_lengths_of_a_file_are_those_of_its_rows(self):
        with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
            file.write("prompt_tokens,answer_tokens\n" + "4096,1024\n" * 3)
            file.flush()
            self.assertEqual(self.estimate("--lengths", file.name), self.estimate("--isl", "4096", "--osl", "1024"))
            self.refused(["estimate", "--lengths", file.name, "--isl", "8"], "--isl")
            file.write("many,1\n")
            file.flush()
            self.refused(["estimate", "--lengths", file.name], ":5:", "prompt_tokens is 'many'")

    def test_old_statistics_cost_what_balancing_took_back(self):
        wide = ["--gpu", "h100", "--layout", "dep64", "--bs", "128", "--decode-only"]
        fresh = self.estimate(*wide, "--eplb")["step_ms"]
        old = self.estimate(*wide, "--eplb", "--stale", "0.5")["step_ms"]
        self.assertLess(fresh, old)
        self.refused(["estimate", *wide, "--eplb", "--stale", "2"], "--stale 2", "0 to 1")
        self.assertNotEqual(self.estimate(*wide, "--seed", "2")["step_ms"], self.estimate(*wide)["step_ms"])

    def test_a_preset_brings_its_skew(self):
        measured = self.estimate("--preset", "h800-ep128-decode")["step_ms"]
        self.assertEqual(self.estimate("--preset", "h800-ep128-decode", "--skew", "balanced")["step_ms"], measured)
        self.assertGreater(self.estimate("--preset", "h800-ep128-decode", "--skew", "lognormal:1.05")["step_ms"], measured)

    def test_one_domain_for_all_sends_nothing_over_the_network(self):
        flags = ["--preset", "h800-ep144-decode"]
        joined = self.estimate(*flags, "--nvlink-domain", "144")["step_ms"]
        self.assertLess(joined, self.estimate(*flags)["step_ms"])
        self.refused(["estimate", "--nvlink-domain", "0"], "--nvlink-domain 0")

    def test_a_table_answers_in_place_of_the_constants(self):
        header = "gpu,kernel,dtype,m,n,k,latency_us,source\n"
        row = "H100 80GB HBM3,sglang_deepgemm,fp8_block,{},18432,7168,{},made up\n"
        with tempfile.TemporaryDirectory() as folder:
            table = pathlib.Path(folder) / "gemm_dense.csv"
            table.write_text(header + row.format(16, 70) + row.format(64, 80) + row.format(1024, 300))
            ask = ["lookup", "--tables", folder, "--gpu", "h100", "--op", "gemm_fp8", "--json", "--at"]
            exact = json.loads(self.output(*ask, "n=18432,k=7168,m=64"))["lookup"]
            self.assertEqual((exact["time_us"], exact["how"], exact["source"]), (80, "exact row", "gemm_dense.csv:3: the row itself"))
            between = json.loads(self.output(*ask, "m=32,n=18432,k=7168"))["lookup"]
            self.assertEqual(between["how"], "interpolated")
            self.assertTrue(70 < between["time_us"] < 80)
            self.assertEqual(json.loads(self.output(*ask, "m=8,n=18432,k=7168"))["lookup"]["how"], "held at the edge")
            self.refused([*ask, "m=8,n=18432"], "expected n=, k=, m=")
            self.refused([*ask[:5], "--op", "mystery", "--at", "m=1"], "gemm_fp8, gemm_bf16")
            self.refused(["lookup", "--tables", folder, "--gpu", "h200", *ask[5:], "n=1,k=1,m=1"], "no row of gemm_fp8 on h200")
            explained = json.loads(self.output("explain", "--gpu", "h100", "--layout", "tp2dp8ep16", "--bs", "16", "--decode-only",
                                               "--timing-tables", folder, "--json", "--table", "decode_step"))["decode_step"]
            dense = [line for line in explained if line["part"] == "dense layers"]
            self.assertEqual(dense[0]["each_us"], 70)  # gate and up of one of two TP ranks: 2 x 18432 / 2 columns, 16 rows
            self.assertIn("gemm_dense.csv:2: the row itself", dense[0]["source"])
            self.assertIn("fit on", next(line for line in explained if line["part"] == "experts")["source"])

    def test_the_pasted_examples_are_what_the_program_prints(self):
        for command in ("estimate", "explain", "search", "compare", "sensitivity"):
            text = self.output(command, "--help").split("Example:\n  $ dsv3-sim ")[1].rstrip("\n").splitlines()
            printed = self.output(*shlex.split(text[0])).splitlines()
            self.assertEqual([line[2:] for line in text[1:]], printed, command)

    def test_the_pipeline_example_is_what_the_program_prints(self):
        text = self.output("pipeline", "--help").split("Example:\n  $ dsv3-sim ")[1].splitlines()
        printed = self.output(*text[0].split()).splitlines()
        self.assertEqual([line.strip() for line in text[1:] if line.strip()], [line.strip() for line in printed])
        self.refused(["pipeline", "--micro-batches", "0"], "0 micro-batches")
        self.refused(["pipeline", "--weight", "2"], "--weight 2", "less than --backward 2")

    # Spellings of other tables, a rack that is one worker, and drafts where a row says so.
    def test_end_to_end_rows_are_read_as_they_come(self):
        header = ("id,system,backend,precision,mode,isl_tokens,osl_tokens,concurrency,tp_size,attention_dp_size,moe_ep_size,moe_tp_size,"
                  "tpot_ms,mtp_status,encoding_flag")
        rows = ["a,H100 80GB HBM3,SGLang,FP8_block,agg,1024,1024,64,16,16,16,1,30,off,",
                "b,h20_sxm,vllm_v1,fp8,agg,1024,1024,16,8,1,1,8,30,,",
                "c,gb200,sglang,fp8,agg,1024,1024,2048,72,1,1,72,30,,tp_size field inconsistent with 8-GPU node",
                "d,h200,sglang,fp8,agg,1024,1024,16,8,1,1,8,30,on,",
                "e,h200,sglang,fp8,agg,1024,1024,16,8,1,1,8,30,off,",
                "f,h200,sglang,nvfp4,agg,1024,1024,16,8,1,1,8,30,off,"]
        with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
            file.write("\n".join([header, *rows]) + "\n")
            file.flush()
            document = json.loads(self.output("validate", "--silicon", file.name, "--json"))
            each = {row["id"]: row for row in document["each_row"]}
            self.assertEqual([each[i]["gpu"] for i in "abcd"], ["h100", "h20", "gb200-nvl72", "h200"])
            self.assertEqual([each[i]["backend"] for i in "ab"], ["sglang", "vllm"])
            self.assertEqual([each[i]["layout"] for i in "ac"], ["tp1 pp1 dp16 ep16", "tp1 pp1 dp72 ep72"])
            self.assertLess(each["d"]["predicted_ms"], each["e"]["predicted_ms"])
            self.assertEqual(document["rows"], 5)
            file.write("g,mi300x,sglang,fp8,agg,1024,1024,16,8,1,1,8,30,off,\n")
            file.flush()
            self.refused(["validate", "--silicon", file.name], ":8:", "mi300x", "h200_sxm")

    def test_bad_input_is_one_line(self):
        self.refused(["estimate", "--prefix-hit", "1"], "--prefix-hit 1", "0 to 0.99")
        self.refused(["estimate", "--prefill-chunk", "1"], "--prefill-chunk 1", "16 to")
        self.refused(["estimate", "--bs", "-4"], "--bs -4")
        self.refused(["estimate", "--gpu", "h300"], "h300", "a100, b200")
        self.refused(["estimate", "--gpu", "h200", "--layout", "tp2"], "GPUs would hold it")
        self.refused(["estimate", "--layout", "dep48"], "--redundant-experts 32 would")
        self.refused(["estimate", "--nic", "fast"], "--nic fast", "800G")
        self.refused(["estimate", "--skew", "zipf"], "zipf", "lognormal")
        self.refused(["search", "--gpus", "2"], "no layout of 2 GPUs", "8 GPUs would")
        self.refused(["search", "--gpus", "64", "--gpu", "h200", "--tpot", "0.01"], "closest is")
        self.refused(["compare", "h200-tp8", "nothing"], "nothing", "h200-tp8")
        with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
            file.write("system,backend,mode,isl_tokens,osl_tokens,concurrency,tpot_ms\nh200,sglang,agg,1024,1024,many,9\n")
            file.flush()
            self.refused(["validate", "--silicon", file.name], ":2:", "concurrency is 'many'", "expected a number")


if __name__ == "__main__":
    unittest.main()
