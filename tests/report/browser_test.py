"""The page in a headless Chromium: no console errors, no requests, sorting, filtering and keys work, also at a narrow width, in the
dark and as PDF. Skipped where there is no Chromium. PICTURES=FOLDER keeps screenshots."""
import os
import sys
import tempfile
import unittest

from browser import PROGRAM, Browser

if PROGRAM is None:
    print("skipped: chromium is not installed")
    sys.exit(77)

from inputs import Inputs

SETTLE = "new Promise(done => setTimeout(done, 150))"
CELLS = "[...document.querySelectorAll('#ops-table tbody tr:not(.group):not(.total)')].map(row => row.cells[%d].textContent)"


class BrowserTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        inputs = Inputs(cls.temporary.name)
        cls.page = inputs.page("--baseline", inputs.old_cuda)
        cls.browser = Browser()

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.temporary.cleanup()

    def setUp(self):
        self.browser.problems.clear()
        self.browser.call("Emulation.setDeviceMetricsOverride", width=1400, height=900, deviceScaleFactor=1, mobile=False)
        self.browser.open(self.page)

    def tearDown(self):
        self.assertEqual(self.browser.problems, [])

    def choose(self, words):
        self.assertTrue(self.browser.run(f"(() => {{ const b = [...document.querySelectorAll('#scenarios button')].find(b => b.textContent.includes({words!r})); b.click(); return true; }})()"))
        self.browser.run(SETTLE)

    def test_every_section_is_drawn_in_every_scenario(self):
        count = self.browser.run("document.querySelectorAll('#scenarios button').length")
        self.assertGreaterEqual(count, 3)
        for i in range(count):
            self.browser.run(f"document.querySelectorAll('#scenarios button')[{i}].click()")
            self.browser.run(SETTLE)
            sections = self.browser.run("[...document.querySelectorAll('main > section')].map(s => s.id)")
            for name in ("summary", "journey", "timeline", "ops", "roofline", "layers", "skew", "matrix", "pareto", "verify", "memory", "regression", "inputs"):
                self.assertIn(name, sections)
            # Every picture has something in it, and nothing is NaN or undefined.
            self.assertEqual(self.browser.run("[...document.querySelectorAll('svg')].filter(s => s.children.length === 0).length"), 0)
            text = self.browser.run("document.body.innerText")
            for bad in ("NaN", "undefined", "[object", "Infinity"):
                self.assertNotIn(bad, text)
            self.assertEqual(self.browser.run("[...document.querySelectorAll('svg *')].filter(e => [...e.attributes].some(a => /NaN|undefined/.test(a.value))).length"), 0)

    def test_tables_open_behind_every_chart(self):
        self.choose("8 x h200")
        self.browser.run("document.querySelectorAll('details').forEach(d => d.open = true)")
        self.browser.run(SETTLE)
        self.assertEqual(self.browser.run("[...document.querySelectorAll('details')].filter(d => !d.querySelector('table tbody tr')).length"), 0)

    def test_headings_sort(self):
        self.choose("8 x h200")
        column = self.browser.run("[...document.querySelectorAll('#ops-table th')].findIndex(h => h.textContent.startsWith('measured, h200'))")
        number = lambda text: float(text.replace(",", "")) if text != "-" else None
        press = f"document.querySelectorAll('#ops-table th')[{column}].querySelector('button').click()"
        # Within each group, since rows are grouped by phase: close the grouping by choosing one phase.
        self.browser.run("(() => { const s = document.querySelector('#ops-table select'); s.value = '1'; s.dispatchEvent(new Event('change')); })()")
        descending = [value for value in map(number, self.browser.run(CELLS % column)) if value is not None]
        self.assertGreater(len(descending), 5)
        self.assertEqual(descending, sorted(descending, reverse=True))
        self.browser.run(press)
        ascending = [value for value in map(number, self.browser.run(CELLS % column)) if value is not None]
        self.assertEqual(ascending, sorted(ascending))
        self.assertEqual(self.browser.run(f"document.querySelectorAll('#ops-table th')[{column}].getAttribute('aria-sort')"), "ascending")

    def test_words_filter(self):
        self.choose("8 x h200")
        self.browser.run("[...document.querySelectorAll('#ops-table .segments button')].find(b => b.textContent.includes('layer')).click()")
        self.browser.run("(() => { const f = document.querySelector('#ops-table input[type=search]'); f.value = 'layer.7. q_'; f.dispatchEvent(new Event('input')); })()")
        ops = self.browser.run(CELLS % 0)
        self.assertGreaterEqual(len(ops), 4)
        for op in ops:
            self.assertTrue(op.startswith("layer.7.") and "q_" in op, op)
        self.assertIn(f"{len(ops)} of ", self.browser.run("document.querySelector('#ops-table .count').textContent"))

    def test_groups_close_and_keys_move(self):
        self.choose("8 x h200")
        before = len(self.browser.run(CELLS % 0))
        self.browser.run("document.querySelector('#ops-table tr.group button').click()")
        self.assertLess(len(self.browser.run(CELLS % 0)), before)
        for key in ("ArrowRight", "ArrowRight"):
            self.browser.run(f"document.querySelector('#timeline [tabindex]').dispatchEvent(new KeyboardEvent('keydown', {{key: '{key}'}}))")
        first = self.browser.run("document.querySelector('#layer-detail h3').textContent")
        self.browser.run("document.querySelector('#timeline [tabindex]').dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight'}))")
        self.assertNotEqual(self.browser.run("document.querySelector('#layer-detail h3').textContent"), first)
        self.browser.run("document.querySelector('#layers canvas').dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowDown'}))")
        self.assertIn("layer.0.", self.browser.run("document.querySelector('#layers .readout').textContent"))

    def test_nothing_runs_out_of_a_narrow_page(self):
        for width in (800, 1400):
            self.browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
            self.browser.run("new Promise(done => setTimeout(done, 400))")
            self.assertLessEqual(self.browser.run("document.documentElement.scrollWidth"), width)

    def test_it_prints(self):
        self.assertTrue(self.browser.pdf().startswith(b"%PDF"))


def take_pictures(folder):
    with tempfile.TemporaryDirectory() as temporary:
        inputs = Inputs(temporary)
        page = inputs.page("--baseline", inputs.old_cuda)
        for dark in (False, True):
            for width in (1400, 800):
                browser = Browser(width=width, dark=dark)
                browser.open(page)
                for i in range(browser.run("document.querySelectorAll('#scenarios button').length")):
                    browser.run(f"document.querySelectorAll('#scenarios button')[{i}].click()")
                    browser.run("new Promise(done => setTimeout(done, 400))")
                    browser.picture(os.path.join(folder, f"{'dark' if dark else 'light'}-{width}-{i}.png"))
                print(browser.problems)
                browser.close()


if __name__ == "__main__":
    if "PICTURES" in os.environ:
        take_pictures(os.environ["PICTURES"])
    else:
        unittest.main()
