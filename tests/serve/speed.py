"""speed.py: tokens/s of `exl2 serve` and of `exl2 bench` with the same model, in turns; what the server adds to a step, to
the first byte and to the end of jobs whose client left; /health beside 16 streams. By hand, on a GPU.
takes: speed.py PROGRAM MODEL [ROUNDS [FLAGS...]]: MODEL may be of `exl2 synth` and have no tokenizer; FLAGS are for both
       programs, for example --backend cuda. One thread reads all streams.
gives: a line for each number of streams, and exit code 1 if the server has less than 97 % of bench's tokens/s."""

import json
import pathlib
import selectors
import statistics
import subprocess
import sys
import tempfile
import time

from lost import byte_tokenizer
from server import Server, wait_for

TOKENS = 256
SHARE = 0.97  # of bench's tokens/s


def with_tokenizer(model, folder):
    """The model's files and, if it has none, a tokenizer with an id for each byte."""
    folder.mkdir()
    for file in pathlib.Path(model).resolve().iterdir():
        (folder / file.name).symlink_to(file)
    if not (folder / "tokenizer.json").exists():
        vocab = json.loads((folder / "config.json").read_text())["vocab_size"]
        (folder / "tokenizer.json").write_text(byte_tokenizer(vocab))
    return str(folder)


def read_all(connections):
    """Reads streams to their ends; returns when each one's first and last token came."""
    times = {}
    with selectors.DefaultSelector() as ready:
        for one in connections:
            one.socket.setblocking(False)
            ready.register(one.socket, selectors.EVENT_READ, one)
        while ready.get_map():
            for key, _ in ready.select(60):
                one, now = key.data, time.monotonic()
                piece = one.socket.recv(1 << 18)
                if not piece:
                    ready.unregister(one.socket)
                    continue
                one.data += piece
                if b'"text"' in piece:
                    first = times.get(one, (now,))[0]
                    times[one] = (first, now)
    return times


def events_of(one):
    one.socket.close()
    lines = [line[6:] for line in one.data.split(b"\n") if line.startswith(b"data: ")]
    assert lines and lines[-1] == b"[DONE]", one.data[-300:]
    return [json.loads(line) for line in lines[:-1]]


def serve(s, streams, no_end):
    """Tokens/s as bench counts them: from the first token of all to the last, the first ones left out."""
    body = {"prompt": [300], "max_tokens": TOKENS, "temperature": 0, "stream": True, "add_bos_token": False,
            "stream_options": {"include_usage": True}, "ban_eos_token": no_end}
    opened = [s.open("POST", "/v1/completions", body) for _ in range(streams)]
    times = read_all(opened)
    tokens = sum(events_of(one)[-1]["usage"]["completion_tokens"] for one in opened)
    begin, end = min(t[0] for t in times.values()), max(t[1] for t in times.values())
    return tokens, (tokens - streams) / (end - begin)


def bench(program, model, flags, streams):
    out = subprocess.run([program, "bench", model, "--prefill", "0", "--decode", str(TOKENS), "--batch",
                          ",".join(map(str, streams)), "--json", *flags], capture_output=True, check=True).stdout
    return {row["batch"]: row["decode_tok_s"] for row in json.loads(out)["runs"] if "decode_tok_s" in row}


def sums(s):
    """Seconds and number of steps; processor seconds of the I/O thread and of all threads."""
    f = s.figures()
    tasks = sorted(pathlib.Path("/proc/%d/task" % s.process.pid).iterdir(), key=lambda p: int(p.name))
    cpu = [int((t / "schedstat").read_text().split()[0]) * 1e-9 for t in tasks]
    return f["exl2_step_seconds_sum"], f["exl2_step_seconds_count"], cpu[0], sum(cpu)


def median_and_p99(seconds):
    waits = sorted(1000 * x for x in seconds)
    return "%.2f ms in the median, p99 %.2f" % (waits[len(waits) // 2], waits[len(waits) * 99 // 100])


def first_byte(s):
    """The first byte of a stream comes before any pass of the model; then its only token."""
    first, token = [], []
    for i in range(300):
        begin = time.monotonic()
        one = s.open("POST", "/v1/completions", {"prompt": "Hello %d" % i, "max_tokens": 1, "stream": True})
        one.read_until(b": keep-alive")
        first.append(time.monotonic() - begin)
        one.read_until(b"data: ")
        token.append(time.monotonic() - begin)
        one.answer()
    print("first byte of a stream, idle: %s; its token: %s" % (median_and_p99(first), median_and_p99(token)), flush=True)


def health(s):
    begin = time.monotonic()
    assert s.get("/health").status == 200
    return time.monotonic() - begin


def beside(s):
    """/health while 16 streams run, and how soon jobs are gone after their clients."""
    body = {"prompt": [300], "max_tokens": 4000, "stream": True, "ban_eos_token": True}
    opened = [s.open("POST", "/v1/completions", body) for _ in range(16)]
    for one in opened:
        one.read_until(b'"text"')
    print("/health beside 16 streams: " + median_and_p99([health(s) for _ in range(300)]), flush=True)
    for name, more in (("decode", opened), ("prefill", None)):
        if more is None:
            more = [s.open("POST", "/v1/completions", dict(body, prompt=[300 + i % 7 for i in range(6000)]))]
            wait_for(lambda: s.figures()["exl2_jobs_active"] > 0, 20, 0.001)
        begin = time.monotonic()
        for one in more:
            one.close(True)
        wait_for(lambda: s.figures()["exl2_jobs_active"] == 0, 20, 0.001)
        print("jobs in %s are gone after %.0f ms" % (name, 1000 * (time.monotonic() - begin)), flush=True)


def main():
    program, rounds = sys.argv[1], int(sys.argv[3]) if len(sys.argv) > 3 else 5
    flags, streams, good = sys.argv[4:], (1, 16), True
    with tempfile.TemporaryDirectory() as folder:
        model = with_tokenizer(sys.argv[2], pathlib.Path(folder) / "model")
        plain = [bench(program, model, flags, streams)]
        with Server(program, "--no-auth", "--context", "8000", *flags, model=model) as s:
            first_byte(s)
            for count in streams:
                no_end = serve(s, count, False)[0] < TOKENS * count  # bench does so, too
                before = sums(s)
                speeds = [serve(s, count, no_end)[1] for _ in range(rounds)]
                step, steps, own, all_threads = (b - a for a, b in zip(before, sums(s)))
                print("%2d streams: %s tokens/s; a step %.0f us; processor %.1f us a step, of them %.1f the I/O thread's" %
                      (count, [round(x, 1) for x in speeds], 1e6 * step / steps, 1e6 * all_threads / steps,
                       1e6 * own / steps), flush=True)
                plain[0][-count] = statistics.median(speeds)
            beside(s)
        plain.append(bench(program, model, flags, streams))
        for count in streams:
            both = [p[count] for p in plain]
            share = plain[0][-count] / max(both)
            good = good and share >= SHARE
            print("%2d streams: serve %.1f, bench %.1f before and %.1f after: %.3f" % (count, plain[0][-count], *both, share))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
