"""What the documentation points at exists: tests and faults that docs/model.md names, and files that any page links to."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class DocsTest(unittest.TestCase):
    def test_model_md_names_tests_and_faults_that_exist(self):
        faults = "".join(path.read_text() for path in (ROOT / "tools/faults").glob("*.cpp"))
        rows = [line for line in (ROOT / "docs/model.md").read_text().splitlines() if re.match(r"\| \d+ \| ", line)]
        self.assertEqual(len(rows), 59)
        for row in rows:
            shown_by = row.rstrip(" |").rsplit("|", 1)[1].strip()
            self.assertNotEqual(shown_by, "", row)
            for name in re.findall(r"fault (h-\d+)", shown_by):
                self.assertIn(f'"{name}"', faults, row)
            for folder, stem, case in re.findall(r"(\w+)\.(\w+_test)(?: (\w+))?", shown_by):
                source = (ROOT / "tests" / folder / f"{stem}.cpp").read_text()
                self.assertRegex(source, rf"TEST(_P|_F)?\(\w+,\s*{case}" if case else "TEST", row)

    def test_the_table_of_public_bugs_names_tests_and_faults_that_exist(self):
        faults = "".join(path.read_text() for path in (ROOT / "tools/faults").glob("*.cpp"))
        rows = [line for line in (ROOT / "tests/gpu/README.md").read_text().splitlines() if re.match(r"\| \d+ \| ", line)]
        self.assertEqual(len(rows), 21)
        for row in rows:
            source = ""
            for quoted in re.findall(r"`([^`]+)`", row.rsplit("|", 2)[1]):
                test = re.match(r"(\w+)\.(\w+_test) ?(\w+)?$", quoted)
                if test:
                    source = (ROOT / "tests" / test[1] / f"{test[2]}.cpp").read_text()
                name = test[3] if test else quoted
                if re.match(r"[a-z]+-\d+$", quoted):
                    self.assertIn(f'"{quoted}"', faults, row)
                elif name:
                    self.assertRegex(source, rf"\b{name}\b", row)

    def test_links_lead_somewhere(self):
        for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "golden").rglob("*.md")]:
            for link in re.findall(r"\]\(([^)#]+)", re.sub(r"```.*?```", "", page.read_text(), flags=re.S)):
                if not link.startswith("http"):
                    self.assertTrue((page.parent / link).exists(), f"{page}: {link}")


if __name__ == "__main__":
    unittest.main()
