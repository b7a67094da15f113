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

from mutants import BASES, mutate


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
