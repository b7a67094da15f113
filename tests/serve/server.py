"""server.py: starts `exl2 serve`, and speaks to it with nothing but sockets and JSON.
takes: the program, a model folder, flags.
gives: BACKEND, MODEL; Server, Answer, skip, wait_for, model_of; check, run_tests, result."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback

SKIPPED = 77
MODEL = os.environ.get("EXL2_TEST_MODEL", "")
BACKEND = os.environ.get("EXL2_TEST_BACKEND", "cpu")  # of tests whose texts are golden


def skip(why):
    print("skipped:", why)
    sys.exit(SKIPPED)


def model_of(argv):
    """The model folder of the command line, or of EXL2_TEST_MODEL."""
    model = argv[2] if len(argv) > 2 else MODEL
    if not model:
        skip("EXL2_TEST_MODEL names no model")
    return model


failures, checks = [], 0


def check(holds, what):
    global checks
    checks += 1
    if not holds:
        failures.append(what)
        print("failed:", what, flush=True)


def run_tests(s, tests, *more):
    """Each test, which gets the server and `more`; one that raises is a failure, and the others still run. Names in
    argv[3:] leave out the others."""
    wanted = [name for name in sys.argv[3:] if name.isidentifier()]
    for test in tests:
        if wanted and test.__name__ not in wanted:
            continue
        try:
            test(s, *more)
        except Exception:
            failures.append(test.__name__)
            traceback.print_exc()
        check(s.process.poll() is None, "the server lives after " + test.__name__)
        print(test.__name__, "done", flush=True)


def result():
    """The exit code of a test."""
    print("%d checks, %d failed" % (checks, len(failures)))
    return 1 if failures else 0


def wait_for(what, seconds=120.0, pause=0.01):
    """Waits until `what` gives something true, and gives that. A watchdog, no measurement."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = what()
        if value:
            return value
        time.sleep(pause)
    raise AssertionError("waited %g s in vain" % seconds)


class Answer:
    """A whole answer: status, headers (names in lower case), body."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    def events(self):
        """What the stream's `data:` lines say; [DONE] is left as text."""
        found = [line[6:] for line in self.body.decode().split("\n") if line.startswith("data: ")]
        return [text if text == "[DONE]" else json.loads(text) for text in found]


class Connection:
    """One request whose answer is read piece by piece. narrow: the system takes little of what is not yet read."""

    def __init__(self, port, method, path, body=None, headers=None, send=True, narrow=False):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.socket.settimeout(120)
        self.data, self.narrow = b"", narrow
        if narrow: # small segments: of large ones the server's system sends one each 0.2 s into so small a window
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1024)
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.connect(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        payload = b"" if body is None else (body if isinstance(body, bytes) else json.dumps(body).encode())
        lines = ["%s %s HTTP/1.1" % (method, path), "Host: 127.0.0.1:%d" % port, "Connection: close"]
        if body is not None:
            lines += ["Content-Type: application/json", "Content-Length: %d" % len(payload)]
        lines += ["%s: %s" % pair for pair in (headers or {}).items()]
        if send:
            self.socket.sendall(("\r\n".join(lines) + "\r\n\r\n").encode() + payload)

    def read_until(self, mark):
        while mark not in self.data:
            piece = self.socket.recv(65536)
            if not piece:
                return False
            self.data += piece
        return True

    def close(self, reset=False):
        if reset:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.socket.close()

    def answer(self):
        if self.narrow:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        while True:
            piece = self.socket.recv(65536)
            if not piece:
                break
            self.data += piece
        self.socket.close()
        head, _, body = self.data.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        if headers.get("transfer-encoding") == "chunked":
            body = unchunked(body)
        return Answer(int(lines[0].split()[1]), headers, body)


def unchunked(data):
    out = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        count = int(size, 16)
        if count == 0:
            return out
        out, data = out + data[:count], data[count + 2:]
    raise AssertionError("a chunked body ends before its last chunk")


class Server:
    """The program, from its first line on stdout to its exit."""

    def __init__(self, program, *flags, model=MODEL, seconds=240, stdin=False, more_env=()):
        self.folder = tempfile.TemporaryDirectory(prefix="exl2-serve-")
        env = dict(os.environ, XDG_CONFIG_HOME=self.folder.name, HOME=self.folder.name, **dict(more_env))
        arguments = [program, "serve"] + ([model] if model else []) + ["--port", "0"] + list(flags)
        self.process = subprocess.Popen(arguments, stdin=subprocess.PIPE if stdin else None, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, env=env)
        os.set_blocking(self.process.stdout.fileno(), False)
        line = b""

        def first_line():
            nonlocal line
            line += self.process.stdout.read() or b""
            if self.process.poll() is not None:
                raise AssertionError("the server ended: " + self.process.stderr.read().decode())
            return b"\n" in line

        wait_for(first_line, seconds, 0.05)
        self.url = line.decode().strip()
        self.port = int(self.url.rstrip("/").rpartition(":")[2])
        self.headers = {}
        keys = pathlib.Path(self.folder.name) / "exl2" / "keys"
        self.keys = dict(row.split(": ") for row in keys.read_text().split("\n") if row) if keys.exists() else {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.folder.cleanup()

    def open(self, method, path, body=None, headers=None, narrow=False):
        return Connection(self.port, method, path, body, dict(self.headers, **(headers or {})), narrow=narrow)

    def ask(self, method, path, body=None, headers=None):
        return self.open(method, path, body, headers).answer()

    def get(self, path, **headers):
        return self.ask("GET", path, None, headers)

    def post(self, path, body, **headers):
        return self.ask("POST", path, body, headers)

    def figures(self):
        """/metrics as a dict of the lines without labels."""
        rows = self.get("/metrics").body.decode().split("\n")
        return {name: float(value) for name, value in (row.split() for row in rows if row and "#" not in row
                                                        and "{" not in row)}
