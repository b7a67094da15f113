"""cost.py: processor time of a token by `exl2 serve` and by `exl2 bench` of the same shape, side by side. By hand.
takes: cost.py PROGRAM [MODEL] [ROUNDS]; the model of EXL2_TEST_MODEL, both on the CPU with one thread.
gives: how long the first byte of a stream takes; a line for 1, 8 and 16 streams: medians of ROUNDS (3) in turns, and the
       part of the I/O thread."""

import concurrent.futures
import json
import os
import statistics
import subprocess
import sys
import time

from server import MODEL, Server, skip

TOKENS = 128
PROMPT = "Once"
STREAM = {"prompt": PROMPT, "max_tokens": TOKENS, "ban_eos_token": True, "temperature": 0, "stream": True}


def thread_seconds(pid):
    """Processor seconds of each thread; the first one is the I/O thread."""
    found = []
    for task in sorted(os.listdir("/proc/%d/task" % pid), key=int):
        run_ns = open("/proc/%d/task/%s/schedstat" % (pid, task)).read().split()[0]
        found.append(int(run_ns) * 1e-9)
    return found


def serve(s, streams):
    """Microseconds of processor time a token: of all threads, of the I/O thread."""
    with concurrent.futures.ThreadPoolExecutor(streams) as threads:
        before, tokens = thread_seconds(s.process.pid), s.figures()["exl2_tokens_generated_total"]
        list(threads.map(lambda _: s.post("/v1/completions", STREAM).status, range(streams)))
        after, tokens = thread_seconds(s.process.pid), s.figures()["exl2_tokens_generated_total"] - tokens
    return 1e6 * (sum(after) - sum(before)) / tokens, 1e6 * (after[0] - before[0]) / tokens


def bench(program, model, streams):
    out = subprocess.run([program, "bench", model, "--backend", "cpu", "--threads", "1", "--prefill", "0", "--batch",
                          str(streams), "--decode", str(TOKENS), "--json"], capture_output=True, check=True).stdout
    row = next(r for r in json.loads(out)["runs"] if "decode_tok_s" in r)
    return row["cpu_us_per_token"]


def first_bytes(s, rounds=300):
    """Milliseconds from a request, its connection included, to the first byte of its stream, which comes before any pass
    of the model: the median, the 99th percentile."""
    waits = []
    for i in range(rounds):
        begin = time.monotonic()
        one = s.open("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello %d" % i}],
                                                      "max_tokens": 1, "stream": True})
        one.read_until(b"data: ")
        waits.append(1000 * (time.monotonic() - begin))
        one.answer()
    waits.sort()
    return waits[rounds // 2], waits[rounds * 99 // 100]


def main():
    model = sys.argv[2] if len(sys.argv) > 2 else MODEL
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    if not model:
        skip("EXL2_TEST_MODEL names no model")
    with Server(sys.argv[1], "--no-auth", "--backend", "cpu", "--threads", "1", "--cpu-us", "0", model=model) as s:
        serve(s, 16)
        print("first byte of a stream, idle: %.2f ms in the median, p99 %.2f" % first_bytes(s), flush=True)
        for streams in (1, 8, 16):
            rows = [serve(s, streams) + (bench(sys.argv[1], model, streams),) for _ in range(rounds)]
            whole, own, plain = (statistics.median(column) for column in zip(*rows))
            print("%2d streams: %.0f us a token, of them %.1f the I/O thread's; bench %.0f: %.3f" %
                  (streams, whole, own, plain, whole / plain), flush=True)


if __name__ == "__main__":
    sys.exit(main())
