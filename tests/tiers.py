#!/usr/bin/env python3
"""Compares the tests of a build, and the tier of each, with tests/golden/tests.txt, so that no test is lost.

usage: tiers.py BUILD SOURCE plain|sanitized [--write]

A line of the golden is "KIND TIER NAME": KIND is the build (plain or sanitized), TIER is commit (each tests/run.sh) or
all (tests/run.sh --all). --write replaces the lines of this build, for a test that is new. Meson runs this test, so
Python is there.
"""
import json
import subprocess
import sys


def tests_of(build, kind):
    text = subprocess.run(["meson", "introspect", "--tests", build], check=True, capture_output=True, text=True).stdout
    names = set()
    for test in json.loads(text):
        suites = [suite.split(":")[-1] for suite in test["suite"]]
        runs = kind == "plain" or not {"tree", "hosts", "model"} & set(suites)
        if runs:
            names.add(f"{kind} {'all' if 'all' in suites else 'commit'} {test['name']}")
    return names


def main():
    build, source, kind = sys.argv[1:4]
    path = source + "/tests/golden/tests.txt"
    with open(path, encoding="utf-8") as file:
        lines = set(file.read().splitlines())
    found = tests_of(build, kind)
    if "--write" in sys.argv:
        kept = {line for line in lines if line and not line.startswith(kind + " ")}
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(sorted(kept | found)) + "\n")
        return 0
    wanted = {line for line in lines if line.startswith(kind + " ")}
    for line in sorted(wanted - found):
        print("missing:", line)
    for line in sorted(found - wanted):
        print("not in tests/golden/tests.txt:", line)
    return wanted != found


sys.exit(main())
