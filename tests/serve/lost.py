"""lost.py: `exl2 serve` over the fake driver loses its GPU while jobs run. Streams end with an error event, and the engine
is closed and opened once: on the CPU with --backend auto; with --backend cuda the server stays, and says that it is ill.
takes: lost.py PROGRAM GOLDEN: PROGRAM is test_serve_fake_gpu, GOLDEN the model folder exl2-mixed.
gives: exit code 0 or 1 (the failed checks are printed)."""

import json
import pathlib
import shutil
import struct
import sys
import tempfile

from server import Server, check, result, wait_for
from tiny import halves

BODY = {"prompt": "Once", "max_tokens": 7000, "stream": True, "ban_eos_token": True, "temperature": 0}


def byte_letters():
    """GPT-2's letters of the bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return {b: chr(b) if b in plain else chr(256 + others.index(b)) for b in range(256)}


def byte_tokenizer(vocab_size):
    """A tokenizer.json that has an id for each byte."""
    vocab = {"<pad>": 0, "<s>": 1, "</s>": 2}
    vocab.update({letter: 3 + byte for byte, letter in byte_letters().items()})
    vocab.update({"x%d" % i: i for i in range(len(vocab), vocab_size)})
    added = [{"id": i, "content": text, "special": True} for text, i in vocab.items() if i < 3]
    return json.dumps({"added_tokens": added, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
                       "decoder": {"type": "ByteLevel"}, "model": {"type": "BPE", "merges": [], "vocab": vocab}})


def write_model(golden, folder):
    """The golden model with such a tokenizer."""
    shutil.copytree(golden, folder)
    (folder / "tokenizer.json").write_text(byte_tokenizer(320))
    return str(folder)


def write_adapter(model, folder):
    """An adapter of the first layer's q_proj, rank 4."""
    config = json.loads((pathlib.Path(model) / "config.json").read_text())
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    out = heads * config.get("head_dim", hidden // heads)
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({
        "peft_type": "LORA", "r": 4, "lora_alpha": 4000, "target_modules": ["q_proj"], "bias": "none"}))
    header, data = {}, b""
    for half, shape in (("A", [4, hidden]), ("B", [out, 4])):
        numbers = halves(shape[0] * shape[1], ord(half))
        header["base_model.model.model.layers.0.self_attn.q_proj.lora_%s.weight" % half] = {
            "dtype": "F16", "shape": shape, "data_offsets": [len(data), len(data) + len(numbers)]}
        data += numbers
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    return str(folder)


def lose(s):
    """Streams, one that waits, and one that is not streamed, when the device is lost."""
    opened = [s.open("POST", "/v1/completions", dict(BODY, seed=i)) for i in range(3)]
    plain = s.open("POST", "/v1/completions", dict(BODY, stream=False))
    for one in opened:
        one.read_until(b"data: ")
    s.process.stdin.write(b"\n")
    s.process.stdin.flush()
    for one in opened:
        events = one.answer().events()
        check(events[-1] == "[DONE]" and events[-2]["error"]["type"] == "server_error" and
              "lost" in events[-2]["error"]["message"], "an error event says it: %r" % events[-2:])
    answer = plain.answer()
    check(answer.status in (500, 503) and answer.json()["error"]["message"], "a plain answer is an error: %s" % answer.body)


def main():
    program, golden = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as folder:
        model = write_model(golden, pathlib.Path(folder) / "mixed")
        adapter = write_adapter(model, pathlib.Path(folder) / "voice")
        plain_body = dict(BODY, max_tokens=20, stream=False)
        for backend, heals in (("auto", True), ("cuda", False)):
            with Server(program, "--no-auth", "--backend", backend, "--context", "8000", "--lora", adapter,
                        model=model, stdin=True) as s:
                check(s.get("/health").status == 200 and s.figures()["exl2_device_bytes"] > 0, "it runs on the GPU")
                lose(s)
                if heals:
                    wait_for(lambda: s.get("/health").status == 200, 30)
                    check(s.figures()["exl2_device_bytes"] == 0, "then it runs on the CPU")
                    again = wait_for(lambda: (lambda a: a.status != 503 and a)(s.post("/v1/completions", plain_body)), 30)
                    base = s.post("/v1/completions", dict(plain_body, loras=[{"name": "voice", "scaling": 0}]))
                    check(again.status == 200 and again.json()["choices"][0]["text"] != base.json()["choices"][0]["text"],
                          "with its adapter, which was loaded again: %s" % again.body)
                    events = s.post("/v1/completions", dict(BODY, max_tokens=20)).events()
                    check(events[-1] == "[DONE]" and "choices" in events[-2], "and answers: %r" % events[-2:])
                else:
                    health = s.get("/health")
                    check(health.status == 503 and b"lost" in health.body, "it says that it is ill: %s" % health.body)
                    answer = s.post("/v1/completions", BODY)
                    check(answer.status == 503, "and takes no requests: %s" % answer.body)
                    check(s.get("/v1/models").status == 200, "what needs no engine is answered")
                s.process.terminate()
                check(s.process.wait(30) == 0, "a signal ends it with 0")
            print(backend, "done", flush=True)
    return result()


if __name__ == "__main__":
    sys.exit(main())
