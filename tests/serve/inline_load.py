"""inline_load.py: `exl2 serve --inline-load`: requests of an admin load the model that they name; others do not, and get
503 meanwhile; streams of the model before end first.
takes: inline_load.py PROGRAM GOLDEN [stop]: GOLDEN is tests/golden; stop: what a signal does, alone.
gives: exit code 0 or 1 (the failed checks are printed)."""

import concurrent.futures
import pathlib
import subprocess
import sys
import tempfile

from lost import write_model
from server import BACKEND, Server, check, result, run_tests, wait_for


def ask(s, name, admin=True, **more):
    headers = {"x-admin-key": s.keys["admin_key"]} if admin else {"x-api-key": s.keys["api_key"]}
    return s.post("/v1/completions", dict({"model": name, "prompt": "Once", "max_tokens": 3}, **more), **headers)


def model(s):
    return s.get("/v1/model", **{"x-api-key": s.keys["api_key"]}).json().get("id")


def names(s):
    check(ask(s, "two", admin=False).json()["model"] == "one" and model(s) == "one", "an API key loads nothing")
    for name in ("", "../one", "three", "no such", None):
        check(ask(s, name).json()["model"] == "one", "no model of the folder: %r" % name)
    check(ask(s, "two").json()["model"] == "two" and model(s) == "two", "an admin key does")
    check(ask(s, "two").json()["model"] == "two", "it is loaded already")
    chat = s.post("/v1/chat/completions", {"model": "one", "messages": 3}, **{"x-admin-key": s.keys["admin_key"]})
    check(chat.status == 400 and model(s) == "one", "a bad request is one after the load: %s" % chat.body)


def templates(s):
    """A template is one of the folder's files, and no path."""
    def switch(name):
        return s.post("/v1/template/switch", {"prompt_template_name": name}, **{"x-admin-key": s.keys["admin_key"]}).status
    for name in ("README.md", "one", "../plain", "./plain", "plain.jinja", "x" * 300):
        check(switch(name) == 400, "no template of the folder: %r" % name)
    check(switch("plain") == 200, "one of the folder")
    listed = s.get("/v1/templates", **{"x-admin-key": s.keys["admin_key"]}).json()["data"]
    check(listed[0] == "plain", "it is in use: %s" % listed)
    check(switch("default") == 200, "the model's own again")


def streams(s):
    """A stream ends before its model goes; who comes meanwhile hears to come again."""
    stream = s.open("POST", "/v1/completions", {"prompt": "Once", "max_tokens": 7000, "stream": True, "ban_eos_token": True},
                    {"x-api-key": s.keys["api_key"]})
    stream.read_until(b"data: ")
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        second = threads.submit(ask, s, "two")
        busy = wait_for(lambda: (lambda a: a.status == 503 and a)(ask(s, "one", admin=False, max_tokens=1)), 30)
        check(busy.headers.get("retry-after") == "1", "503 says when to come again")
        events = stream.answer().events()
        check(events[-1] == "[DONE]" and events[-2]["choices"][0]["finish_reason"] == "length", "it is whole: %s" % events[-2:])
        check(second.result().json()["model"] == "two", "then the other model is loaded")
        several = [threads.submit(ask, s, name) for name in ("one", "two", "one", "two")]
        check([a.result().json()["model"] for a in several] == ["one", "two", "one", "two"], "each waits for its own")


def failures(s):
    bad = ask(s, "broken")
    check(bad.status == 503 and "safetensors" in bad.json()["error"]["message"], "the reason: %s" % bad.body)
    check(ask(s, "one").json()["model"] == "one", "another one can be loaded then")
    gone = s.open("POST", "/v1/completions", {"model": "two", "prompt": "Once"}, {"x-admin-key": s.keys["admin_key"]})
    gone.close(reset=True)
    wait_for(lambda: ask(s, "two").status == 200 and model(s) == "two", 30)


def stop(s):
    """A signal, while a client reads nothing and another one waits for a model: six seconds."""
    stream = s.open("POST", "/v1/completions", {"prompt": "Once", "max_tokens": 7000, "stream": True,
                                                "ban_eos_token": True}, {"x-api-key": s.keys["api_key"]})
    stream.read_until(b"data: ")
    waits = s.open("POST", "/v1/completions", {"model": "two", "prompt": "x"}, {"x-admin-key": s.keys["admin_key"]})
    wait_for(lambda: ask(s, "one", admin=False, max_tokens=1).status == 503, 30)
    s.process.terminate()
    answer = waits.answer()
    check(answer.status == 503 and b"shutting down" in answer.body, "who waits hears of it: %s" % answer.body)
    check(s.process.wait(30) == 0, "a signal ends it, also with a client that reads nothing")


def flags(program, model):
    """Flags that would let the server start, but not serve as they say."""
    for more, code, words in (
            (["--inline-load"], 2, b"needs --models DIR"),
            (["--queue", "0"], 2, b"--queue must be at least 1"),
            (["--cors", "*"], 2, b"--cors must be an origin such as"),
            (["--cors", "http://127.0.0.1:8000/"], 2, b"--cors must be an origin such as"),
            (["--models", model + "/none"], 1, b"there is no such folder"),
            (["--loras", model + "/none"], 1, b"there is no such folder"),
            ([model + "/../one"], 1, b"two of the models have the name 'one'")):
        ended = subprocess.run([program, "serve", model, "--port", "0", "--no-auth", "--backend", BACKEND, *more],
                               capture_output=True, timeout=60)
        check(ended.returncode == code and words in ended.stderr, "%s: %s" % (more, ended.stderr))


def main():
    program, golden = sys.argv[1], pathlib.Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        one = write_model(golden / "models" / "exl2-mixed", folder / "one")
        write_model(golden / "models" / "exl2-mixed", folder / "two")
        write_model(golden / "models" / "exl2-mixed", folder / "broken")
        (folder / "broken" / "output.safetensors").unlink()
        (folder / "plain.jinja").write_text("{{ messages[0].content }}")
        with Server(program, "--backend", BACKEND, "--context", "8000", "--models", name, "--inline-load", model=one) as s:
            if "stop" in sys.argv:
                stop(s)
                return result()
            run_tests(s, [names, templates, streams, failures])
        flags(program, one)
    return result()


if __name__ == "__main__":
    sys.exit(main())
