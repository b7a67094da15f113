"""hostile.py: `exl2 serve` on a tiny model, while hundreds of connections send a byte now and then and others send
requests that are damaged: in their HTTP, or in their JSON.
takes: hostile.py PROGRAM [MODEL] [COUNT]: MODEL has the tokenizer (EXL2_TEST_MODEL); COUNT damaged requests (800).
gives: exit code 0, 1 (the failed checks are printed) or 77 (no model). Prints what it has measured."""

import collections
import concurrent.futures
import json
import pathlib
import random
import socket
import sys
import tempfile
import threading
import time

from mutants import mutate
from server import Connection, Server, check, model_of, result, run_tests, wait_for
from tiny import write_tiny

SLOW = 400
GOOD_SECONDS = 5.0  # a watchdog; what was measured is printed

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", None]}}, "required": ["a"]}
TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA}}
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}
BODIES = [
    ("/v1/completions", {"prompt": ["a", "b"], "max_tokens": 2, "n": 2, "stop": ["x", "\n"], "logit_bias": {"5": 1.5},
                         "logprobs": 2, "echo": True, "dry_sequence_breakers": "[\"a\"]", "banned_strings": ["q"]}),
    ("/v1/completions", {"prompt": [1, 2, 3], "max_tokens": 2, "stream": True, "regex_pattern": "(a|b)+", "seed": 1}),
    ("/v1/chat/completions", {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": [
        {"type": "text", "text": "é"}]}, {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": "1"}], "tools": [TOOL], "tool_choice": "auto",
        "max_tokens": 2, "stream": True, "stream_options": {"include_usage": True}}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 3, "reasoning_budget": 1,
                              "response_format": {"type": "json_schema", "json_schema": {"name": "n",
                                                                                         "schema": SCHEMA}}}),
    ("/v1/responses", {"input": [{"role": "user", "content": "x"}], "max_output_tokens": 16, "stream": True,
                       "tools": [dict(TOOL["function"], type="function")]}),
    ("/v1/embeddings", {"input": ["a", "b"], "dimensions": 8, "encoding_format": "base64", "user": "u"}),
    ("/v1/token/encode", {"text": "some text", "add_bos_token": True}),
    ("/v1/token/decode", {"tokens": [1, 2, 3]}),
    ("/v1/model/load", {"name": "none", "max_seq_len": 10, "draft": {"draft_model_name": "x"}}),
    ("/v1/sampling/override/switch", {"overrides": {"temperature": {"override": 1, "force": False}}}),
    ("/ui/budget", {"cpu_us": 20000}),
]
SCRAPS = [b"{", b"}", b"[", b"]", b",", b":", b"\"", b"\\", b"\\u", b"\\ud800", b"null", b"-1", b"1e999", b"0.5", b"true",
          b"\x00", b"\xff", b"\xc3", b"\"a\":1,", b"[[[[[[[[", b"{\"a\":" * 70, b"9" * 400, b"{}", b"[]", b"\"\""]


def damaged_json(draw, port):
    path, body = draw.choice(BODIES)
    data = bytearray(json.dumps(body).encode())
    for _ in range(draw.choice((1, 1, 2, 4))):
        at, kind = draw.randrange(len(data) + 1), draw.random()
        if kind < 0.5:
            data[at:at + draw.choice((0, 0, 1, 5))] = draw.choice(SCRAPS)
        elif kind < 0.7:
            del data[at:at + draw.randint(1, 12)]
        elif kind < 0.9:
            data[at:at] = data[at:at + draw.randint(1, 60)]
        else:
            data[at:at + 1] = bytes([draw.randrange(256)])
    head = "POST %s HTTP/1.1\r\nHost: localhost:%d\r\nConnection: close\r\nContent-Type: application/json\r\n" \
           "Content-Length: %d\r\n\r\n" % (path, port, len(data))
    return head.encode() + data


def damaged_http(draw, port):
    host = b"localhost:%d\r\n" % port
    return mutate(draw).replace(b"Host: a\r\n", b"Host: " + host).replace(b"Host: localhost:5000\r\n", b"Host: " + host)


def send(port, data):
    """The statuses of the answers, in order; what comes after the bytes that were sent is no concern."""
    s = socket.create_connection(("127.0.0.1", port), timeout=60)
    got = b""
    try:
        s.sendall(data)
        s.shutdown(socket.SHUT_WR)  # so that a request that is not whole ends
        while piece := s.recv(65536):
            got += piece
    except (ConnectionResetError, BrokenPipeError):  # it answered before it had read all
        pass
    finally:
        s.close()
    return [int(line.split()[1]) for line in got.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]


class SlowOnes:
    """Connections that send a byte every two seconds, and never a whole request."""

    def __init__(self, port, count):
        self.stop = threading.Event()
        self.sockets = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(count)]
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        texts = [b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: " + b"s" * 1000,
                 b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                 b"Content-Length: 1000\r\n\r\n" + b" " * 900]
        for at in range(900):
            for i, s in enumerate(self.sockets):
                try:
                    text = texts[i % 2]
                    begun = text.find(b"\r\n\r\n") + 4 if i % 2 else 0  # a body is late, or a head
                    s.send(text[:begun + 1] if at == 0 else text[begun + at:begun + at + 1])
                except OSError:
                    pass
            if self.stop.wait(2):
                return

    def close(self):
        self.stop.set()
        self.thread.join()
        for s in self.sockets:
            s.close()


def hostile(s):
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 800
    good = {"prompt": "Once", "max_tokens": 5, "temperature": 0, "ban_eos_token": True}
    wanted = s.post("/v1/completions", good).json()["choices"][0]["text"]
    slow = SlowOnes(s.port, SLOW)
    wait_for(lambda: s.figures()["exl2_connections"] > SLOW, 30)
    statuses, waits = collections.Counter(), []
    done = threading.Event()

    def ask():
        while not done.wait(0.05):
            begin = time.monotonic()
            answer = s.post("/v1/completions", good)
            waits.append(time.monotonic() - begin)
            check(answer.status == 200 and answer.json()["choices"][0]["text"] == wanted, "a good request: %s" % answer.body)

    def damage(seed):
        draw = random.Random(seed)
        data = (damaged_http if draw.random() < 0.5 else damaged_json)(draw, s.port)
        got = send(s.port, data)
        check(all(100 <= x < 500 or x == 501 for x in got), "%r: %r" % (data, got))
        return got[-1:] or [0]

    asker = threading.Thread(target=ask)
    asker.start()
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        for got in threads.map(damage, range(count)):
            statuses.update(got)
    done.set()
    asker.join()
    slow.close()
    check(statuses[200] > count // 50 and statuses[400] > count // 10, "some are still good, many are not: %r" % statuses)
    check(max(waits) < GOOD_SECONDS, "a good request took %.2f s" % max(waits))
    wait_for(lambda: s.figures()["exl2_connections"] == 1 and s.figures()["exl2_jobs_active"] == 0, 30)
    print("%d damaged requests beside %d slow connections: %s; a good request took %.0f ms at most, %.0f in the median"
          % (count, SLOW, dict(sorted(statuses.items())), 1000 * max(waits), 1000 * sorted(waits)[len(waits) // 2]))


def crowd(s):
    """More connections than there are places: the oldest that have sent no whole request go, and others are served."""
    slow = SlowOnes(s.port, 520)
    begin = time.monotonic()
    check(s.get("/health").status == 200, "a good request beside 520 slow ones")
    check(time.monotonic() - begin < GOOD_SECONDS, "soon")
    check(s.figures()["exl2_connections"] <= 512, "512 connections at most")
    late = Connection(s.port, "GET", "/health", send=False)
    late.socket.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n")
    check(late.read_until(b"\r\n\r\n") and b" 408 " in late.data, "a head that does not come is a 408: %r" % late.data)
    late.close()
    slow.close()


def main():
    source = model_of(sys.argv)
    with tempfile.TemporaryDirectory(prefix="exl2-tiny-") as folder:
        model = write_tiny(source, pathlib.Path(folder) / "tiny")
        with Server(sys.argv[1], "--no-auth", "--models", folder, model=model) as s:
            run_tests(s, (hostile, crowd))
    return result()


if __name__ == "__main__":
    sys.exit(main())
