"""load.py: `exl2 serve` with many clients that come, leave, read slowly and are too many, on a tiny model.
takes: load.py PROGRAM [MODEL] [SECONDS]: MODEL has the tokenizer (EXL2_TEST_MODEL); 64 clients stream for SECONDS
       (4; 10 with EXL2_TEST_ALL).
gives: exit code 0, 1 (the failed checks are printed) or 77 (no model). Prints what it has measured."""

import concurrent.futures
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

from server import Connection, Server, check, model_of, result, run_tests, wait_for
from tiny import write_tiny

LEFT_TOKENS = 3000  # that a client wants who leaves


def jobs(s):
    f = s.figures()
    return f["exl2_jobs_active"] + f["exl2_jobs_waiting"] + f["exl2_queue"]


def tokens(s):
    return s.figures()["exl2_tokens_generated_total"]


def leaves(s):
    """Closed and reset connections: in the queue, in prefill and in decode, streaming or not."""
    slowest = most = 0
    for prompt in ("Once", "word " * 3000):
        for stream in (True, False):
            for reset in (True, False):
                one = s.open("POST", "/v1/completions", {"prompt": prompt, "max_tokens": LEFT_TOKENS // 3, "n": 3, "stream": stream,
                                                         "ban_eos_token": True, "seed": 1})
                wait_for(lambda: jobs(s) > 0, pause=0.001)
                one.close(reset)
                begin, before = time.monotonic(), tokens(s)
                wait_for(lambda: jobs(s) == 0, pause=0.001)
                slowest = max(slowest, time.monotonic() - begin)
                most = max(most, tokens(s) - before)
    check(most < LEFT_TOKENS / 2, "jobs end when their client leaves, not %d tokens later" % most)
    print("jobs of a client that left are gone after %.0f ms and %d tokens at most" % (1000 * slowest, most))


def slow_reader(s):
    """A client that does not read pauses its jobs; nothing is lost, and others go on."""
    body = {"prompt": "Once", "max_tokens": 3000, "stream": True, "ban_eos_token": True, "temperature": 1, "seed": 3, "logprobs": 20}
    slow = s.open("POST", "/v1/completions", body, narrow=True)
    before = -1

    def stands_still():
        nonlocal before
        now = tokens(s)
        still, before = now == before, now
        return still

    wait_for(stands_still, pause=0.3)
    check(jobs(s) == 1, "the job waits")
    check(s.post("/v1/completions", {"prompt": "x", "max_tokens": 5}).status == 200, "others go on")
    events = slow.answer().events()
    check(events[-1] == "[DONE]" and sum(len(e["choices"][0]["logprobs"]["tokens"]) for e in events[:-1]
                                         if e["choices"][0].get("logprobs")) == 3000, "no token is lost")


def queue(s):
    """More requests than may wait: the last ones get a 429 with Retry-After."""
    opened = [s.open("POST", "/v1/completions", {"prompt": "Once", "max_tokens": 3000, "ban_eos_token": True,
                                                 "seed": 1}) for _ in range(64 + 8)]
    wait_for(lambda: jobs(s) >= 72)
    for _ in range(50):  # also while the engine's thread starts those that have a place
        extra = s.post("/v1/completions", {"prompt": "Once", "max_tokens": 5})
        check(extra.status == 429 and extra.json()["error"]["code"] == "queue_full" and extra.headers.get("retry-after"),
              "a full queue is a 429: %d %s" % (extra.status, extra.body[:300]))
    vector = s.post("/v1/embeddings", {"input": "x"})
    check(vector.status == 429 and vector.json()["error"]["type"] == "rate_limit_error"
          and vector.headers.get("retry-after"), "and for a vector: %d %s" % (vector.status, vector.body[:300]))
    check(s.get("/health").status == 200, "health answers meanwhile")
    opened[-1].close(True)
    wait_for(lambda: s.figures()["exl2_queue"] == 7)  # one that waits is gone at once
    for one in opened[:-1]:
        one.close(True)
    wait_for(lambda: jobs(s) == 0)


def stream_tokens(s, seed, stop):
    """Streams until `stop`; returns how many tokens whole streams had, and streams without an end."""
    tokens = broken = 0
    chance = random.Random(seed)
    while not stop.is_set():
        body = {"prompt": "Client %d says" % seed, "max_tokens": chance.randint(20, 80), "stream": True,
                "ban_eos_token": True, "seed": seed, "stream_options": {"include_usage": True}}
        events = s.post("/v1/completions", body).events()
        if not events or events[-1] != "[DONE]":
            broken += 1
            continue
        tokens += events[-2]["usage"]["completion_tokens"]
    return tokens, broken


def ask_health(port, seconds):
    """A process of its own, which the clients' threads do not hold up. Prints how long each answer took."""
    waits, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        begin = time.monotonic()
        assert Connection(port, "GET", "/health").answer().status == 200, "healthy under load"
        waits.append(time.monotonic() - begin)
        time.sleep(0.02)
    print(json.dumps(waits))


def load(s):
    """64 streaming clients; /health beside them; tokens that clients count are those of the server."""
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 10 if os.environ.get("EXL2_TEST_ALL") else 4
    stop = threading.Event()
    before = s.figures()
    with concurrent.futures.ThreadPoolExecutor(64) as threads:
        clients = [threads.submit(stream_tokens, s, i, stop) for i in range(64)]
        health = subprocess.Popen([sys.executable, __file__, "--health", str(s.port), str(seconds)],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(seconds / 2)
        middle = s.figures()
        waits, why = health.communicate()
        stop.set()
        results = [c.result() for c in clients]
    after = s.figures()
    counted = sum(r[0] for r in results)
    generated = after["exl2_tokens_generated_total"] - before["exl2_tokens_generated_total"]
    check(counted == generated, "clients counted %d tokens, the server %d" % (counted, generated))
    check(sum(r[1] for r in results) == 0, "no stream without [DONE]")
    check(health.returncode == 0, "healthy under load: %s" % why.decode()[-300:])
    waits = sorted(json.loads(waits or b"[9]"))

    def grown(name, since, scale=1):
        return (after[name] - since[name]) * scale / 2 ** 20

    print("%d tokens in %.0f s; health p99 %.1f ms; resident %+.1f MiB (in the second half %+.1f), pages in use or kept "
          "%+.1f MiB" % (counted, seconds, 1000 * waits[len(waits) * 99 // 100],
                         grown("process_resident_memory_bytes", before), grown("process_resident_memory_bytes", middle),
                         grown("exl2_pages_cached", before, after["exl2_page_bytes"])))


def loads(s):
    """An admin unloads and loads the model while clients talk; each gets an answer or an error."""
    streams = [s.open("POST", "/v1/completions", {"prompt": "Once", "max_tokens": 3000, "stream": True, "logprobs": 20,
                                                  "ban_eos_token": True}, narrow=True) for _ in range(4)]
    wait_for(lambda: jobs(s) == 4)
    check(s.post("/v1/model/unload", {}).status == 200, "unload")
    for one in streams:
        answer = one.answer()
        events = answer.events()
        if answer.status == 503:  # it had not begun
            continue
        check(events[-1] == "[DONE]" and "error" in events[-2], "a stream ends with an error: %r" % events[-2:])
    wait_for(lambda: s.get("/health").status == 503)
    check(s.post("/v1/completions", {"prompt": "x"}).status == 503, "no model: 503")
    answer = s.post("/v1/model/load", {"name": "tiny", "max_seq_len": 1024})
    events = answer.events()
    check(answer.status == 200 and events[-1]["status"] == "finished", "load tells its progress: %r" % events[-2:])
    check(s.get("/v1/model").json()["parameters"]["max_seq_len"] == 1024, "with its context")
    check(s.post("/v1/completions", {"prompt": "x", "max_tokens": 3}).status == 200, "and answers")
    check(s.post("/v1/model/load", {"name": "tiny"}).events()[-1]["status"] == "finished", "a loaded model is finished")
    check(s.post("/v1/model/load", {"name": "../tiny"}).status == 404, "a name is no path")
    preset = {"overrides": {"max_tokens": {"override": 2, "force": True}}}
    check(s.post("/v1/sampling/override/switch", preset).status == 200, "overrides")
    check(s.post("/v1/completions", {"prompt": "x", "max_tokens": 9, "ban_eos_token": True}).json()["usage"]
          ["completion_tokens"] == 2, "are used")
    s.post("/v1/sampling/override/unload", {})


def watches(s):
    one = s.open("GET", "/ui/watch")
    one.read_until(b"step_us")
    one.read_until(b"}\n\n")
    check(s.post("/ui/budget", {"cpu_us": 5000}).json()["cpu_us"] == 5000, "a budget")
    one.close()


def stop(s):
    """SIGTERM: a stream may end, a long one is cut off with an error after five seconds."""
    short = s.open("POST", "/v1/completions", {"prompt": "x", "max_tokens": 50, "stream": True, "ban_eos_token": True})
    short.read_until(b"data: ")
    s.process.send_signal(signal.SIGTERM)
    check(short.answer().events()[-1] == "[DONE]", "a stream ends by itself")
    check(s.process.wait(30) == 0, "and the server with 0")


def main():
    source = model_of(sys.argv)
    with tempfile.TemporaryDirectory(prefix="exl2-tiny-") as folder:
        model = write_tiny(source, pathlib.Path(folder) / "tiny")
        with Server(sys.argv[1], "--no-auth", "--queue", "8", "--models", folder, model=model) as s:
            run_tests(s, (leaves, slow_reader, queue, load, watches, loads))
            stop(s)
    return result()


if __name__ == "__main__":
    sys.exit(ask_health(int(sys.argv[2]), float(sys.argv[3])) if sys.argv[1] == "--health" else main())
