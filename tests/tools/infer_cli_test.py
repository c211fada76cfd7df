"""dsv3-infer as its users call it: the same tokens however they are asked for, and one clear line for bad input."""
import csv
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

BIN = pathlib.Path(os.environ["DSV3_BIN_DIR"])
ROOT = pathlib.Path(__file__).resolve().parents[2]
MINI = ROOT / "golden/data/mini"
CHECKPOINT = MINI / "checkpoint"
PROMPTS = [json.loads(line) for line in (MINI / "prompts.jsonl").read_text().splitlines()]


def infer(*arguments, checkpoint=CHECKPOINT):
    return subprocess.run([BIN / "dsv3-infer", "--checkpoint", checkpoint, *(a if isinstance(a, bytes) else str(a) for a in arguments)],
                          capture_output=True, text=True, timeout=100)


def ids_of(*arguments, **more):
    result = infer(*arguments, "--json", **more)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)["ids"]


def comma(ids):
    return ",".join(map(str, ids))


class InferCliTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def file(self, name, text):
        path = pathlib.Path(self.folder.name) / name
        path.write_text(text, encoding="utf-8")
        return path

    def bytes(self, name, content):
        path = pathlib.Path(self.folder.name) / name
        path.write_bytes(content)
        return path

    def refused(self, result, *fragments):
        """Exit 2, nothing on stdout, one line on stderr that names what is wrong."""
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertEqual(result.stdout, "")
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        for fragment in fragments:
            self.assertIn(fragment, result.stderr)

    def test_the_text_of_the_small_model_is_the_stored_one(self):
        prompt = PROMPTS[1]  # all margins above 0.05
        for mode in ("exact", "published"):
            result = infer("--prompt", prompt["text"], "--max-new-tokens", 16, "--mode", mode)
            self.assertEqual(result.returncode, 0, result.stderr)
            text = result.stdout.removesuffix("\n")
            self.assertGreater(len(text), 30)
            self.assertTrue(prompt["output_text"].startswith(text), text)

    def test_prompt_ids_file_and_text_are_one_prompt(self):
        prompt = PROMPTS[2]
        more = ("--max-new-tokens", 5)
        expected = ids_of("--prompt", prompt["text"], *more)
        self.assertEqual(ids_of("--prompt-ids", comma(prompt["ids"]), *more), expected)
        self.assertEqual(ids_of("--prompt-file", self.file("p.txt", prompt["text"]), *more), expected)

    def test_a_batch_gives_what_its_lines_give_alone(self):
        lines = [{"prompt": PROMPTS[0]["text"]}, {"ids": PROMPTS[1]["ids"], "max_new_tokens": 3},
                 {"ids": PROMPTS[3]["ids"]}]
        batch = self.file("b.jsonl", "\n".join(map(json.dumps, lines)) + "\n")
        result = infer("--batch", batch, "--max-new-tokens", 6)
        self.assertEqual(result.returncode, 0, result.stderr)
        rows = [json.loads(line) for line in result.stdout.splitlines()]
        self.assertEqual([row["request"] for row in rows], [0, 1, 2])
        for row, prompt, count in zip(rows, (PROMPTS[0], PROMPTS[1], PROMPTS[3]), (6, 3, 6)):
            self.assertEqual(row["ids"], ids_of("--prompt-ids", comma(prompt["ids"]), "--max-new-tokens", count))
            self.assertEqual(row["prompt_ids"], prompt["ids"])
            self.assertEqual(row["finish_reason"], "length")

    def test_drafts_chunks_pages_and_threads_change_no_token(self):
        base = ("--prompt-ids", comma(PROMPTS[4]["ids"]), "--max-new-tokens", 12)
        penalties = ("--temperature", 1.1, "--min-p", 0.02, "--repetition-penalty", 1.3, "--frequency-penalty", 0.4,
                     "--presence-penalty", 0.2, "--seed", 6)
        for sampling in ((), ("--temperature", 0.9, "--top-p", 0.9, "--seed", 3), penalties):
            expected = ids_of(*base, *sampling)
            for more in (("--mtp", 1), ("--mtp", 3), ("--chunk", 2), ("--page-size", 0), ("--threads", 2)):
                self.assertEqual(ids_of(*base, *sampling, *more), expected, more)
        self.assertNotEqual(ids_of(*base, "--temperature", 0.9, "--seed", 4), ids_of(*base, "--temperature", 0.9, "--seed", 5))

    def test_stats_are_the_last_line_of_stderr(self):
        result = infer("--prompt-ids", "0,34,262", "--max-new-tokens", 9, "--mtp", 2, "--stats", "json")
        stats = json.loads(result.stderr.splitlines()[-1])
        self.assertEqual(stats["tokens"], 9)
        self.assertEqual(stats["ids"], ids_of("--prompt-ids", "0,34,262", "--max-new-tokens", 9))
        for key in ("prefill_s", "decode_s", "tokens_per_s", "peak_rss_bytes"):
            self.assertGreater(stats[key], 0, key)
        self.assertTrue(0 <= stats["mtp_accepted_frac"] <= 1)
        self.assertEqual(len(stats["mtp_accepted_by_position"]), 2)

    def test_stop_strings_and_ids_end_the_text(self):
        base = ("--prompt", PROMPTS[1]["text"], "--max-new-tokens", 16)
        whole = infer(*base).stdout
        self.assertIn("unto me", whole)
        self.assertEqual(infer(*base, "--stop", "unto me").stdout, whole.split("unto me")[0] + "\n")
        third = PROMPTS[1]["output_ids"][2]
        self.assertEqual(ids_of(*base, "--stop-ids", third), PROMPTS[1]["output_ids"][:3])

    def test_logprobs_come_for_each_token(self):
        result = infer("--prompt-ids", "0,34", "--max-new-tokens", 3, "--logprobs", 4)
        row = json.loads(result.stdout)
        self.assertEqual(len(row["logprobs"]), 3)
        for id_, token in zip(row["ids"], row["logprobs"]):
            self.assertEqual(token["id"], id_)
            self.assertEqual(len(token["top"]), 4)
            self.assertEqual(token["top"][0], [id_, token["logprob"]])

    def test_a_generated_checkpoint_prints_ids(self):
        result = infer("--prompt-ids", "1,2,3", "--max-new-tokens", 4, "--ignore-eos", checkpoint="synthetic:nano")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"^\d+(,\d+){3}\n$")

    def test_the_routing_trace_has_a_row_for_every_choice(self):
        path = pathlib.Path(self.folder.name) / "routing.csv"
        infer("--prompt-ids", "0,34,262", "--max-new-tokens", 3, "--trace-routing", path)
        header, *lines = path.read_text().splitlines()
        self.assertRegex(header, "^# config_hash=[0-9a-f]+$")
        rows = list(csv.DictReader(lines))
        # Five fed tokens, two MoE layers, four experts a token.
        self.assertEqual(len(rows), 5 * 2 * 4)
        self.assertEqual({row["layer"] for row in rows}, {"1", "2"})
        self.assertEqual([row["position"] for row in rows if row["layer"] == "1" and row["slot"] == "0"], list("01234"))
        self.assertEqual({(int(row["position"]) < 3, row["phase"]) for row in rows}, {(True, "prefill"), (False, "decode")})
        for i in range(0, len(rows), 4):
            self.assertAlmostEqual(sum(float(row["weight"]) for row in rows[i:i + 4]), 2.5, places=5)

    def checkpoint_with(self, chat_template):
        """The small model with a chat format of its own, as newer versions of transformers write it."""
        folder = pathlib.Path(self.folder.name) / "chat"
        folder.mkdir()
        for path in CHECKPOINT.iterdir():
            (folder / path.name).symlink_to(path)
        (folder / "chat_template.jinja").write_text(chat_template, encoding="utf-8")
        return folder

    def tokenized(self, text):
        lines = self.file("text.jsonl", json.dumps({"text": text}) + "\n")
        result = subprocess.run([BIN / "dsv3-infer", "tokenize", "--tokenizer", CHECKPOINT, "--in", lines],
                                capture_output=True, text=True, timeout=100)
        return json.loads(result.stdout)["ids"]

    def test_a_chat_is_the_text_that_the_format_makes_of_it(self):
        checkpoint = self.checkpoint_with(
            "{{ bos_token }}{% for tool in tools %}{{ tool | tojson }}{% endfor %}{% for m in messages %}"
            "{{ m.role + ': ' + m.content + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ 'answer:' }}{% endif %}")
        bos = "<\uff5cbegin\u2581of\u2581sentence\uff5c>"
        whole = bos + "user: Who art thou?\nanswer:"
        result = infer("--prompt", "Who art thou?", "--chat", "--max-new-tokens", 5, "--json", checkpoint=checkpoint)
        self.assertEqual(result.returncode, 0, result.stderr)
        row = json.loads(result.stdout)
        self.assertEqual(row["prompt_ids"], self.tokenized(whole))
        self.assertEqual(row["ids"], ids_of("--prompt-ids", comma(row["prompt_ids"]), "--max-new-tokens", 5))

        messages = [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "I."}, {"role": "user", "content": "Who?"}]
        tool = {"type": "function", "a": 1}
        batch = self.file("chat.jsonl", json.dumps({"messages": messages, "tools": [tool]}) + "\n")
        result = infer("--batch", batch, "--max-new-tokens", 2, checkpoint=checkpoint)
        self.assertEqual(result.returncode, 0, result.stderr)
        whole = bos + json.dumps(tool) + "user: Who?\nassistant: I.\nuser: Who?\nanswer:"
        self.assertEqual(json.loads(result.stdout)["prompt_ids"], self.tokenized(whole))

    def test_a_chat_that_has_no_format_is_one_line(self):
        self.refused(infer("--prompt", "a", "--chat"), "tokenizer_config.json", "chat_template.jinja")
        self.refused(infer("--prompt-ids", "0", "--chat"), "--chat")
        self.refused(infer("--prompt", "a", "--thinking"), "--thinking")
        checkpoint = self.checkpoint_with("{% for m in messages %}{{ m.content }}{% endfor %}")
        tools = self.file("tools.jsonl", '{"messages":[{"role":"user","content":"a"}],"tools":[]}\n')
        result = infer("--batch", tools, "--max-new-tokens", 1, checkpoint=checkpoint)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(":1: tools are left out", result.stderr)
        parts = self.file("parts.jsonl", '{"messages":[{"role":"user","content":["a"]}]}\n')
        self.refused(infer("--batch", parts, checkpoint=checkpoint), ":1:", "a JSON array")

    def test_bad_input_is_one_line(self):
        self.refused(infer(), "--prompt-file")
        self.refused(infer("--prompt-file", self.bytes("broken.txt", b"ab\xff")), "broken.txt", "byte 2")
        self.refused(infer("--prompt-ids", "1,,2"), "''")
        self.refused(infer("--prompt-ids", "1,"), "''")
        self.refused(infer("--prompt-ids", "1", "--stop-ids", "2048"), "--stop-ids", "vocabulary")
        self.refused(infer("--prompt", ""), "prompt")
        self.refused(infer("--prompt-ids", ""), "prompt")
        self.refused(infer("--prompt-ids", "0,x"), "'x'")
        self.refused(infer("--prompt-ids", "0,2048"), "2048", "vocabulary")
        self.refused(infer("--prompt-ids", "0", "--max-new-tokens", 512), "512 positions")
        self.refused(infer("--prompt-ids", comma([0] * 512)), "512 positions")
        self.refused(infer("--prompt-ids", "0", "--no-such-option"), "--no-such-option")
        self.refused(infer("--prompt-ids", "0", "--prompt", "a"), "one of")
        self.refused(infer("--prompt-ids", "0", "--temperature", "nan"), "finite")
        self.refused(infer("--prompt-ids", "0", "--top-p", "0"), "--top-p")
        self.refused(infer("--prompt-ids", "0", "--device", "abacus"), "--device")
        for seed in ("-1", "1.5", str(2**64), ""):
            self.refused(infer("--prompt-ids", "0", f"--seed={seed}"), "--seed")
        self.refused(infer("--prompt-ids", "0", "--stop", b"\xf0\x9f"), "--stop", "UTF-8, byte 0")
        self.refused(infer("--prompt-ids", "0", "--trace-routing", "/nowhere/x.csv"), "/nowhere")
        self.refused(infer("--prompt", "a", checkpoint="synthetic:nano"), "tokenizer")
        self.refused(infer("--prompt-ids", "0", checkpoint="/nowhere"), "/nowhere")
        self.refused(infer("--batch", self.file("b.jsonl", '{"ids":[0]}\n{"idz":[0]}\n')), ":2:")
        self.refused(infer("--batch", self.file("c.jsonl", '{"ids":[0]}\n{"ids":[]}\n')), ":2:", "no tokens")


if __name__ == "__main__":
    unittest.main()
