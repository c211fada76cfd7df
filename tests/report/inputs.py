"""Inputs of reports for the tests beside this file, made by the programs themselves."""
import json
import os
import pathlib
import subprocess

BIN = pathlib.Path(os.environ["DSV3_BIN_DIR"])
MINI = pathlib.Path(__file__).resolve().parents[2] / "golden/data/mini"
COLUMNS = ("op,kind,layer,phase,rank,tokens,batch,context_len,dtype,flops,weight_bytes,activation_bytes,kv_bytes,wire_bytes,"
           "time_us,time_us_p10,time_us_p90,repetitions,source,device,clock_mhz,config_hash,commit")


def run(program, *arguments):
    return subprocess.run([BIN / program, *map(str, arguments)], capture_output=True, text=True, timeout=100)


def output(program, *arguments):
    result = run(program, *arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout


def records(path):
    lines = [line for line in pathlib.Path(path).read_text().splitlines() if not line.startswith("#")]
    names = lines[0].split(",")
    return [dict(zip(names, line.split(","))) for line in lines[1:]]


def made_up_run(source, path, factor=1.0):
    """A run that nobody made: twice the limit on two ranks, layer 40 three times slower than the others."""
    lines = [COLUMNS]
    for row in records(source):
        if row["source"] != "limit":
            continue
        for rank in range(2):
            time_us = (2 * float(row["time_us"]) + 1) * (1 + .1 * rank) * (3 if row["layer"] == "40" else 1) * factor
            lines.append(",".join([*list(row.values())[:4], str(rank), *list(row.values())[5:14], f"{time_us:.6g}", f"{.98 * time_us:.6g}",
                                   f"{1.02 * time_us:.6g}", "100", "cuda", *list(row.values())[19:]]))
    pathlib.Path(path).write_text("# model=deepseek-v3\n# layout=tp8 pp1 dp1 ep1\n# gpus=8\n# engine=made up\n" + "\n".join(lines) + "\n")


class Inputs:
    """Files in a folder: V3 on 8 H200 and on wide EP, tables of dsv3-sim, a verdict, and a run with its baseline."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.v3 = self.folder / "v3.csv"
        output("dsv3-sim", "explain", "--preset", "h200-tp8", "--records", self.v3)
        self.wide = self.folder / "wide.csv"
        output("dsv3-sim", "explain", "--gpu", "h800", "--layout", "dep32", "--bs", 64, "--decode-only", "--records", self.wide)
        self.mini = self.folder / "mini.csv"
        output("dsv3-infer", "--checkpoint", MINI / "checkpoint", "--prompt-ids", "1,2,3,4,5,6,7,8", "--max-new-tokens", 16,
               "--ignore-eos", "--threads", 1, "--trace", self.mini)
        self.cuda, self.old_cuda = self.folder / "cuda.csv", self.folder / "old_cuda.csv"
        made_up_run(self.v3, self.cuda)
        made_up_run(self.v3, self.old_cuda, .8)
        self.sim = []
        for name, arguments in {"estimate": ["estimate", "--preset", "h200-tp8"],
                                "skew": ["skew", "--ep", 32, "--batch", 64, "--steps", 5, "--loads"],
                                "matrix": ["alltoall", "--matrix", "--ep", 16, "--tokens", 8],
                                "search": ["search", "--gpu", "h200", "--gpus", 16, "--decode-only"]}.items():
            path = self.folder / f"{name}.json"
            path.write_text(output("dsv3-sim", *arguments, "--json"))
            self.sim.append(path)
        self.verdict = self.folder / "verdict.json"
        self.verdict.write_text(json.dumps(verdict()))

    def page(self, *more):
        path = self.folder / "report.html"
        self.printed = run("dsv3-report", "--records", self.mini, self.v3, self.cuda, self.wide, "--sim", *self.sim, "--verify", self.verdict,
                           "--out", path, *more)
        assert self.printed.returncode == 0, self.printed.stderr
        return path


def verdict(diverged=False):
    """What dsv3-verify --json prints for a model of three layers, two cases."""
    ops = []
    for case in ("p7", "d0"):
        for layer in range(3):
            for place, op in enumerate(("attn.q_a", "attn.kv_a", "attn.o_proj", "output")):
                ops.append({"case": case, "op": f"layer.{layer}.{op}", "rank": 0, "status": "same" if place else "order",
                            "free_status": "same", "variant": "", "max_bound_use": 0.1 * place, "max_ulp": 0, "bias_z": 0,
                            "cosine": 1, "calc_diff": 0, "reason": "<b>no markup</b>" if place == 3 else ""})
    first = None
    if diverged:
        ops[-1].update(status="diverged", max_bound_use="inf")
        first = {"op": "layer.2.output", "case": "d0", "rank": 0, "token": 0, "coordinate": [0, 1], "got": 1, "expected": 2,
                 "bound": 0.1, "reads": [], "reason": "another sum"}
    return {"verdict": "fail" if diverged else "pass", "profile": "v32", "first_divergence": first, "ops": ops, "undecided": [],
            "notes": ["a note"]}
