"""What becomes of an MPI job in which a rank throws, returns early, stalls, is stopped or killed: every other rank says so in one line,
the job ends with exit status 2, and no process is left."""
import os
import pathlib
import re
import signal
import subprocess
import time
import unittest
import uuid

PROGRAM = os.environ["DSV3_MPI_FAULTS"]
MPIEXEC = os.environ["DSV3_MPIEXEC"]
# In the order of every_collective.hpp; a barrier follows each.
COLLECTIVES = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "broadcast", "send/receive", "barrier", "split"]
# On a busy machine others may be late as well.
NAMES_THE_LATE_ONE = r".*ranks? (\d, )*2(, \d)* did not come within 2 s"


def processes_with(marker):
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and marker in (entry / "cmdline").read_text():
                found.append(int(entry.name))
        except OSError:  # it has ended in the meantime
            pass
    return found


class Job:
    """One run of the program under mpirun; its name is in the command line of every process of it. Rank 2 is the faulty one."""

    def __init__(self, fault, collective=0, num_ranks=4):
        self.marker = f"job-{uuid.uuid4()}"
        self.num_ranks = num_ranks
        self.process = subprocess.Popen(
            [MPIEXEC, "-np", str(num_ranks), PROGRAM, fault, str(collective), self.marker],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def pids(self):
        """Of the ranks, which print them when they begin."""
        found = {}
        while len(found) < self.num_ranks:
            line = self.process.stdout.readline()
            found.update({int(rank): int(pid) for rank, pid in re.findall(r"pid (\d) (\d+)", line)})
        return found

    def end(self):
        """Exit status, and by rank what it said."""
        try:
            _, self.errors = self.process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            for pid in processes_with(self.marker):
                os.kill(pid, signal.SIGKILL)
            raise
        lines = {}
        for rank, line in re.findall(r"^rank (\d): (.*)$", self.errors, re.MULTILINE):
            lines.setdefault(int(rank), []).append(line)
        return self.process.returncode, lines


class Base(unittest.TestCase):
    def nothing_is_left_of(self, job):
        end = time.monotonic() + 5
        while processes_with(job.marker) and time.monotonic() < end:
            time.sleep(0.05)
        self.assertEqual(processes_with(job.marker), [])

    def others_say(self, job, lines, pattern):
        for rank in {*range(job.num_ranks)} - {2}:
            self.assertEqual(len(lines.get(rank, [])), 1, job.errors)
            self.assertRegex(lines[rank][0], rf"^rank {rank} of group world: ({pattern})", job.errors)

    def ended(self, job, fault, number):
        """The job ended as this fault instead of that collective ends it."""
        status, lines = job.end()
        self.assertEqual(status, 2, job.errors)
        self.others_say(job, lines, {
            "throw": f"({COLLECTIVES[number]}|barrier).*: rank 2 of world failed: disk full$",
            "return": ".*rank 2 left before",
            "stall": NAMES_THE_LATE_ONE}[fault])
        self.assertEqual(lines.get(2), ["disk full"] if fault == "throw" else None)
        self.nothing_is_left_of(job)


class FaultsOutsideAndInsideTest(Base):
    """Jobs of three ranks, all at a time: they wait more than they work."""

    INSIDE = [(fault, 0) for fault in ("throw", "return", "stall")]

    @classmethod
    def setUpClass(cls):
        cls.jobs = {fault: Job(fault, number, 3) for fault, number in cls.INSIDE}
        for outside, sent in (("stopped", signal.SIGSTOP), ("killed", signal.SIGKILL)):
            cls.jobs[outside] = Job("outside", 0, 3)
            os.kill(cls.jobs[outside].pids()[2], sent)

    def test_each_fault_ends_the_others(self):
        for fault, number in self.INSIDE:
            with self.subTest(fault=fault):
                self.ended(self.jobs[fault], fault, number)

    def test_a_process_that_is_stopped_is_named_and_ended(self):
        job = self.jobs["stopped"]
        status, lines = job.end()
        self.assertEqual(status, 2, job.errors)
        self.others_say(job, lines, NAMES_THE_LATE_ONE)
        self.nothing_is_left_of(job)

    def test_a_process_that_is_killed_ends_the_job(self):
        job = self.jobs["killed"]
        status, _ = job.end()
        self.assertNotEqual(status, 0)
        self.assertRegex(job.errors, r"process rank 2 with PID \d+ on node \S+ exited on signal 9")
        self.nothing_is_left_of(job)


class EveryCollectiveTest(Base):
    def test_each_fault_ends_the_others_in_every_collective(self):
        for fault in ("throw", "return", "stall"):
            jobs = [Job(fault, number) for number in range(len(COLLECTIVES))]
            for number, job in enumerate(jobs):
                with self.subTest(fault=fault, collective=COLLECTIVES[number], number=number):
                    self.ended(job, fault, number)


if __name__ == "__main__":
    unittest.main()
