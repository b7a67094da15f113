"""page_test.py: the page of `exl2 serve` in chromium, driven by the names that scripts and screen readers find.
takes: page_test.py OUT [--only NAME] [--server PROGRAM [MODEL]] [--fixture NAME]: OUT is a folder for screenshots.
       Without --server the page talks to page_mock.py; with it, to `PROGRAM serve MODEL`. MODEL is EXL2_TEST_MODEL if it
       is not given; --fixture names a model of the shared fixtures (EXL2_TEST_DATA) instead.
gives: exit code 0, 1 (the failed checks are printed) or 77 (skipped; the reason is printed)."""

import argparse
import os
import pathlib
import sys
import time
import traceback

import browser as browsers
from page_chats import ChatTests
from page_mock import Mock
from page_panels import PanelTests
from page_pictures import PictureTests
from page_rig import Real
from server import check, result

PAGE = pathlib.Path(__file__).resolve().parents[2] / "demo" / "serve" / "page"
PAGE_BYTES_MAX = 150 * 1024

# Lines of the console that a test provokes: the browser reports every answer that is no success.
EXPECTED = ("status of 401", "status of 404", "status of 409", "ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED",
            "ERR_CONNECTION_RESET", "ERR_SOCKET_NOT_CONNECTED", "ERR_EMPTY_RESPONSE", "status of 503", "status of 403", "status of 400")


class Tests(ChatTests, PanelTests, PictureTests):
    """All tests, run in the order of their names."""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--server", nargs="+", default=[])
    parser.add_argument("--fixture", default="")
    given = parser.parse_args()
    out, only = given.out, given.only
    model = os.environ.get("EXL2_TEST_MODEL")
    if given.fixture:
        data = os.environ.get("EXL2_TEST_DATA") or PAGE.parents[3] / "shared"
        model = pathlib.Path(data) / "fixtures" / given.fixture
        model = str(model) if model.exists() else None
    program, model = (given.server + [model])[:2] if given.server else (None, None)
    reason = browsers.skip_reason() or ("there is no model" if program and not model else None)
    if reason:
        print("skipped:", reason)
        return 77
    out.mkdir(parents=True, exist_ok=True)
    size = sum(file.stat().st_size for file in PAGE.iterdir())
    check(size <= PAGE_BYTES_MAX, f"the page has {size} bytes")
    if program:
        start = lambda **how: Real(program, model, **how)
    else:
        start = lambda **how: Mock(PAGE, **how)
    b = browsers.Browser()
    tests = Tests(b, start, out)
    try:
        for name in [name for name in dir(Tests) if name.startswith("test_") and only in name]:
            begun = time.monotonic()
            try:
                getattr(tests, name)()
                errors = [line for line in b.console_errors() if not any(e in line for e in EXPECTED)]
                check(errors == [], f"{name}: the console has no error: {errors[:3]}")
                own = tuple(tests.addresses) + ("about:", "data:")
                elsewhere = [url[:200] for url in b.requested() if not url.startswith(own)]
                check(elsewhere == [], f"{name}: nothing is asked elsewhere: {elsewhere[:3]}")
            except Exception as error: # a test that cannot go on is one failure; the others still run
                check(False, f"{name}: {error.__class__.__name__}: {str(error).splitlines()[0]}")
                traceback.print_exc()
                b.shot(out / f"{name}.png")
                b.console_errors()
                b.requested()
            print(f"{name}: {time.monotonic() - begun:.1f} s", flush=True)
    finally:
        if tests.server:
            tests.server.stop()
        b.close()
    return result()


if __name__ == "__main__":
    sys.exit(main())
