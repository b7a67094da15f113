"""formats.py: tools of `exl2 serve` with the templates of Llama 3 and Mistral, from the request to the result of a call,
and answers with a draft model. The weights are those of EXL2_TEST_MODEL, some of whose special tokens get the names
that the templates use; the mark of a call that the model may open is made likely by a bias.
takes: formats.py PROGRAM [MODEL]; EXL2_TEST_DATA has fixtures/templates.
gives: exit code 0, 1 (the failed checks are printed) or 77 (no model, or no fixtures)."""

import json
import os
import pathlib
import re
import sys
import tempfile

from server import Server, check, model_of, result, run_tests, skip
from turns import both

TEMPLATES = pathlib.Path(os.environ.get("EXL2_TEST_DATA", "")) / "fixtures" / "templates"
LLAMA3 = ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|python_tag|>")
MISTRAL = ("[TOOL_CALLS]", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]",
           "[/TOOL_RESULTS]")
TOOLS = [{"type": "function", "function": {"name": name, "description": "The weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "maxLength": 12}, "unit": {"enum": ["c", "f"]}},
    "required": ["city", "unit"], "additionalProperties": False}}} for name in ("get_weather", "get_wind")]
ASK = {"messages": [{"role": "user", "content": "What is the weather in Rome?"}], "temperature": 0, "max_tokens": 100,
       "tools": TOOLS}


def write_model(source, folder, template, markers):
    """The model with this template; its rarest special tokens are named as `markers`."""
    source = pathlib.Path(source)
    folder.mkdir()
    for file in source.iterdir():
        if file.name.startswith("tokenizer"):
            text = file.read_text()
            special = [t["content"] for t in json.loads((source / "tokenizer.json").read_text())["added_tokens"]][3:]
            for old, new in zip(special, markers):
                text = text.replace(json.dumps(old), json.dumps(new))
            (folder / file.name).write_text(text)
        else:
            (folder / file.name).symlink_to(file)
    (folder / "chat_template.jinja").write_text(template)
    return str(folder)


def fits(call):
    arguments = json.loads(call["function"]["arguments"])
    return (call["function"]["name"] in ("get_weather", "get_wind") and set(arguments) == {"city", "unit"}
            and re.fullmatch("call_[0-9a-f]{24}", call["id"]))


def calls(s, mark):
    for choice in ("required", {"type": "function", "function": {"name": "get_wind"}}):
        answer, _ = both(s, dict(ASK, tool_choice=choice))
        message = answer["message"]
        check(answer["finish_reason"] == "tool_calls" and message["content"] is None and all(map(fits, message["tool_calls"])),
              "%r: %r" % (choice, answer))
        check(choice == "required" or message["tool_calls"][0]["function"]["name"] == "get_wind", "the named one")
    one, _ = both(s, dict(ASK, tool_choice="required", parallel_tool_calls=False))
    check(len(one["message"]["tool_calls"]) == 1, "one call: %r" % one)
    token, = s.post("/v1/token/encode", {"text": mark, "add_bos_token": False}).json()["tokens"]
    opened, _ = both(s, dict(ASK, logit_bias={str(token): 100}))
    check(opened["finish_reason"] == "tool_calls" and all(map(fits, opened["message"]["tool_calls"])),
          "a call that the model opens: %r" % opened)
    none, _ = both(s, dict(ASK, logit_bias={str(token): -100}))
    check(none["message"]["content"] and not none["message"].get("tool_calls"), "none: %r" % none)
    turn = [ASK["messages"][0], one["message"],
            {"role": "tool", "tool_call_id": one["message"]["tool_calls"][0]["id"], "content": "sunny, 20"}]
    after = s.post("/v1/chat/completions", dict(ASK, messages=turn, max_tokens=8))
    check(after.status == 200, "the result is read: %s" % after.body)
    shown = s.post("/v1/token/encode", {"text": turn}).json()["tokens"]
    text = s.post("/v1/token/decode", {"tokens": shown}).json()["text"]
    check("get_w" in text and "sunny, 20" in text, "the prompt has the call and its result: %r" % text)


def llama3(s):
    calls(s, "<|python_tag|>")


def mistral(s):
    calls(s, "[TOOL_CALLS]")


def drafts(s):
    """The texts of a server with a draft model are those without one."""
    ask = {"prompt": "Once upon a time", "max_tokens": 16, "temperature": 0}
    answer = s.post("/v1/completions", dict(ask, n=2)).json()
    check(s.figures()["exl2_tokens_accepted_total"] > 0, "guesses are accepted")
    check(s.get("/v1/model").json()["parameters"]["draft"]["id"], "the card names the draft model")
    chat, _ = both(s, {"messages": ASK["messages"], "temperature": 0, "max_tokens": 12})
    drafts.texts = [c["text"] for c in answer["choices"]] + [chat["message"]["content"]]


def plain(s):
    ask = {"prompt": "Once upon a time", "max_tokens": 16, "temperature": 0}
    text = s.post("/v1/completions", ask).json()["choices"][0]["text"]
    chat, _ = both(s, {"messages": ASK["messages"], "temperature": 0, "max_tokens": 12})
    check(drafts.texts == [text] * 2 + [chat["message"]["content"]], "the same texts: %r" % drafts.texts)


def main():
    source = model_of(sys.argv)
    if not TEMPLATES.is_dir():
        skip("EXL2_TEST_DATA has no fixtures/templates")
    with tempfile.TemporaryDirectory() as name:
        for test, fixture, markers in ((llama3, "llama3_tools", LLAMA3), (mistral, "mistral_v7", MISTRAL)):
            template = (TEMPLATES / fixture / "template.jinja").read_text()
            model = write_model(source, pathlib.Path(name) / fixture, template, markers)
            with Server(sys.argv[1], "--no-auth", "--context", "4096", model=model) as s:
                run_tests(s, [test])
            with Server(sys.argv[1], "--no-auth", "--context", "4096", "--template",
                        str(TEMPLATES / fixture / "template.jinja"), model=write_model(
                            source, pathlib.Path(name) / (fixture + "_flag"), "{{ messages[0].content }}", markers)) as s:
                run_tests(s, [test])
    with Server(sys.argv[1], "--no-auth", "--context", "2048", "--draft", source, model=source) as s:
        run_tests(s, [drafts])
    with Server(sys.argv[1], "--no-auth", "--context", "2048", model=source) as s:
        run_tests(s, [plain])
    return result()


if __name__ == "__main__":
    sys.exit(main())
