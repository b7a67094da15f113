"""h11_compare.py: what our parser of HTTP takes, Python's h11 reads alike. Good requests are changed at random, with a
fixed seed; for each request that our parser completes, h11 must find the same method, target, version, fields and
body at the same place. (What h11 takes and we refuse is no failure: we are stricter.)

    h11_compare.py PROGRAM [COUNT [SEED]]    PROGRAM: test_http_requests; without h11 the exit code is 77: skipped
"""
import random
import struct
import subprocess
import sys
from urllib.parse import unquote_to_bytes

try:
    import h11
except ImportError:
    print("skipped: no h11 (pip install h11)")
    sys.exit(77)

POST = b"POST /v1/completions HTTP/1.1\r\nHost: localhost:5000\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
BASES = [
    b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /v1/models/a%20b?x=y&z HTTP/1.1\r\nHost: [::1]:80\r\nAccept: */*\r\nX-Empty:\r\n\r\n",
    b"HEAD http://a/b?c HTTP/1.1\r\nhost: a\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: a\r\nOrigin: http://b\r\n\r\n",
    b"GET / HTTP/1.0\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET / HTTP/1.1\r\nHost: b\r\n\r\n",
    POST + b"Content-Length: 13\r\nContent-Type: application/json\r\n\r\n{\"prompt\":\"\"}",
    POST + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\nhello",
    POST + b"Content-Length: 34\r\n\r\nGET / HTTP/1.1\r\nHost: smuggled\r\n\r\n",
    POST + b"Content-Length: 3\r\n\r\nabcGET /2 HTTP/1.1\r\nHost: a\r\n\r\n",
    CHUNKED + b"5\r\nhello\r\n0\r\n\r\n",
    CHUNKED + b"a;ext=1\r\n0123456789\r\n0A\r\n0123456789\r\n000\r\nX-Trailer: y\r\n\r\n",
    CHUNKED + b"1\r\n0\r\n2\r\n\r\n\r\n0\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n",
    CHUNKED + b"0\r\n\r\n" + CHUNKED + b"3\r\nabc\r\n0\r\n\r\n" + POST + b"Content-Length: 2\r\n\r\nhi",
]
PIECES = [
    b"\r", b"\n", b"\r\n", b"\r\n\r\n", b"\0", b" ", b"\t", b":", b";", b",", b"0", b"1", b"9", b"a", b"-", b"+",
    b"\x0b",
    b"\x80", b"\xff", b"%", b"%0d", b"#", b"?", b"HTTP/1.1", b"HTTP/1.0", b"Host: b\r\n", b"Content-Length: 5\r\n",
    b"Content-Length: 0\r\n", b"Content-Length:5\r\n", b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding:chunked\r\n",
    b"Transfer-Encoding: identity\r\n", b"Transfer-Encoding\t: chunked\r\n", b"chunked", b", chunked", b"chunked, ",
    b"Connection: close\r\n", b"Connection: keep-alive\r\n", b"Upgrade: websocket\r\n", b" folded\r\n", b"X: y\r\n",
    b"X:\r\n",
    b"0\r\n\r\n", b"5\r\nhello\r\n", b"5;a=b\r\nhello\r\n", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
]


def mutate(draw):
    data = bytearray(draw.choice(BASES))
    if draw.random() < 0.2:
        data += draw.choice(BASES)
    for _ in range(draw.choice((0, 1, 1, 1, 1, 2, 2, 3))):
        lines = [0] + [i + 2 for i in range(len(data) - 1) if data[i:i + 2] == b"\r\n"]
        at = draw.choice(lines) if draw.random() < 0.4 else draw.randrange(len(data) + 1)
        kind = draw.random()
        if kind < 0.5:
            data[at:at] = draw.choice(PIECES)
        elif kind < 0.65 and at < len(data):
            data[at] = draw.randrange(256)
        elif kind < 0.8:
            del data[at:at + draw.randint(1, 4)]
        elif kind < 0.9:
            data[at:at] = data[at:at + draw.randint(1, 40)]
        else:
            data[at:at + draw.randint(1, 3)] = draw.choice(PIECES)
    return bytes(data)


def our_requests(program, texts):
    """Per text: the requests that our parser has completed, and the status of its refusal (0: none)."""
    given = b"".join(struct.pack("<I", len(text)) + text for text in texts)
    lines = subprocess.run([program], input=given, stdout=subprocess.PIPE, check=True).stdout.decode().splitlines()
    results, requests = [], []
    for line in lines:
        words = line.split(" ")
        if words[0] == "E":
            results.append((requests, int(words[1])))
            requests = []
            continue
        method, minor, path, query, body, *fields = [
            w if i == 1 else b"" if w == "-" else bytes.fromhex(w) for i, w in enumerate(words[1:])]
        requests.append((method, b"1." + minor.encode(), path, query, list(zip(fields[::2], fields[1::2])), body))
    assert len(results) == len(texts)
    return results


def split_target(target):
    for scheme in (b"http://", b"https://"):
        if target.lower().startswith(scheme):
            rest = target[len(scheme):]
            end = min([i for i in (rest.find(b"/"), rest.find(b"?")) if i >= 0] or [len(rest)])
            target = rest[end:] if rest[end:].startswith(b"/") else b"/" + rest[end:]
    path, _, query = target.partition(b"?")
    return unquote_to_bytes(path), query


def h11_requests(text, count):
    """The first `count` requests of the text as h11 reads them, and why there are no more."""
    found, server = [], h11.Connection(h11.SERVER)
    server.receive_data(text)
    try:
        while len(found) < count:
            event, body = server.next_event(), b""
            if type(event) is not h11.Request:
                return found, repr(event)
            head = event
            while type(event := server.next_event()) is h11.Data:
                body += bytes(event.data)
            if type(event) is not h11.EndOfMessage:
                return found, repr(event)
            fields = [(bytes(n), bytes(v)) for n, v in head.headers]
            path, query = split_target(bytes(head.target))
            found.append((bytes(head.method), bytes(head.http_version), path, query, fields, body))
            server.send(h11.Response(status_code=204, headers=[]))
            server.send(h11.EndOfMessage())
            if server.our_state is not h11.DONE:
                return found, "the connection closes"
            server.start_next_cycle()
    except h11.RemoteProtocolError as error:
        return found, str(error)
    return found, ""


def lower_coding(request):
    """h11 writes the value of Transfer-Encoding in lower case."""
    *rest, fields, body = request
    return (*rest, [(n, v.lower() if n == b"transfer-encoding" else v) for n, v in fields], body)


def main():
    program, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 10000
    draw = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    texts = BASES + [mutate(draw) for _ in range(count)]
    taken = refused = failures = 0
    for number, (text, (ours, status)) in enumerate(zip(texts, our_requests(program, texts))):
        refused += status != 0
        taken += len(ours) > 0
        if number < len(BASES) and (status or not ours):
            print(f"a good request was refused: {text!r}: {status}")
            failures += 1
        end = next((i + 1 for i, r in enumerate(ours) if r[1] == b"1.0"), len(ours)) # h11 closes after HTTP/1.0
        ours = [lower_coding(r) for r in ours[:end]]
        theirs, why = h11_requests(text, len(ours))
        if ours != theirs:
            failures += 1
            if failures < 10:
                print(f"differs: {text!r}\n  ours {ours}\n  h11  {theirs} {why}")
    print(f"{count} changed requests: {taken} with a request that was taken, {refused} refused, "
          f"{failures} read differently")
    good = taken > count // 20 and refused > count // 20 # else nothing was compared
    sys.exit(0 if good and failures == 0 else 1)


main()
