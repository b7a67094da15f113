"""mutants.py: requests of HTTP that are changed at random.
takes: a random.Random.
gives: BASES, the good requests; mutate."""

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
