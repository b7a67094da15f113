"""embeddings.py: /v1/embeddings of `exl2 serve`: vectors are those of `exl2 embed`, in all forms of input and answer,
beside a talk, and from a second model.
takes: embeddings.py PROGRAM [MODEL]; the model of EXL2_TEST_MODEL.
gives: exit code 0, 1 (the failed checks are printed) or 77 (no model)."""

import base64
import concurrent.futures
import json
import math
import os
import struct
import subprocess
import sys
import tempfile

from server import BACKEND, Server, check, model_of, result, wait_for

TEXTS = ["The key lies under the third stone.", "Bread is sold on Mondays.", "x"]


def near(a, b, most=1e-4):
    return len(a) == len(b) and all(abs(x - y) <= most for x, y in zip(a, b))


def of_program(program, model, text, *flags):
    out = subprocess.run([program, "embed", model, "--backend", BACKEND, "--text", text, "--json", *flags], check=True,
                         stdout=subprocess.PIPE).stdout
    return json.loads(out)


def refused(s, status, words, **body):
    answer = s.post("/v1/embeddings", body)
    error = answer.json()["error"]
    check(answer.status == status and words in error["message"], "%r: %d %r" % (body.keys(), answer.status, error))


def forms(s, program, model):
    wanted = [of_program(program, model, text) for text in TEXTS]
    answer = s.post("/v1/embeddings", {"input": TEXTS, "model": "any", "user": "me"}).json()
    check(answer["object"] == "list" and [row["index"] for row in answer["data"]] == [0, 1, 2], "a list in order")
    check(all(row["object"] == "embedding" for row in answer["data"]), "rows are embeddings")
    for row, one in zip(answer["data"], wanted):
        check(near(row["embedding"], one["embedding"]), "the program's vector")
    tokens = sum(one["tokens"] for one in wanted)
    check(answer["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}, "usage: %r" % answer["usage"])
    check(answer["model"] == os.path.basename(os.path.normpath(model)), "the model's name")
    text = s.post("/v1/embeddings", {"input": TEXTS[0], "model": "any"}).json()["data"]
    check(len(text) == 1 and text[0]["embedding"] == answer["data"][0]["embedding"], "one text, the same bits")
    ids = s.post("/v1/token/encode", {"text": TEXTS[1]}).json()["tokens"]
    for given in (ids, [ids]):
        data = s.post("/v1/embeddings", {"input": given}).json()["data"]
        check(len(data) == 1 and data[0]["embedding"] == answer["data"][1]["embedding"], "ids")
    two = s.post("/v1/embeddings", {"input": [ids, ids[:1]]}).json()["data"]
    check(len(two) == 2 and two[0]["embedding"] == answer["data"][1]["embedding"], "lists of ids")
    packed = s.post("/v1/embeddings", {"input": TEXTS[0], "encoding_format": "base64"}).json()["data"][0]["embedding"]
    raw = base64.b64decode(packed, validate=True)
    check(near(list(struct.unpack("<%df" % (len(raw) // 4), raw)), text[0]["embedding"], 1e-7), "base64")
    for count in (1, 7, 64):
        cut = s.post("/v1/embeddings", {"input": TEXTS[0], "dimensions": count}).json()["data"][0]["embedding"]
        length = math.sqrt(sum(x * x for x in text[0]["embedding"][:count]))
        check(near(cut, [x / length for x in text[0]["embedding"][:count]]), "dimensions %d" % count)
        packed = s.post("/v1/embeddings", {"input": TEXTS[0], "dimensions": count, "encoding_format": "base64"}).json()
        raw = base64.b64decode(packed["data"][0]["embedding"], validate=True)
        check(near(list(struct.unpack("<%df" % count, raw)), cut, 1e-6), "dimensions %d in base64" % count)


def errors(s):
    refused(s, 400, "input is missing", model="any")
    refused(s, 400, "empty", input="")
    refused(s, 400, "empty", input=[])
    refused(s, 400, "empty", input=["a", ""])
    refused(s, 400, "input must be", input=3)
    refused(s, 400, "input must be", input=[{"text": "a"}])
    refused(s, 400, "no token id", input=[1, 2.5])
    refused(s, 400, "no token id", input=[[1], [99999999]])
    refused(s, 400, "at most 2048", input=["a"] * 2049)
    refused(s, 400, "encoding_format", input="a", encoding_format="binary")
    refused(s, 400, "dimensions", input="a", dimensions=0)
    refused(s, 400, "dimensions", input="a", dimensions=1000000)
    refused(s, 400, "maximum context length", input="word " * 20000)
    refused(s, 400, "without adapters", input="a", loras=[{"name": "a"}])
    check(s.post("/v1/embeddings", {"input": "a", "loras": []}).status == 200, "[] is absent")
    check(s.post("/v1/embeddings", b"[1").status == 400, "no JSON")
    check(s.ask("GET", "/v1/embeddings").status == 405, "only POST")


def many(s):
    """More texts than the engine has jobs, beside a talk; and clients that leave."""
    body = {"input": ["Line %d." % i for i in range(100)]}
    talk = {"messages": [{"role": "user", "content": "Count."}], "max_tokens": 40, "temperature": 0}
    with concurrent.futures.ThreadPoolExecutor(3) as threads:
        first = threads.submit(s.post, "/v1/embeddings", body)
        spoken = threads.submit(s.post, "/v1/chat/completions", talk)
        gone = s.open("POST", "/v1/embeddings", body)
        gone.socket.close()
        data = first.result().json()["data"]
        check(spoken.result().status == 200, "a talk beside")
    check(len(data) == 100 and data[7]["embedding"] != data[8]["embedding"], "100 vectors")
    alone = s.post("/v1/embeddings", {"input": body["input"][90]}).json()["data"][0]["embedding"]
    check(alone == data[90]["embedding"], "the same bits beside others")
    wait_for(lambda: s.figures()["exl2_pages_used"] == 0 and s.figures()["exl2_jobs_active"] == 0, 60)


def second_model(program, model):
    """--embeddings: its vectors come from it, and talks from the first."""
    with tempfile.TemporaryDirectory() as folder:
        other = os.path.join(folder, "other")
        subprocess.run([program, "synth", other, "--shape", "smollm2-135m", "--layers", "1", "--bpw", "2.5"], check=True,
                       stdout=subprocess.DEVNULL)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            with open(os.path.join(model, name), "rb") as from_, open(os.path.join(other, name), "wb") as to:
                to.write(from_.read())
        with Server(program, "--no-auth", "--backend", BACKEND, "--embeddings", other, model=model) as s:
            wanted = of_program(program, other, TEXTS[0])["embedding"]
            one = s.post("/v1/embeddings", {"input": TEXTS[0], "model": "any"}).json()
            check(near(one["data"][0]["embedding"], wanted) and one["model"] == "other", "the second model's vector")
            first = os.path.basename(os.path.normpath(model))
            named = s.post("/v1/embeddings", {"input": TEXTS[0], "model": first}).json()
            check(named["model"] == first and not near(named["data"][0]["embedding"], wanted), "the model that was named")
            talk = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, "temperature": 0, "model": "any"}
            check(s.post("/v1/chat/completions", talk).json()["model"] == first, "talks are the first model's")
            many(s)


def main():
    program, model = sys.argv[1], model_of(sys.argv)
    with Server(program, "--no-auth", "--backend", BACKEND, model=model) as s:
        forms(s, program, model)
        errors(s)
        check(s.process.poll() is None, "the server lives")
    second_model(program, model)
    return result()


if __name__ == "__main__":
    sys.exit(main())
