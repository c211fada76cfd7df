"""dsv3-report on 100,000 records: under 2 s of a core and 500 MB, a page below 3 MB."""
import pathlib
import resource
import subprocess
import tempfile
import unittest

from inputs import BIN, COLUMNS, output, records

NUM_RECORDS = 100_000


class SizeTest(unittest.TestCase):
    def test_a_hundred_thousand_records(self):
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            output("dsv3-sim", "explain", "--preset", "h200-tp8", "--records", folder / "v3.csv")
            simulated = [list(row.values()) for row in records(folder / "v3.csv")]
            # The same step measured on as many ranks as it takes.
            limits = [row for row in simulated if row[18] == "limit"]
            lines = [",".join(row) for row in simulated]
            rank = 0
            while len(lines) < NUM_RECORDS:
                for row in limits[:NUM_RECORDS - len(lines)]:
                    time_us = 1.5 * float(row[14]) + 1 + 0.01 * (rank % 7)
                    lines.append(",".join([*row[:4], str(rank), *row[5:14], f"{time_us:.6g}", f"{.98 * time_us:.6g}",
                                           f"{1.02 * time_us:.6g}", "100", "cuda", *row[19:]]))
                rank += 1
            path = folder / "many.csv"
            path.write_text("# model=deepseek-v3\n# layout=tp8 pp1 dp1 ep1\n# gpus=8\n" + "\n".join([COLUMNS, *lines]) + "\n")
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([BIN / "dsv3-report", "--records", path, "--out", folder / "report.html"], check=True, capture_output=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            # ru_maxrss is the largest child's; the other one here is dsv3-sim, which takes a tenth of it.
            megabytes = after.ru_maxrss / 1e3
            page = (folder / "report.html").stat().st_size / 1e6
            print(f"{len(lines)} records: {seconds:.2f} s of a core, {megabytes:.0f} MB, page {page:.2f} MB")
            self.assertLess(seconds, 2)
            self.assertLess(megabytes, 500)
            self.assertLess(page, 3)


if __name__ == "__main__":
    unittest.main()
