"""adapters.py: adapters (LoRA) of `exl2 serve`: golden continuations of sets that are loaded and of sets that requests
name, jobs with different sets beside each other, sets that are replaced while streams run, and what is refused.
takes: adapters.py PROGRAM GOLDEN: GOLDEN is tests/golden; the fixtures of EXL2_TEST_DATA (fixtures/lora).
gives: exit code 0, 1 (the failed checks are printed) or 77 without fixtures."""

import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from lost import write_model
from server import BACKEND, Server, check, result, run_tests, skip, wait_for


def said(s, prompt, **more):
    """Ids of a greedy continuation."""
    got = s.post("/v1/completions", dict({"prompt": prompt, "max_tokens": 12, "temperature": 0, "logprobs": 0}, **more))
    check(got.status == 200, "%s: %s" % (more, got.body[:300]))
    return got.json()["choices"][0]["text"] if got.status == 200 else None


def set_of(s, path="/v1/lora", **headers):
    return {c["id"]: c["scaling"] for c in s.get(path, **headers).json()["data"]}


def load(s, *loras):
    got = s.post("/v1/lora/load", {"loras": [dict(name=n, scaling=x) for n, x in loras]}, **{"x-admin-key": s.keys["admin_key"]})
    check(got.status == 200, "%s: %s" % (loras, got.body))
    return got.json()


def text_of(s, ids):
    return s.post("/v1/token/decode", {"tokens": ids}).json()["text"]


def sets(s, golden):
    prompts, wanted = golden["tokens"], [[text_of(s, g) for g in x["greedy"]] for x in golden["sets"]]
    base = [said(s, p) for p in prompts]
    check(set_of(s) == {} and base[0] not in wanted[0], "no adapter is loaded")
    check(set_of(s, "/v1/loras", **{"x-admin-key": s.keys["admin_key"]}) == {"a": None, "b": None, "c": None}, "the folder is listed")
    check(set_of(s, "/v1/loras") == {}, "but not to others")
    check(load(s, ("a", 1.0)) == {"success": ["a"], "failure": [], "errors": []}, "a is loaded")
    check(set_of(s) == {"a": 1.0} and s.get("/v1/internal/model/info").json()["lora_names"] == ["a"], "and listed")
    check([said(s, p) for p in prompts] == wanted[0], "its text is the golden one")
    check([said(s, p, loras=[{"name": "a", "scaling": 0}]) for p in prompts] == base, "a request leaves it out")
    got = load(s, ("a", 1), ("b", 0.5), ("../a", 1), ("c", 1))
    check(sorted(got["success"]) == ["a", "b"] and sorted(got["failure"]) == ["../a", "c"], "two of four: %s" % got)
    reasons = {e["name"]: e["message"] for e in got["errors"]}
    check("none of that name" in reasons["../a"] and "adapter_model.safetensors" in reasons["c"], "%s" % reasons)
    check([said(s, p) for p in prompts] == wanted[1], "two adapters")
    check([said(s, p, loras=[{"name": "a"}]) for p in prompts] == wanted[0], "a request names one")
    both = [{"name": "b", "scaling": 0.5}, {"name": "a", "scaling": 1}]
    load(s, ("a", 0), ("b", 0))
    check(set_of(s) == {"a": 0, "b": 0} and [said(s, p) for p in prompts] == base, "loaded, but left out")
    with concurrent.futures.ThreadPoolExecutor(12) as threads:
        asked = [(i, p, [[], [{"name": "a"}], both][i % 3]) for i in range(12) for p in (0, 1)]
        texts = list(threads.map(lambda x: said(s, prompts[x[1]], loras=x[2]), asked))
    check(texts == [[base, wanted[0], wanted[1]][i % 3][p] for i, p, _ in asked], "three sets beside each other")


def replaced(s, golden):
    """A stream keeps its set to the end; then the old adapter's memory is free."""
    load(s, ("a", 1))
    prompt = golden["tokens"][0]
    body = {"prompt": prompt, "max_tokens": 3000, "temperature": 0, "stream": True, "ban_eos_token": True}
    alone = s.post("/v1/completions", body).events()
    stream = s.open("POST", "/v1/completions", body)
    stream.read_until(b"data: ")
    for _ in range(20):
        load(s, ("b", 1))
        load(s, ("a", 1))
    load(s, ("b", 0.5))
    text = ["".join(c["text"] for e in events[:-1] for c in e["choices"]) for events in (alone, stream.answer().events())]
    check(text[0] == text[1] and len(text[0]) > 1000, "the stream's text is that of its own set")
    check(s.post("/v1/lora/unload", {}, **{"x-admin-key": s.keys["admin_key"]}).status == 200 and set_of(s) == {}, "unloaded")
    gone = s.open("POST", "/v1/lora/load", {"loras": [{"name": "a"}]}, {"x-admin-key": s.keys["admin_key"]})
    gone.close()
    wait_for(lambda: set_of(s) == {"a": 1} or None, 30)


def refusals(s, golden):
    admin = {"x-admin-key": s.keys["admin_key"]}
    load(s, ("a", 1))
    for loras, words in (([{"name": "b"}], "'b' is not loaded; those that are: [\"a\"]"), ([{}], "a name"), (["a"], "a name"),
                         ("a", "array"), ([{"name": "a", "scaling": 101}], "scaling"), ([{"name": "a"}] * 2, "twice"),
                         ([{"name": "a", "scaling": "x"}], "scaling"), ([{"name": str(i)} for i in range(9)], "at most 8")):
        got = s.post("/v1/completions", {"prompt": "x", "max_tokens": 2, "loras": loras})
        check(got.status == 400 and words in got.json()["error"]["message"], "%s: %s" % (loras, got.body[:200]))
        check((got.json()["error"]["param"] or "").startswith("loras"), "it names the field: %s" % got.body[:200])
    check(s.post("/v1/completions", {"prompt": "x", "max_tokens": 2, "loras": []}).status == 200, "[] is absent")
    check(s.post("/v1/lora/load", {"loras": [{"name": "a"}]}).status == 403, "an admin key is needed")
    for body in ({}, {"loras": 3}, {"loras": [{"scaling": 1}]}, {"loras": [{"name": "a"}] * 17}):
        check(s.post("/v1/lora/load", body, **admin).status == 400, "%s" % body)
    check(set_of(s) == {"a": 1}, "nothing has changed")


def command_line(program, model, lora, golden):
    base = ["--backend", BACKEND, "--context", "4000", "--no-auth"]
    wanted = golden["sets"][1]["greedy"][0]
    with Server(program, *base, "--lora", str(lora / "a"), "--lora", str(lora / "b") + ":0.5", model=model) as s:
        check(set_of(s) == {"a": 1, "b": 0.5}, "--lora: %s" % set_of(s))
        check(said(s, golden["tokens"][0]) == text_of(s, wanted), "its text is the golden one")
        got = s.post("/v1/lora/load", {"loras": [{"name": "a"}]})
        check(got.status == 400 and "--loras" in got.json()["error"]["message"], "no folder: %s" % got.body)
    twice = subprocess.run([program, "serve", model, "--port", "0", *base, "--lora", str(lora / "a"), "--lora",
                            str(lora / "a") + ":0.5"], capture_output=True, timeout=60)
    check(twice.returncode == 1 and b"two of the adapters have the name 'a'" in twice.stderr, "twice: %s" % twice.stderr)
    for other in (str(lora / "a"), str(lora) + "/../exl2-mixed/a"):  # another path of the same adapter, too
        twice = subprocess.run([program, "generate", model, "--ids", "1,2,3", "--backend", BACKEND, "--lora", str(lora / "a"),
                                "--lora", other + ":0.5"], capture_output=True, timeout=60)
        check(twice.returncode == 1 and b"name it once" in twice.stderr, "generate: twice: %s" % twice.stderr)
    ended = subprocess.run([program, "serve", model, "--port", "0", *base, "--lora", str(lora)], capture_output=True, timeout=60)
    check(ended.returncode == 1 and b"adapter_config.json" in ended.stderr, "a bad one ends it: %s" % ended.stderr)


def main():
    program, tests = sys.argv[1], pathlib.Path(sys.argv[2])
    data = pathlib.Path(os.environ.get("EXL2_TEST_DATA") or tests.parent.parent.parent / "shared")
    lora = data / "fixtures" / "lora" / "exl2-mixed"
    if not lora.exists():
        skip("the shared fixtures are absent")
    golden = json.loads((lora / "golden.json").read_text())
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model = write_model(tests / "models" / "exl2-mixed", folder / "mixed")
        for one in "ab":
            shutil.copytree(lora / one, folder / "loras" / one)
        (folder / "loras" / "c").mkdir()
        shutil.copy(lora / "a" / "adapter_config.json", folder / "loras" / "c")
        (folder / "loras" / "no adapter").mkdir()
        flags = ["--backend", BACKEND, "--context", "4000", "--loras", str(folder / "loras")]
        with Server(program, *flags, model=model) as s:
            s.headers["x-api-key"] = s.keys["api_key"]
            run_tests(s, [sets, replaced, refusals], golden)
        command_line(program, model, lora, golden)
    return result()


if __name__ == "__main__":
    sys.exit(main())
