#!/usr/bin/env python3
"""Compares the tests of a build, and the tier of each, with tests/golden/tests.txt, so that no test is lost.

usage: tiers.py BUILD SOURCE plain|sanitized [--write | --targets]

A line of the golden is "KIND TIER NAME": KIND is the build (plain or sanitized), TIER is commit (each tests/run.sh) or
all (tests/run.sh --all). --write replaces the lines of this build, for a test that is new. --targets prints what the
tests of a commit need, for Ninja: its default target builds what any test needs. Meson runs this test, so Python is
there.
"""
import json
import os
import subprocess
import sys


def introspect(build, what):
    text = subprocess.run(["meson", "introspect", what, build], check=True, capture_output=True, text=True).stdout
    return json.loads(text)


def tests_of(build, kind):
    """Pairs of tier and test."""
    tests = []
    for test in introspect(build, "--tests"):
        suites = {suite.split(":")[-1] for suite in test["suite"]}
        if kind == "plain" or not {"tree", "hosts", "model"} & suites:
            tests.append(("all" if "all" in suites else "commit", test))
    return tests


def targets_of(build, kind):
    """Files that the tests of a commit need, relative to the build."""
    needed = {target for tier, test in tests_of(build, kind) if tier == "commit" for target in test["depends"]}
    return sorted(os.path.relpath(file, os.path.abspath(build)) for target in introspect(build, "--targets")
                  if target["id"] in needed for file in target["filename"])


def main():
    build, source, kind = sys.argv[1:4]
    if "--targets" in sys.argv:
        print("\n".join(targets_of(build, kind)))
        return 0
    path = source + "/tests/golden/tests.txt"
    with open(path, encoding="utf-8") as file:
        lines = set(file.read().splitlines())
    found = {f"{kind} {tier} {test['name']}" for tier, test in tests_of(build, kind)}
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
