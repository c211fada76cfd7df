"""dsv3-report and the writers of op records as their users call them."""
import csv
import json
import pathlib
import tempfile
import unittest

from inputs import COLUMNS, MINI, Inputs, output, records, run, verdict


class ReportTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        cls.inputs = Inputs(cls.folder)
        cls.page = cls.inputs.page("--csv", cls.folder / "joined.csv", "--trace", cls.folder / "trace.json")
        cls.summary = cls.inputs.printed.stdout
        text = cls.page.read_text()
        cls.data = json.loads(text.split('id="data">', 1)[1].split("</script>", 1)[0])

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def refused(self, arguments, *fragments):
        """Exit 2, no output file, one line on stderr that names what is wrong."""
        out = self.folder / "refused.html"
        result = run("dsv3-report", *arguments, "--out", out)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertEqual(result.stdout, "")
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        self.assertFalse(out.exists())
        for fragment in fragments:
            self.assertIn(str(fragment), result.stderr)

    def file(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return path

    def scenario(self, words):
        return next(item for item in self.data["scenarios"] if words in item["title"])

    def test_the_page_stands_alone(self):
        text = self.page.read_text()
        self.assertLess(len(text), 3_000_000)
        for mark in ("http:", "https:", "src=", "@import", "url("):
            outside = text.split('id="data">')[0] + text.split("</script>", 1)[1]
            self.assertNotIn(mark, outside.replace("http://www.w3.org/2000/svg", ""))
        self.assertNotIn("<b>no markup", text)

    def test_a_traced_decode_step_has_every_op_of_the_walk_but_the_cache(self):
        walked = json.loads(output("dsv3-sim", "walk", "--model", MINI / "checkpoint", "--gpu", "h200", "--tp", 1, "--bs", 1, "--isl",
                                   15, "--json", "--table", "walk"))["walk"]
        expected = {row["op"]: row for row in walked if not row["op"].startswith("cache.") and not row["op"].endswith(".lse")}
        decode = {row["op"]: row for row in records(self.inputs.mini) if row["phase"] == "decode"}
        self.assertEqual(set(decode), set(expected))
        for op, row in decode.items():
            self.assertEqual(int(row["repetitions"]), 15)
            self.assertEqual(row["source"], "reference")
            self.assertGreater(float(row["time_us"]), 0)
            self.assertLessEqual(float(row["time_us_p10"]), float(row["time_us"]))
            self.assertLessEqual(float(row["time_us"]), float(row["time_us_p90"]))
            self.assertEqual(int(row["flops"]), expected[op].get("rank_flops", 0), op)
        # Of 16 experts one token reads four.
        gate = decode["layer.1.moe.expert.*.gate"]
        self.assertEqual(4 * int(gate["weight_bytes"]), next(r for r in walked if r["op"] == gate["op"])["global_weight_bytes"])

    def test_records_of_a_model_and_of_its_checkpoint_have_one_config(self):
        path = self.folder / "mini_sim.csv"
        output("dsv3-sim", "explain", "--model", MINI / "checkpoint", "--gpu", "h200", "--layout", "tp1", "--bs", 1, "--isl", 8, "--osl",
               16, "--decode-only", "--records", path)
        self.assertEqual({row["config_hash"] for row in records(path)}, {row["config_hash"] for row in records(self.inputs.mini)})
        # 8 prompt tokens and 15 steps: the middle one has 15 in the cache, as has the mean of the simulated answer.
        page = self.folder / "joined.html"
        output("dsv3-report", "--records", self.inputs.mini, path, "--out", page)
        data = json.loads(page.read_text().split('id="data">', 1)[1].split("</script>", 1)[0])
        joined = next(item for item in data["scenarios"] if item["phase"] == "decode")
        self.assertEqual([series["source"] for series in joined["series"]], ["reference", "simulated", "limit"])
        for ratio in joined["ratios"]:
            self.assertEqual(joined["series"][ratio["above"]]["clock"], joined["series"][ratio["below"]]["clock"])

    def test_sums_of_the_page_are_those_of_the_records(self):
        # Of the measured run the slowest rank counts, which is rank 1 in every op.
        slowest = [row for row in records(self.inputs.cuda) if row["rank"] == "1"]
        for rows, words in ((records(self.inputs.v3) + slowest, "8 x h200"), (records(self.inputs.wide), "32 x h800")):
            scenario = self.scenario(words)
            for series in scenario["series"]:
                total = sum(float(row["time_us"]) for row in rows if row["source"] == series["source"])
                self.assertAlmostEqual(series["total"] / total, 1, delta=1e-5)
                self.assertAlmostEqual(sum(series["phases"]) / total, 1, delta=1e-4)
            for s in range(len(scenario["series"])):
                journey = sum(row["us"][s] or 0 for row in scenario["journey"])
                self.assertAlmostEqual(journey / scenario["series"][s]["total"], 1, delta=1e-4)

    def test_skew_costs_where_experts_are_spread(self):
        waiting = self.data["phases"].index("waiting")
        self.assertGreater(self.scenario("32 x h800")["series"][0]["phases"][waiting], 0)
        self.assertEqual(self.scenario("8 x h200")["series"][0]["phases"][waiting], 0)

    def test_a_slow_layer_stands_out(self):
        layers = self.scenario("8 x h200")["findings"]["layers"]
        self.assertEqual([row["layer"] for row in layers], [40])
        self.assertAlmostEqual(layers[0]["more"] / layers[0]["us"], 2 / 3, delta=1e-3)

    def test_the_verdict_joins_its_own_model_only(self):
        self.assertTrue(self.scenario("on a CPU")["verified"])
        self.assertFalse(self.scenario("8 x h200")["verified"])

    def test_a_verdict_joins_by_the_config_it_names(self):
        own = records(self.inputs.mini)[0]["config_hash"]
        for config_hash, is_joined in ((own, True), ("0" * 16, False)):
            path = self.file("named.json", json.dumps({**verdict(), "config_hash": config_hash}))
            page = self.folder / "named.html"
            printed = run("dsv3-report", "--records", self.inputs.mini, "--verify", path, "--out", page)
            data = json.loads(page.read_text().split('id="data">', 1)[1].split("</script>", 1)[0])
            self.assertEqual(any(scenario["verified"] for scenario in data["scenarios"]), is_joined)
            self.assertEqual("another model" in printed.stderr, not is_joined)

    def test_findings_about_simulated_times_are_of_modules(self):
        found = self.scenario("32 x h800")["findings"]
        self.assertTrue(all(row["op"] == row["phase"] for row in found["costs"]))
        self.assertEqual({row["op"] for row in found["costs"]} - set(self.data["phases"]), set())

    def test_the_summary_is_short_and_answers(self):
        lines = self.summary.splitlines()
        self.assertLessEqual(len(lines), 5)
        self.assertIn("pass against profile v32", lines[0])
        self.assertIn("simulated / limit", self.summary)

    def test_joined_csv_has_every_time(self):
        with open(self.folder / "joined.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        times = sum(1 for name in (self.inputs.v3, self.inputs.wide, self.inputs.cuda) for row in records(name)
                    if row["source"] != "cuda" or row["rank"] == "1")
        self.assertEqual(sum(1 for row in rows if " x h" in row["scenario"]), times)

    def test_the_trace_has_a_process_a_series(self):
        events = json.loads((self.folder / "trace.json").read_text())["traceEvents"]
        names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
        self.assertEqual(len(names), sum(len(item["series"]) for item in self.data["scenarios"]))
        ends = {}
        for event in events:
            if event["ph"] == "X":
                self.assertAlmostEqual(event["ts"], ends.get(event["pid"], 0), delta=1e-6)
                ends[event["pid"]] = event["ts"] + event["dur"]

    def test_a_slower_run_is_seen(self):
        def row(op, time_us, p10, p90):
            return f"{op},linear,0,decode,0,1,1,100,BF16,1,1,1,0,0,{time_us},{p10},{p90},100,cuda,h200,,c0,abc"
        old = self.file("old.csv", "\n".join([COLUMNS, row("layer.0.attn.q_a", 10, 9.8, 10.2), row("layer.0.attn.q_b", 10, 9.8, 10.2)]) + "\n")
        new = self.file("new.csv", "\n".join([COLUMNS, row("layer.0.attn.q_a", 12, 11.8, 12.2), row("layer.0.attn.q_b", 10.05, 9.8, 10.2)]) + "\n")
        page = self.folder / "regression.html"
        output("dsv3-report", "--records", new, "--baseline", old, "--out", page)
        data = json.loads(page.read_text().split('id="data">', 1)[1].split("</script>", 1)[0])
        self.assertEqual((data["regression"]["slower"], data["regression"]["same"]), (1, 1))
        self.assertEqual(data["regression"]["ops"][0][0], "layer.0.attn.q_a")

    def test_bad_input_is_one_line(self):
        v3 = self.inputs.v3
        self.refused(["--records", "nowhere.csv"], "nowhere.csv")
        self.refused(["--records", self.file("empty.csv", COLUMNS + "\n")], "empty.csv", "no op records")
        self.refused(["--records", self.file("bad.csv", COLUMNS.replace("time_us,", "time_ms,", 1) + "\n")], "bad.csv", "time_ms")
        self.refused(["--records", self.file("row.csv", COLUMNS + "\nembed,embed,-1,decode\n")], "row.csv")
        self.refused(["--records", v3, "--verify", self.inputs.sim[0]], "no verdict", "dsv3-verify --json")
        self.refused(["--records", v3, "--verify", self.file("v.json", '{"verdict": "maybe", "ops": []}')], "v.json", "pass, fail or undecided")
        broken = verdict()
        broken["ops"][3]["status"] = "fine"
        self.refused(["--records", v3, "--verify", self.file("w.json", json.dumps(broken))], "ops[3].status")
        self.refused(["--records", v3, "--sim", self.inputs.verdict], "no table", "dsv3-sim --json")
        self.refused(["--records", v3, "--sim", self.file("m.json", '{"memory": [{"item": "x"}]}')], "memory[0]", "bytes")
        self.refused(["--records", self.inputs.mini, "--gpu", "h300"], "h300")
        result = run("dsv3-report", "--records", v3)
        self.assertEqual(result.returncode, 2)
        self.assertIn("--out", result.stderr)

    def test_mixed_input_is_noticed(self):
        doubled = self.file("doubled.csv", self.inputs.v3.read_text() + self.inputs.v3.read_text().split("commit\n", 1)[1])
        result = run("dsv3-report", "--records", doubled, "--out", self.folder / "doubled.html")
        self.assertEqual(result.returncode, 0)
        self.assertIn("repeat an op and rank", result.stderr)
        self.assertTrue(any("models" in notice["text"] for notice in self.data["notices"]))


if __name__ == "__main__":
    unittest.main()
