"""dsv3-infer and dsv3-verify on several ranks: threads of one process and processes of mpirun give what one rank gives, layouts that do
not fit are refused in one line, and a rank that is killed ends the job."""

import csv
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

BIN = pathlib.Path(os.environ["DSV3_BIN_DIR"])
INFER = [str(BIN / "dsv3-infer"), "--checkpoint", "synthetic:par", "--device", "emulated", "--prompt-ids", "3,1,4,15"]
MINI = pathlib.Path(__file__).resolve().parents[2] / "golden/data/mini/checkpoint"
MPI_ENVIRONMENT = dict(
    os.environ,
    OMPI_ALLOW_RUN_AS_ROOT="1",
    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
    OMPI_MCA_rmaps_base_oversubscribe="1",
)


def run(command, **options):
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, **options)


class RanksTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.ids = run([*INFER, "--max-new-tokens", "2"]).stdout

    def test_threads_give_the_ids_of_one_rank(self):
        result = run([*INFER, "--max-new-tokens", "2", "--tp", "2", "--ep", "4", "--mtp", "1"])
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout, self.ids)
        for rank in range(4):  # each says what it holds
            self.assertIn(f"rank {rank} (dp {rank // 2}, tp {rank % 2}): device memory: weights", result.stderr)

    def test_traces_of_ranks_are_those_of_one(self):
        """Of a batch with drafts, over data-parallel groups and over stages."""
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            batch, routing, ops = folder / "batch.jsonl", folder / "routing.csv", folder / "ops.csv"
            batch.write_text("".join(json.dumps({"ids": ids}) + "\n" for ids in ([0, 34, 262], [0, 358], [0, 470, 293, 622])))
            infer = [str(BIN / "dsv3-infer"), "--checkpoint", str(MINI), "--device", "emulated", "--batch", str(batch)]
            infer += ["--max-new-tokens", "5", "--mtp", "2", "--logprobs", "2", "--trace-routing", str(routing), "--trace", str(ops)]
            seen = []
            for num_ranks, layout in ((1, []), (2, ["--dp", "2"]), (4, ["--pp", "2", "--dp", "2", "--ep", "2"])):
                result = run([*infer, *layout])
                self.assertEqual(result.returncode, 0, result.stderr)
                seen.append((result.stdout, routing.read_text()))
                with ops.open() as file:
                    rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
                self.assertEqual({row["rank"] for row in rows}, {str(rank) for rank in range(num_ranks)})
            for outputs, choices in seen[1:]:
                self.assertEqual(outputs, seen[0][0])
                self.assertEqual(choices, seen[0][1])

    def test_processes_give_the_ids_of_one_rank(self):
        layout = ["--comm", "mpi", "--tp", "2", "--ep", "4"]
        result = run(["mpirun", "-np", "4", *INFER, "--max-new-tokens", "2", *layout], env=MPI_ENVIRONMENT)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout, self.ids)

    def test_layouts_that_do_not_fit_are_refused_in_one_line(self):
        for options, words in (
            (["--tp", "3"], "does not divide"),
            (["--tp", "2", "--ranks", "5"], "5 ranks, but tp 2 * dp 2 * pp 1 are 4"),
            (["--tp", "4", "--ep", "2", "--redundant-experts", "2"], "not below tp"),
            (["--dp", "4", "--redundant-experts", "2"], "--redundant-experts 4"),
            (["--dp", "4", "--placement", "/nowhere.json"], "/nowhere.json: expected a JSON file there"),
            (["--dp", "4", "--sp"], "sequence_parallel needs tp above 1"),
            (["--pp", "4"], "exceeds the 3 layers"),
            (["--dp", "2", "cpu"], "the reference is one rank"),
            (["--comm", "nccl", "cpu"], "the reference is one rank"),
            (["--comm", "nccl", "--dp", "2"], "--comm nccl: connects GPUs, not --device emulated"),
        ):
            with self.subTest(options=options):
                command = [*INFER, "--max-new-tokens", "1", *options]
                if command[-1] == "cpu":
                    command[command.index("emulated")] = command.pop()
                result = run(command)
                self.assertEqual(result.returncode, 2, result.stderr)
                self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
                self.assertIn(words, result.stderr)
                self.assertEqual(result.stdout, "")

    def test_a_rank_that_is_killed_ends_the_job(self):
        command = ["mpirun", "-np", "4", *INFER, "--max-new-tokens", "200", "--comm", "mpi", "--dp", "4"]
        with subprocess.Popen(
            command, env=MPI_ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        ) as job:
            try:
                ranks = self.ranks_of(job.pid, 4)
                os.kill(ranks[2], signal.SIGKILL)
                _, errors = job.communicate(timeout=60)
            finally:
                job.kill()
        self.assertNotEqual(job.returncode, 0)
        self.assertTrue("signal 9" in errors or "rank" in errors, errors)
        deadline = time.monotonic() + 15
        while any(self.is_running(rank) for rank in ranks) and time.monotonic() < deadline:
            time.sleep(0.1)
        for rank in ranks:
            self.assertFalse(self.is_running(rank), f"process {rank} is left")

    def ranks_of(self, launcher, count):
        """Processes that the launcher started, once they all run the program and hold their weights."""
        for _ in range(300):
            time.sleep(0.1)
            children = subprocess.run(["pgrep", "-P", str(launcher)], capture_output=True, text=True, check=False).stdout
            ranks = [int(pid) for pid in children.split()]
            if len(ranks) == count:
                time.sleep(1)
                return ranks
        self.fail("mpirun did not start its processes")

    @staticmethod
    def is_running(pid):
        try:
            return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
        except FileNotFoundError:
            return False


class MoreRanksTest(unittest.TestCase):
    """What takes longer and is held by quicker tests of the libraries as well."""

    def test_cut_experts_shared_rows_copies_and_micro_batches_give_the_ids_of_one_rank(self):
        ids = run([*INFER, "--max-new-tokens", "2"]).stdout
        for layout in (
            ["--tp", "4", "--ep", "1", "--sp"],
            ["--tp", "2", "--ep", "4", "--sp", "--redundant-experts", "4"],
            ["--pp", "3", "--micro-batches", "2"],
        ):
            with self.subTest(layout=layout):
                result = run([*INFER, "--max-new-tokens", "2", *layout])
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertEqual(result.stdout, ids)

    def test_a_placement_of_the_simulator_is_read_in_both_forms(self):
        mini = str(pathlib.Path(__file__).parents[2] / "golden/data/mini/checkpoint")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        files = [str(pathlib.Path(folder.name) / name) for name in ("sglang.json", "vllm.json")]
        written = run([str(BIN / "dsv3-sim"), "skew", "--model", mini, "--ep", "4", "--batch", "8", "--steps", "1",
                       "--redundant-experts", "4", "--write-sglang", files[0], "--write-vllm", files[1]])  # fmt: skip
        self.assertEqual(written.returncode, 0, written.stderr)
        infer = [str(BIN / "dsv3-infer"), "--checkpoint", mini, "--device", "emulated", "--prompt-ids", "260,584,270,341"]
        infer += ["--max-new-tokens", "4", "--mtp", "1"]
        expected = run(infer).stdout
        for file in files:
            result = run([*infer, "--dp", "4", "--placement", file])
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(result.stdout, expected)
        document = json.loads(pathlib.Path(files[0]).read_text())
        document["physical_to_logical_map"][-1][3] = "many"
        pathlib.Path(files[0]).write_text(json.dumps(document))
        result = run([*infer, "--dp", "4", "--placement", files[0]])
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("sglang.json: physical_to_logical_map 2: expected a list of experts", result.stderr)

    def test_verify_passes_on_ranks(self):
        with tempfile.TemporaryDirectory() as folder:
            golden = str(pathlib.Path(folder) / "par.golden")
            record = [str(BIN / "dsv3-golden"), "record", "--checkpoint", "synthetic:par", "--prompt-ids", "3,1,4"]
            recorded = run([*record, "--out", golden])
            self.assertEqual(recorded.returncode, 0, recorded.stderr)
            verify = [str(BIN / "dsv3-verify"), "--golden", golden, "--device", "emulated"]
            for layout in (["--ranks", "8", "--dp", "8", "--ep", "8"], ["--tp", "4", "--ep", "2", "--sp"], ["--dp", "3", "--redundant-experts", "2"]):
                with self.subTest(layout=layout):
                    result = run([*verify, *layout])
                    self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
                    self.assertIn("PASS", result.stdout)

    def test_links_are_measured_over_threads_and_processes(self):
        bench = [str(BIN / "dsv3-bench"), "links", "--json", "--min-time", "0.001", "--repetitions", "2"]
        bench += ["--min-bytes", "4096", "--max-bytes", "4096", "--tokens", "2"]
        for command, comm in (
            ([*bench, "--ranks", "3"], "threads"),
            (["mpirun", "-np", "3", *bench, "--comm", "mpi"], "mpi"),
        ):
            with self.subTest(comm=comm):
                result = run(command, env=MPI_ENVIRONMENT)
                self.assertEqual(result.returncode, 0, result.stderr)
                table = json.loads(result.stdout)
                self.assertEqual((table["comm"], table["ranks"]), (comm, 3))
                rows = {row["collective"]: row for row in table["rows"]}
                self.assertEqual(
                    list(rows),
                    ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send", "dispatch", "combine"],
                )
                self.assertEqual(rows["all_reduce"]["sent_bytes"], 4096 * 2)
                self.assertEqual(rows["all_gather"]["sent_bytes"], 341 * 4 * 2)
                self.assertEqual(rows["send"]["sent_bytes"], 4096)
                self.assertTrue(all(row["time_us"] > 0 for row in rows.values()))
                all_reduce = rows["all_reduce"]
                self.assertAlmostEqual(all_reduce["busbw_gb_per_s"], all_reduce["algbw_gb_per_s"] * 4 / 3)


if __name__ == "__main__":
    unittest.main()
