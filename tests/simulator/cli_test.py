"""dsv3-sim as its users call it: exit codes, one clear line for bad input, JSON and CSV that parse, help that is true."""
import csv
import io
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

PROGRAM = pathlib.Path(os.environ["DSV3_BIN_DIR"]) / "dsv3-sim"
ROOT = pathlib.Path(os.environ["DSV3_SOURCE_DIR"])


def run(*arguments):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=60)


class SimTest(unittest.TestCase):
    def output(self, *arguments):
        result = run(*arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def refused(self, arguments, *fragments):
        """Exit 2, nothing on stdout, one line on stderr that names what is wrong."""
        result = run(*arguments)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertEqual(result.stdout, "")
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        for fragment in fragments:
            self.assertIn(fragment, result.stderr)

    def pasted_example(self, command):
        """The command that the help shows, and the output it shows for it."""
        text = self.output(command, "--help")
        example = text[text.index("Example:\n  $ ") + len("Example:\n  $ "):].splitlines()
        lines = [line[2:] for line in example[1:] if line.startswith("  ")]
        return example[0].split()[1:], lines


class CostTest(SimTest):
    def test_the_pasted_example_is_what_the_program_prints(self):
        arguments, lines = self.pasted_example("cost")
        self.assertEqual(self.output(*arguments).splitlines(), lines)

    def test_json_has_exact_integers(self):
        document = json.loads(self.output("cost", "--json", "--batch", "1", "--ep", "320", "--context", "131072"))
        self.assertEqual(document["model"]["total_weights"], 671026404352 + 58 * 256)
        self.assertEqual(document["context"][0]["kv_bf16_bytes"], 70272 * 131072)
        self.assertEqual(document["alltoall"][0]["bytes_per_layer"], 168 * 1024)
        self.assertEqual([row["ep"] for row in document["gpu_weights"]], [320])

    def test_csv_of_one_table_is_plain_csv(self):
        rows = list(csv.DictReader(io.StringIO(self.output("cost", "--csv", "--table", "batch", "--batch", "8,32"))))
        self.assertEqual([row["tokens"] for row in rows], ["8", "32"])
        self.assertAlmostEqual(float(rows[1]["active_experts"]), 163.3, 1)

    def test_csv_of_several_tables_names_each_block(self):
        blocks = self.output("cost", "--csv", "--table", "batch,context").split("\n\n")
        self.assertEqual([block.splitlines()[0] for block in blocks], ["# batch", "# context"])

    def test_a_config_file_is_read(self):
        config = json.loads((ROOT / "golden/data/mini/checkpoint/config.json").read_text())
        document = json.loads(self.output("cost", "--json", "--model", ROOT / "golden/data/mini/checkpoint/config.json"))
        self.assertEqual(document["model"]["num_experts"], config["n_routed_experts"])

    def test_a_load_gives_padding_and_drops(self):
        with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
            file.write("16\n8\n0\n0\n8\n0\n0\n0\n")
            file.flush()
            row = json.loads(self.output("cost", "--json", "--model", "mixtral-8x7b", "--load", file.name,
                                         "--capacity-factor", "1.5"))["capacity"]
        self.assertEqual((row["capacity"], row["num_dropped"], row["num_padding"]), (6, 10 + 2 + 2, 5 * 6))

    def test_bad_input_is_one_line(self):
        self.refused(["cost", "--model", "gpt-9"], "gpt-9", "deepseek-v3, kimi-k2", "config.json")
        self.refused(["cost", "--batch", "-4"], "batch -4", "expected 1 to")
        self.refused(["cost", "--ep", "0"], "ep 0")
        self.refused(["cost", "--batch", "many"], "--batch")
        self.refused(["cost", "--table", "nothing"], "nothing", "components")
        self.refused(["cost", "--load", "1,2"], "2 counts", "256 routed experts")
        self.refused(["cost", "--load", "1,x"], "count 2 is 'x'")
        self.refused(["cost", "--capacity-factor", "2"], "--load")
        self.refused(["cost", "--json", "--csv"], "--csv")
        self.refused(["cost", "--ib-gb-per-s", "nan"], "link rate")


class WalkTest(SimTest):
    def test_the_pasted_example_is_what_the_program_prints(self):
        arguments, lines = self.pasted_example("walk")
        self.assertEqual(self.output(*arguments).splitlines(), lines)

    def test_json_has_a_row_for_every_op_of_every_layer(self):
        document = json.loads(self.output("walk", "--json", "--tp", "8", "--table", "walk,deployment"))
        layers = [row["layer"] for row in document["walk"] if row["kind"] == "router_logits"]
        self.assertEqual(layers, list(range(3, 61)))
        self.assertEqual(document["deployment"]["layout"], "tp8 pp1 dp1 ep1")

    def test_spellings_of_engines_are_understood(self):
        def layout(*flags):
            return json.loads(self.output("walk", "--json", "--table", "deployment", *flags))["deployment"]["layout"]

        self.assertEqual(layout("--tensor-parallel-size", "4", "--pipeline-parallel-size", "2"), "tp4 pp2 dp1 ep1")
        self.assertEqual(layout("--tp-size", "8", "--dp-size", "8", "--enable-dp-attention"), "tp1 pp1 dp8 ep8")
        self.assertEqual(layout("--data-parallel-size", "8", "--enable-expert-parallel"), "tp1 pp1 dp8 ep8")
        self.assertEqual(layout("--attention-dp-size", "8", "--moe-ep-size", "8", "--moe-tp-size", "1"), "tp1 pp1 dp8 ep8")
        self.assertEqual(layout("--layout", "tp8", "--etp", "2"), "tp8 pp1 dp1 ep4")

    def test_a_hardware_file_of_ones_own_is_read(self):
        text = (ROOT / "simulator/data/hardware/h100.json").read_text().replace("3350", "6700")
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write(text)
            file.flush()
            own = json.loads(self.output("walk", "--json", "--system", file.name))["deployment"]["ops_floor_us"]
        base = json.loads(self.output("walk", "--json", "--system", "h100"))["deployment"]["ops_floor_us"]
        self.assertLess(own, 0.51 * base)

    def test_bad_input_is_one_line(self):
        self.refused(["walk", "--tp", "12"], "tp 12 does not divide", "would work: tp 1, 2, 4, 8, 16")
        self.refused(["walk", "--tp", "32"], "would work: tp 1, 2, 4, 8, 16")
        self.refused(["walk", "--layout", "tp8", "--tp", "8"], "tp is given twice")
        self.refused(["walk", "--layout", "abc"], "expected parts like tp8")
        self.refused(["walk", "--ep", "0"], "ep 0")
        self.refused(["walk", "--bs", "-3"], "sequences of a rank -3")
        self.refused(["walk", "--isl", "200000"], "163840 positions")
        self.refused(["walk", "--phase", "prefill", "--isl", "8", "--prefix", "8"], "--prefix 8")
        self.refused(["walk", "--phase", "train"], "--phase")
        self.refused(["walk", "--system", "h300"], "h300", "a100, b200")
        self.refused(["walk", "--model", "llama-3-8b"], "GQA", "deepseek-v3, kimi-k2")
        self.refused(["walk", "--model", "kimi-k2", "--mtp"], "no MTP layer")


if __name__ == "__main__":
    unittest.main()
