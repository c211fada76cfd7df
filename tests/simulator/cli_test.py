"""dsv3-sim as its users call it: exit codes, one clear line for bad input, JSON and CSV that parse, help that is true."""
import csv
import io
import json
import os
import pathlib
import tempfile
import unittest

from sim_program import SimTestCase

ROOT = pathlib.Path(os.environ["DSV3_SOURCE_DIR"])


class SimTest(SimTestCase):
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
        cost = ["cost", "--model", "mixtral-8x7b"]
        self.refused([*cost, "--batch", "-4"], "batch -4", "expected 1 to")
        self.refused([*cost, "--ep", "0"], "ep 0")
        self.refused([*cost, "--batch", "many"], "--batch")
        self.refused([*cost, "--table", "nothing"], "nothing", "components")
        self.refused([*cost, "--load", "1,2"], "2 counts", "8 routed experts")
        self.refused([*cost, "--load", "1,x"], "count 2 is 'x'")
        self.refused([*cost, "--capacity-factor", "2"], "--load")
        self.refused([*cost, "--json", "--csv"], "--csv")
        self.refused([*cost, "--ib-gb-per-s", "nan"], "link rate")


# A model whose 128-blocks stay whole under TP 2..8 and EP 2..16, quick to plan.
SMALL = {"model_type": "deepseek_v3", "vocab_size": 1024, "hidden_size": 512, "intermediate_size": 2048,
         "moe_intermediate_size": 1024, "num_hidden_layers": 3, "num_nextn_predict_layers": 0, "first_k_dense_replace": 1,
         "num_attention_heads": 8, "q_lora_rank": 256, "kv_lora_rank": 256, "qk_nope_head_dim": 128,
         "qk_rope_head_dim": 128, "v_head_dim": 128, "n_routed_experts": 16, "n_shared_experts": 1, "num_experts_per_tok": 4,
         "n_group": 4, "topk_group": 2, "scoring_func": "sigmoid", "topk_method": "noaux_tc", "norm_topk_prob": True,
         "routed_scaling_factor": 2.5, "max_position_embeddings": 8192,
         "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                                 "weight_block_size": [128, 128]}}


class WalkTest(SimTest):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.small = pathlib.Path(cls.folder.name) / "config.json"
        cls.small.write_text(json.dumps(SMALL))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def walk_json(self, *flags):
        return json.loads(self.output("walk", "--json", "--model", self.small, *flags))

    def test_the_pasted_example_is_what_the_program_prints(self):
        arguments, lines = self.pasted_example("walk")
        self.assertEqual(self.output(*arguments).splitlines(), lines)

    def test_json_has_a_row_for_every_op_of_every_layer(self):
        document = self.walk_json("--tp", "8", "--table", "walk,deployment")
        layers = [row["layer"] for row in document["walk"] if row["kind"] == "router_logits"]
        self.assertEqual(layers, [1, 2])
        self.assertEqual(document["deployment"]["layout"], "tp8 pp1 dp1 ep1")

    def test_times_add_up_to_the_step(self):
        for flags in (["--layout", "tp8"], ["--layout", "dep8", "--phase", "prefill"], ["--layout", "tp4dp8ep32sp"]):
            document = json.loads(self.output("walk", "--system", "h200", "--engine", "sglang", *flags, "--json"))
            whole = document["deployment"]
            ops = sum(row["time_us"] or 0 for row in document["walk"])
            self.assertAlmostEqual(ops + whole["waiting_us"] + whole["engine_us"], whole["time_us"], delta=1e-9 * whole["time_us"])
            self.assertGreater(whole["time_us"], whole["ops_floor_us"])

    def test_spellings_of_engines_are_understood(self):
        def layout(*flags):
            return self.walk_json("--table", "deployment", *flags)["deployment"]["layout"]

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
            own = self.walk_json("--system", file.name)["deployment"]["ops_floor_us"]
        base = self.walk_json("--system", "h100")["deployment"]["ops_floor_us"]
        self.assertAlmostEqual(own / base, 0.5, 2)

    def test_bad_input_is_one_line(self):
        small = ["walk", "--model", self.small]
        self.refused(["walk", "--tp", "12"], "tp 12 does not divide", "would work: tp 1, 2, 4, 8, 16")
        self.refused([*small, "--tp", "16"], "would work: tp 1, 2, 4, 8")
        self.refused([*small, "--layout", "tp8", "--tp", "8"], "tp is given twice")
        self.refused([*small, "--layout", "abc"], "expected parts like tp8")
        self.refused([*small, "--ep", "0"], "ep 0")
        self.refused([*small, "--bs", "-3"], "sequences of a rank -3")
        self.refused([*small, "--isl", "200000"], "8192 positions")
        self.refused([*small, "--phase", "prefill", "--isl", "8", "--prefix", "8"], "--prefix 8")
        self.refused([*small, "--phase", "train"], "--phase")
        self.refused([*small, "--system", "h300"], "h300", "a100, b200")
        self.refused([*small, "--mtp"], "no MTP layer")
        self.refused(["walk", "--model", "llama-3-8b"], "GQA", "deepseek-v3, kimi-k2")


if __name__ == "__main__":
    unittest.main()
