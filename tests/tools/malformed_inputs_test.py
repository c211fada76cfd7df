"""More than 200 malformed files of every kind the programs read: exit code 2, one line that names the file, nothing written."""
import copy
import json
import os
import pathlib
import resource
import shutil
import struct
import subprocess
import tempfile
import unittest

BIN = pathlib.Path(os.environ["DSV3_BIN_DIR"])
ROOT = pathlib.Path(__file__).resolve().parents[2]
MINI = ROOT / "golden/data/mini"
WRONG_VALUES = ("x", -1, 1.5, [], {}, True, 10**30)


def run(*command):
    return subprocess.run(list(map(str, command)), capture_output=True, timeout=60)


def safetensors(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def replaced(document, path, value):
    """The document with the value at a path of keys replaced."""
    changed = copy.deepcopy(document)
    place = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return changed


class MalformedInputsTest(unittest.TestCase):
    num_tried = 0

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.out = self.folder / "out.safetensors"

    def refused(self, what, *command):
        result = run(*command)
        text = result.stderr.decode(errors="replace")
        self.assertEqual((result.returncode, text.count("\n")), (2, 1), f"{what}: {command}\n{result.stdout}\n{text}")
        self.assertNotIn("internal error", text, what)
        self.assertFalse(self.out.exists(), what)
        MalformedInputsTest.num_tried += 1

    def write(self, name, content):
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        return path

    def golden_file(self):
        path = self.folder / "whole.safetensors"
        result = run(BIN / "dsv3-golden", "record", "--checkpoint", "synthetic:edge", "--prompt-ids", "3", "--out", path)
        self.assertEqual(result.returncode, 0, result.stderr)
        return path.read_bytes()

    def test_golden_files(self):
        whole = self.golden_file()
        header_len = struct.unpack("<Q", whole[:8])[0]
        header = json.loads(whole[8 : 8 + header_len])
        data = whole[8 + header_len :]
        manifest = json.loads(header["__metadata__"]["dsv3"])
        name = next(key for key in header if key != "__metadata__")
        cases = [("cut", whole[: len(whole) * part // 24]) for part in range(24)]
        cases += [("length", struct.pack("<Q", length) + whole[8:]) for length in (0, 1, 2**31, 2**63, 2**64 - 1)]
        cases += [("header", safetensors(text, data)) for text in (b"", b"{", b"[]", b"null", b'{"a":1}', b"\xff" * 40)]
        for key, values in (
            ("dtype", ("F99", 3, None)),
            ("shape", ([-1], "x", [2**62, 2**62], None, [1.5])),
            ("data_offsets", ([0], [5, 1], [0, 2**60], ["a", "b"], [-8, 0], None)),
        ):
            cases += [(key, safetensors(replaced(header, (name, key), value), data)) for value in values]
        for key in manifest:
            if key in ("arithmetic", "reduced"):
                continue  # older files do not have them
            without = {k: v for k, v in manifest.items() if k != key}
            for changed in (without, replaced(manifest, (key,), 1.5)):
                text = json.dumps(changed)
                cases.append((f"manifest {key}", safetensors(replaced(header, ("__metadata__", "dsv3"), text), data)))
        flipped = bytearray(whole)
        flipped[-1] ^= 1
        cases.append(("a flipped bit", bytes(flipped)))
        for what, content in cases:
            self.refused(what, BIN / "dsv3-golden", "list", self.write("bad.safetensors", content))

    def checkpoint(self):
        copied = self.folder / "checkpoint"
        shutil.rmtree(copied, ignore_errors=True)
        shutil.copytree(MINI / "checkpoint", copied)
        return copied

    def record(self, checkpoint):
        return (BIN / "dsv3-golden", "record", "--checkpoint", checkpoint, "--prompt-ids", "1", "--out", self.out)

    def test_configs(self):
        directory = self.checkpoint()
        path = directory / "config.json"
        config = json.loads(path.read_text())
        # The sizes that the program reads; num_key_value_heads, for one, says nothing about latent attention.
        read = [
            key
            for key in config
            if key.startswith(("num_", "n_", "hidden_size", "intermediate", "moe_", "kv_", "qk_", "v_", "vocab", "first_k", "topk_group", "max_"))
            and key != "num_key_value_heads"
        ]
        self.assertGreater(len(read), 12)
        for key in read:
            for value in ("x", -1, 1.5, [], 10**30):
                path.write_text(json.dumps(replaced(config, (key,), value)))
                self.refused(f"config {key} {value}", *self.record(directory))
        for text in ("", "{", "[]", "null", "\x00", '{"a":1}'):
            path.write_text(text)
            self.refused(f"config {text!r}", *self.record(directory))

    def test_shards_and_index(self):
        directory = self.checkpoint()
        index = directory / "model.safetensors.index.json"
        if index.exists():
            document = json.loads(index.read_text())
            for value in WRONG_VALUES:
                index.write_text(json.dumps(replaced(document, ("weight_map",), value)))
                self.refused(f"index {value}", *self.record(directory))
            name = next(iter(document["weight_map"]))
            for value in ("nowhere.safetensors", "../config.json", 3, None):
                index.write_text(json.dumps(replaced(document, ("weight_map", name), value)))
                self.refused(f"index {value}", *self.record(directory))
            index.write_text(json.dumps(document))
        shard = next(directory.glob("*.safetensors"))
        whole = shard.read_bytes()
        for part in range(12):
            shard.write_bytes(whole[: len(whole) * part // 12])
            self.refused(f"shard cut at {part}/12", *self.record(directory))

    def test_cases_files(self):
        cases = json.loads((MINI / "prompts.json").read_text())
        bad = [b"", b"{", b"[]", b'{"prompts": 3}', b'{"prompts": {"p": []}}', b'{"prompts": {"p": ["a"]}}', b'{"prompts": {"p": [-1]}}']
        bad += [json.dumps(replaced(cases, (key,), value)).encode() for key in cases for value in ("x", 1.5, -1)]
        bad += [b'{"prompts": {"p": [1e30]}}', b'{"prompts": {"p": [99999999]}}', b"\xff\xfe", b'{"decode": {"prefill": "none", "feed": [1]}}']
        for content in bad:
            path = self.write("cases.json", content)
            self.refused(content[:60], BIN / "dsv3-golden", "record", "--checkpoint", MINI / "checkpoint", "--cases", path, "--out", self.out)

    def test_arithmetic_files(self):
        good = {
            "name": "example",
            "units": [{"inputs": ["e4m3fn", "bf16"], "products": 16, "align_bits": 24, "result_bits": 23, "floor_below": 7}],
            "promotion": {"every": 64, "form": "add_scales_first"},
            "bf16_chain": {"splits": 2, "order": "descending"},
        }
        bad = [b"", b"{", b"[]", b"7", b'{"name": "x"}', b"\x00" * 9, b"[" * 100]
        for path in (("units", 0, "products"), ("units", 0, "align_bits"), ("units", 0, "result_bits"), ("units", 0, "floor_below"), ("promotion", "every"), ("bf16_chain", "splits")):
            bad += [replaced(good, path, value) for value in WRONG_VALUES]
        for path in (("units",), ("units", 0, "inputs"), ("promotion", "form"), ("bf16_chain", "order"), ("name",)):
            bad += [replaced(good, path, value) for value in (3, "nothing of the kind" if path != ("name",) else "", [3])]
        bad.append({**good, "surplus": 1})
        bad.append(replaced(good, ("units", 0, "inputs"), ["bf16"]))  # no unit for FP8 codes
        for content in bad:
            path = self.write("arithmetic.json", content)
            self.refused(content, BIN / "dsv3-golden", "record", "--checkpoint", MINI / "checkpoint", "--prompt-ids", "1", "--mode", f"arithmetic:{path}", "--out", self.out)

    def test_dumps(self):
        golden = self.write("g.safetensors", self.golden_file())
        for content in (b"", b"\x93NUMPY", b"\x93NUMPY\x01\x00\xff\xff{", b"PK\x03\x04", b"{}", b"\x00" * 64):
            for suffix in ("npy", "pt", "safetensors"):
                path = self.write(f"p1.embed.{suffix}", content)
                self.refused((suffix, content), BIN / "dsv3-verify", "--golden", golden, "--against", path)
                path.unlink()

    def test_zz_there_were_many_and_none_took_much_memory(self):
        self.assertGreaterEqual(MalformedInputsTest.num_tried, 200)
        self.assertLess(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, 256 * 1024)  # KiB


if __name__ == "__main__":
    unittest.main()
