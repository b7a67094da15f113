#!/usr/bin/env python3
"""figures_test.py: figures.py on small files: what is collected, what counts as a fall, which files are rejected.

    figures_test.py

takes: figures.py beside it.
gives: exit code 0 or 1."""
import io
import json
import os
import sys
import tempfile
import unittest
from contextlib import redirect_stderr, redirect_stdout

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import figures  # noqa: E402 (its folder is known only now)


def bench(speed, cpu_us=2.0):
    return {"device": {"name": "GPU"}, "runs": [
        {"prefill_tok_s": 5000.0, "tokens": 512, "batch": 1, "context": 0, "cache": "fp16", "cpu_us_per_token": 0.5},
        {"decode_tok_s": speed, "tokens": 256, "batch": 32, "context": 128, "cache": "fp16",
         "cpu_us_per_token": cpu_us, "read_share": 0.25}]}


class FiguresTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def write(self, name, data):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(data if isinstance(data, str) else json.dumps(data))
        return path

    def run_main(self, *arguments):
        """Exit code, and what was printed."""
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = figures.main(list(arguments))
        return code, out.getvalue() + err.getvalue()

    def collected(self, name, speed, cpu_us=2.0, card="H200", driver="580"):
        part = self.write("part", bench(speed, cpu_us))
        out = os.path.join(self.folder, name)
        self.assertEqual(self.run_main("collect", out, card, driver, "abc", part + "=8B"), (0, ""))
        return out

    def test_collect(self):
        with open(self.collected("a", 1000.0), encoding="utf-8") as file:
            made = json.load(file)
        self.assertEqual((made["card"], made["driver"], made["commit"]), ("H200", "580", "abc"))
        self.assertEqual(made["rows"][1], {
            "model": "8B", "kind": "decode", "cache": "fp16", "tokens": 256, "batch": 32, "context": 128,
            "tokens_per_second": 1000.0, "cpu_us_per_step": 64.0, "read_share": 0.25})
        self.assertEqual(made["rows"][0]["cpu_us_per_step"], 256.0)

    def test_fall(self):
        before = self.collected("a", 1000.0)
        for speed, code in ((1100.0, 0), (981.0, 0), (979.0, 1), (0.0, 1)):
            got, said = self.run_main("compare", before, self.collected("b", speed))
            self.assertEqual((got, "fell by" in said), (code, code == 1), said)
        code, said = self.run_main("compare", before, self.collected("b", 900.0), "15")
        self.assertEqual(code, 0, said)

    def test_cpu_time(self):
        before = self.collected("a", 1000.0)  # 64 us a step
        for cpu_us, code in ((2.1, 0), (1.0, 0), (31.0, 1)):
            got, said = self.run_main("compare", before, self.collected("b", 1000.0, cpu_us))
            self.assertEqual((got, "more CPU time" in said), (code, code == 1), said)

    def test_missing(self):
        before, after = self.collected("a", 1000.0), self.collected("b", 1000.0)
        with open(after, encoding="utf-8") as file:
            made = json.load(file)
        made["rows"].pop()
        code, said = self.run_main("compare", before, self.write("b", made))
        self.assertEqual((code, "missing: 8B, 32 sequences after 128 tokens" in said), (1, True), said)

    def test_other_card(self):
        before = self.collected("a", 1000.0)
        for card, driver in (("H100", "580"), ("H200", "570")):
            code, said = self.run_main("compare", before, self.collected("b", 1000.0, card=card, driver=driver))
            self.assertEqual(code, 2)
            self.assertIn("are of different", said)
        code, said = self.run_main("table", before, self.collected("b", 1000.0, card="H100"))
        self.assertEqual(code, 2, said)

    def test_table(self):
        code, said = self.run_main("table", self.collected("a", 12345.6))
        self.assertEqual(code, 0)
        self.assertIn("H200, driver 580, commit abc", said)
        self.assertIn("| 8B | prompt of 512 | 5,000 | - | - |", said)
        self.assertIn("| 8B | 32 sequences after 128 tokens | 12,346 | 25% | 64 |", said)

    def test_wrong(self):
        good = self.collected("a", 1000.0)
        row = json.loads(json.dumps(bench(1.0)))
        row["runs"][1]["decode_tok_s"] = "fast"
        for text in ("", "[]", "{}", "{\"rows\": []}", "{\"rows\": [1], \"card\": \"a\", \"driver\": \"b\", "
                     "\"commit\": \"c\"}", "{\"runs\": []}", row):
            bad = self.write("bad", text)
            for arguments in (("compare", good, bad), ("compare", bad, good), ("table", bad),
                              ("collect", os.path.join(self.folder, "out"), "c", "d", "e", bad + "=m")):
                code, said = self.run_main(*arguments)
                self.assertEqual(code, 2, said)
                self.assertEqual(said.count("\n"), 1, said)
        for arguments in ((), ("compare", good), ("table",), ("compare", good, good, "much"),
                          ("compare", good, good, "-1"), ("collect", "o", "c", "d", "e", good)):
            self.assertEqual(self.run_main(*arguments)[0], 2, arguments)


if __name__ == "__main__":
    unittest.main()
