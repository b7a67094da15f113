"""faults.py: `exl2 serve` on a tiny model while one call of the system fails: the first allocation, accept, read, write or
poll that some requests make, then the second, and so on. No answer is missing or wrong without an error, and after each
one the server has no jobs, pages or connections left, and answers as before.
takes: faults.py PROGRAM LIBRARY [all]: LIBRARY is faults_preload; all: every allocation, not some of them. The tokenizer
       is that of EXL2_TEST_MODEL.
gives: exit code 0, 1 (the failed checks are printed) or 77 (no model). Prints how many calls were made to fail."""

import concurrent.futures
import json
import mmap
import pathlib
import re
import struct
import sys
import tempfile

from server import MODEL, Server, check, result, skip, wait_for
from tiny import write_tiny

CALLS = ("malloc", "accept", "read", "write", "poll")  # as faults_preload.c counts them, from 1 on
GREEDY = {"temperature": 0, "max_tokens": 12}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {
    "type": "object", "properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"]}}}
ASK = [{"role": "user", "content": "Hello there."}]
CALL_ID = re.compile("call_[0-9a-f]{24}")
REQUESTS = (
    ("POST", "/v1/completions", dict(GREEDY, prompt=["One", "Two"], n=2, logprobs=2, echo=True)),
    ("POST", "/v1/completions", dict(GREEDY, prompt="word " * 5000)),  # longer than the context, and than 16 KiB
    ("POST", "/v1/chat/completions", dict(GREEDY, messages=ASK, stream=True, stream_options={"include_usage": True},
                                          logprobs=True, top_logprobs=1)),
    ("POST", "/v1/chat/completions", dict(GREEDY, messages=ASK, tools=[TOOL], tool_choice="required", max_tokens=60)),
    ("POST", "/v1/chat/completions", dict(GREEDY, messages=ASK, reasoning_budget=3, response_format={
        "type": "json_schema", "json_schema": {"name": "n", "schema": TOOL["function"]["parameters"]}})),
    ("POST", "/v1/responses", {"input": "Hello.", "max_output_tokens": 16, "stream": True, "temperature": 0,
                               "include": ["message.output_text.logprobs"], "top_logprobs": 1}),
    ("POST", "/v1/embeddings", {"input": ["One", "Two"], "encoding_format": "base64", "dimensions": 8}),
    ("POST", "/v1/token/encode", {"text": ASK}),
    ("GET", "/v1/models", None), ("GET", "/metrics", None), ("GET", "/ui/sessions", None),
)


class Faults:
    def __init__(self, folder):
        self.path = folder / "faults"
        self.path.write_bytes(bytes(24))
        with open(self.path, "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), 24)

    def set(self, call, at):
        self.memory[:24] = struct.pack("<QQQ", 0, at, 0)
        self.memory[:8] = struct.pack("<Q", call)

    def made(self):
        return struct.unpack("<Q", self.memory[16:24])[0]


def ask(s, row):
    """The answer without what differs each time; None: there is none."""
    method, path, body = row
    try:
        answer = s.ask(method, path, body)
    except (OSError, IndexError, AssertionError):  # the connection has ended, perhaps in the middle
        return None
    if answer.status != 200 or path == "/metrics":
        return answer.status, ""
    if not answer.body.startswith((b"data:", b"event:")):
        whole = answer.json()
        return 200, CALL_ID.sub("", json.dumps(whole.get("choices", whole)))
    events = [e for e in answer.events() if isinstance(e, dict)]
    if any("error" in e or e.get("type") == "error" for e in events):
        return 500, ""
    if path == "/v1/responses":
        return 200, "".join(e.get("delta", "") for e in events) + events[-1]["type"]
    return 200, json.dumps([e["choices"] for e in events])


def attempt(s, faults, call, at, wanted):
    """How many calls were made."""
    faults.set(call, at)
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        leaves = s.open("POST", "/v1/completions", dict(GREEDY, prompt="x", max_tokens=3000, ban_eos_token=True))
        got = list(threads.map(lambda row: ask(s, row), REQUESTS))
        leaves.close()
    made = faults.made()
    faults.set(0, 0)
    for row, one, right in zip(REQUESTS, got, wanted):
        if one and one != right and one[0] not in (400, 500, 503):
            at_byte = next((i for i, (a, b) in enumerate(zip(one[1], right[1])) if a != b), 0)
            check(False, "%s %d, %s: %d, %r in place of %r" % (CALLS[call - 1], at, row[1], one[0], one[1][at_byte:][:80],
                                                               right[1][at_byte:][:80]))
    if s.process.poll() is not None:
        raise SystemExit("%s %d: the server ended with %d: %s" % (CALLS[call - 1], at, s.process.returncode,
                                                                 s.process.stderr.read().decode()))
    wait_for(lambda: s.figures().items() >= {"exl2_jobs_active": 0, "exl2_jobs_waiting": 0, "exl2_queue": 0,
                                             "exl2_pages_used": 0, "exl2_connections": 1}.items(), 30)
    return made


def main():
    program, library = sys.argv[1:3]
    every = sys.argv[3:] == ["all"]
    if not MODEL:
        skip("EXL2_TEST_MODEL names no model")
    with tempfile.TemporaryDirectory(prefix="exl2-tiny-") as name:
        folder = pathlib.Path(name)
        faults, model = Faults(folder), write_tiny(MODEL, folder / "tiny")
        env = {"LD_PRELOAD": library, "SERVE_FAULTS": str(faults.path)}
        with Server(program, "--no-auth", "--threads", "1", "--sessions", name, model=model, more_env=env) as s:
            wanted = [ask(s, row) for row in REQUESTS]
            check([row[0] for row in wanted] == [200, 400] + [200] * 9, "without faults: %r" % wanted)
            for call, what in enumerate(CALLS, 1):
                at, tried, made = 1, 0, 1
                while made >= at:
                    made = attempt(s, faults, call, at, wanted)
                    tried += made >= at
                    at += 1 if every else 1 + at // 5
                print("%s: %d calls failed, of %d" % (what, tried, made), flush=True)
                check(tried > 3, "some calls failed")
            again = [ask(s, row) for row in REQUESTS]
            check(again == wanted, "the answers are those of before")
            s.process.terminate()
            check(s.process.wait(30) == 0, "a signal ends it with 0")
    return result()


if __name__ == "__main__":
    sys.exit(main())
