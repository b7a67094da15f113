"""pictures.py: pictures in chats of `exl2 serve`: ids and texts of the fixtures' golden answers, streams, /v1/responses,
many at a time with little room, clients that leave, and what is refused.
takes: pictures.py PROGRAM GOLDEN: GOLDEN is tests/golden; the fixtures of EXL2_TEST_DATA (fixtures/vision).
gives: exit code 0, 1 (the failed checks are printed) or 77 without fixtures."""

import base64
import concurrent.futures
import json
import os
import pathlib
import socket
import struct
import sys
import tempfile
import zlib

from lost import write_model
from server import BACKEND, Server, check, result, run_tests, skip, wait_for

FAMILIES = ("smolvlm", "qwen2-vl", "qwen3-vl")


def png(width, height, byte_of=lambda x, y: 255):
    """A gray picture."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    line = bytes(byte_of(x, 0) for x in range(width))
    rows = b"".join(b"\0" + line for _ in range(height))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b""))


def part(data, kind="image/png"):
    return {"type": "image_url", "image_url": {"url": "data:%s;base64,%s" % (kind, base64.b64encode(data).decode())}}


def turn(*parts):
    return [{"role": "user", "content": [{"type": "text", "text": p} if isinstance(p, str) else p for p in parts]}]


def greedy(messages, **more):
    return dict({"messages": messages, "temperature": 0, "max_tokens": 12}, **more)


def answer(s, body):
    got = s.post("/v1/chat/completions", body)
    check(got.status == 200, "%d: %s" % (got.status, got.body[:300]))
    return got.json()


def golden_answers(s, vision, family):
    """A prompt of the golden answers is what the template makes of a chat: the same ids, the same number of tokens."""
    golden = json.loads((vision / family / "golden.json").read_text())
    asked = 0
    for chat in golden["chats"]:
        for prompt in (p for p in golden["prompts"] if p["text"] == chat["text"]):
            files = iter(prompt["images"])
            messages = [dict(m, content=[part((vision / "images" / next(files)).read_bytes()) if p["type"] == "image"
                                         else p for p in m["content"]]) for m in chat["messages"]]
            body = greedy(messages, logprobs=True)
            got = answer(s, body)
            ids = [t["token_id"] for t in got["choices"][0]["logprobs"]["content"]]
            check(got["usage"]["prompt_tokens"] == len(prompt["ids_expanded"]), "%s: %s" % (family, got["usage"]))
            check(len(ids) >= 1 and ids == prompt["greedy"][:len(ids)], "%s: %s is not %s" % (family, ids, prompt["greedy"]))
            again = answer(s, body)
            check(again["choices"] == got["choices"], "the same answer again")
            check(again["usage"]["prompt_tokens_details"]["cached_tokens"] >= len(prompt["ids_expanded"]) - 65,
                  "the picture is found in the cache: %s" % again["usage"])
            for path, ids in (("/v1/token/encode", True), ("/v1/internal/token-count", False)):
                counted = s.post(path, {"text": messages})
                check(counted.status == 200 and counted.json() == dict(
                    {"tokens": prompt["ids_expanded"]} if ids else {}, length=len(prompt["ids_expanded"])),
                    "%s: %s: the ids of the golden: %s" % (family, path, counted.body[:200]))
            asked += 1
    check(asked > 0, family + " has a chat that is a prompt")


def shapes(s, vision):
    """Streams, choices, a second turn, /v1/responses, and a text beside a picture that is long."""
    noise, gray = ((vision / "images" / name).read_bytes() for name in ("noise-17x150.png", "gray-64x64.png"))
    body = greedy(turn(part(gray), "What is this?"))
    got = answer(s, body)
    text = got["choices"][0]["message"]["content"]
    events = s.post("/v1/chat/completions", dict(body, stream=True, stream_options={"include_usage": True})).events()
    check(events[-1] == "[DONE]" and text == "".join(c["delta"].get("content") or "" for e in events[:-1]
                                                     for c in e["choices"]), "the stream has the same text")
    check(events[-2]["usage"]["prompt_tokens"] == got["usage"]["prompt_tokens"], "and counts the rows")
    both = answer(s, dict(body, n=2))
    check([c["message"]["content"] for c in both["choices"]] == [text, text], "two choices")
    other = answer(s, greedy(turn(part(noise), "What is this?")))
    check(other["choices"][0]["message"]["content"] != text, "another picture, another text")
    second = answer(s, greedy(body["messages"] + [{"role": "assistant", "content": "A wall."}, {"role": "user",
                    "content": "And this?"}] + turn(part(noise))))
    check(second["usage"]["prompt_tokens_details"]["cached_tokens"] > 20, "the first picture is found: %s" % second["usage"])
    plain = s.post("/v1/responses", {"input": [{"role": "user", "content": [
        {"type": "input_image", "image_url": part(gray)["image_url"]["url"], "detail": "auto"},
        {"type": "input_text", "text": "What is this?"}]}], "temperature": 0, "max_output_tokens": 12}).json()
    check(plain["output"][0]["content"][0]["text"] == text, "/v1/responses: %s" % plain)
    check(plain["usage"]["input_tokens"] == got["usage"]["prompt_tokens"], "counts the rows, too")
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
    called = answer(s, greedy(turn(part(gray), "Look."), tools=tools, tool_choice="required", max_tokens=60))
    check(called["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "f", "a call: %s" % called["choices"])
    long = turn(part(gray), "word " * 5000)
    got = s.post("/v1/chat/completions", greedy(long))
    check(got.status == 400 and "maximum context length" in got.json()["error"]["message"], "%s" % got.body[:200])
    got = s.post("/v1/token/encode", {"text": long})
    check(got.status == 200 and got.json()["length"] == len(got.json()["tokens"]) > 5000, "it is counted: %s" % got.body[:99])
    two = turn("First", part(noise), "then", part(gray), "Which?") + [{"role": "assistant", "content": "Yes"}]
    for more in ({}, {"add_generation_prompt": False}):
        got = s.post("/v1/token/encode", dict(more, text=two)).json()
        used = answer(s, greedy(two, **more))["usage"]["prompt_tokens"]
        check(got["length"] == len(got["tokens"]) == used, "%s: as many as the job's: %s, %d" % (more, got["length"], used))


def refused(s, parts, words, path="/v1/chat/completions"):
    got = s.post(path, greedy(turn(*parts)))
    error = got.json()["error"] if got.status == 400 else {"message": "", "param": ""}
    check(words in error["message"] and error["param"] == "messages", "%r: %d %s" % (words, got.status, got.body[:200]))


def refusals(s, _):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.2)
        url = "http://127.0.0.1:%d/a.png" % listener.getsockname()[1]
        refused(s, [{"type": "image_url", "image_url": {"url": url}}], "fetches no pictures")
        try:
            listener.accept()
            check(False, "nobody connects")
        except TimeoutError:
            pass
    small = png(20, 20)
    refused(s, [part(b"GIF89a" + b"\0" * 30, "image/gif")], "image/png or image/jpeg")
    refused(s, [part(b"GIF89a" + b"\0" * 30)], "neither PNG nor JPEG")
    refused(s, [part(small[:-30])], "cannot be read")
    refused(s, [part(small[:16] + b"\xFF\xFF\xFF\xFF" + small[20:])], "cannot be read")
    refused(s, [part(png(2900, 2900))], "2900 x 2900 pixels")
    refused(s, [part(small)] * 3, "2 pictures at most")
    got = s.post("/v1/token/encode", {"text": turn(*[part(small)] * 3)})
    check(got.status == 400 and "2 pictures at most" in got.json()["error"]["message"], "encode: %s" % got.body[:200])
    got = s.post("/v1/token/encode", {"text": [{"role": "tool", "content": [part(small)]}] * 2 + turn("a")})
    check(got.status in (200, 400), "a picture of a tool: %s" % got.body[:200])
    got = s.post("/v1/chat/completions", greedy([{"role": "user", "content": "Is <image> a mark?"}]))
    check(got.status == 200, "a mark that is typed is text: %s" % got.body[:200])


def crowd(s, _):
    """More pictures than there is room for, some of clients that leave; then all of it is free again."""
    def one(i):
        width = 64 + i
        body = greedy(turn(part(png(width, 70, lambda x, y: (x * i * 7 + i) & 255)), "What?", part(png(1900, 1900 + i))), n=1 + i % 2)
        if i % 5 == 3:
            got = s.post("/v1/token/encode", {"text": body["messages"]})
            return got.status if got.status == 200 else got.body[:200]
        if i % 5 == 4:
            gone = s.open("POST", *(("/v1/chat/completions", body) if i % 2 else
                                    ("/v1/token/encode", {"text": body["messages"]})))
            gone.close(reset=True)
            return 200
        got = s.post("/v1/chat/completions", body)
        return got.status if got.status == 200 else got.body[:200]
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        statuses = list(threads.map(one, range(16)))
    check(statuses == [200] * 16, "all are answered: %s" % statuses)
    wait_for(lambda: s.figures()["exl2_jobs_active"] == 0 and s.figures()["exl2_pages_used"] == 0, 60)


def body_of(s, path, mib):
    """The status of a body of so many MiB, of which the last one says nothing."""
    text = json.dumps(greedy(turn("x"))).encode()
    return s.post(path, text[:-1] + b" " * (mib << 20) + b"}").status


def longest(s, _):
    """Where pictures may be in a body it may have 16 MiB, elsewhere 4."""
    statuses = [body_of(s, *row) for row in (("/v1/chat/completions", 15), ("/v1/chat/completions", 16), ("/v1/token/encode", 15),
                                             ("/v1/completions", 4), ("/v1/embeddings", 4))]
    check(statuses == [200, 413, 200, 413, 413], "%s" % statuses)


def blind(program, golden, vision):
    """A model without a tower, and one whose tower is not wanted: never a text without the picture."""
    with tempfile.TemporaryDirectory() as folder:
        text_model = write_model(golden / "models" / "exl2-mixed", pathlib.Path(folder) / "mixed")
        for model, flags in ((text_model, []), (str(vision / "smolvlm"), ["--images", "0"])):
            with Server(program, "--no-auth", "--backend", BACKEND, "--context", "4000", *flags, model=model) as s:
                check(s.get("/v1/model").json()["parameters"]["use_vision"] is False, "it sees nothing")
                check(body_of(s, "/v1/chat/completions", 4) == 413, "its bodies have no pictures")
                check(body_of(s, "/v1/chat/completions", 3) != 413, "3 MiB are not too long")
                refused(s, [part(png(20, 20)), "What?"], "reads no pictures")


def main():
    program, golden = sys.argv[1], pathlib.Path(sys.argv[2])
    data = pathlib.Path(os.environ.get("EXL2_TEST_DATA") or golden.parent.parent.parent / "shared")
    vision = data / "fixtures" / "vision"
    if not vision.exists():
        skip("the shared fixtures are absent")
    for family in FAMILIES:
        with Server(program, "--no-auth", "--backend", BACKEND, model=str(vision / family)) as s:
            check(s.get("/v1/model").json()["parameters"]["use_vision"] is True, family + " sees")
            golden_answers(s, vision, family)
    with Server(program, "--no-auth", "--backend", BACKEND, "--images", "2", model=str(vision / "smolvlm")) as s:
        run_tests(s, [shapes, refusals, crowd, longest], vision)
    blind(program, golden, vision)
    return result()


if __name__ == "__main__":
    sys.exit(main())
