"""turns.py: reasoning, tools and grammars of `exl2 serve` as chains of jobs, with a template that opens a reasoning tag.
takes: turns.py PROGRAM [MODEL]; the model of EXL2_TEST_MODEL.
gives: exit code 0, 1 (the failed checks are printed) or 77 (no model)."""

import concurrent.futures
import json
import pathlib
import sys
import tempfile

from server import Server, check, model_of, result, run_tests, wait_for
from tiny import write_tiny

THINKS = ("{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + (m['content'] or '') + '<|im_end|>\n' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n' }}{% endif %}")
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "maxLength": 12}}, "required": ["city"],
    "additionalProperties": False}}}]
SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": {
    "type": "object", "properties": {"answer": {"enum": ["yes", "no"]}}, "required": ["answer"]}}}
ASK = {"messages": [{"role": "user", "content": "Is water wet?"}], "temperature": 0, "max_tokens": 60}

def both(s, body):
    """The message of the plain answer; the stream must give the same parts."""
    answer = s.post("/v1/chat/completions", body)
    check(answer.status == 200, "%r: %s" % (body, answer.body[:300]))
    choice = answer.json()["choices"][0]
    parts = {"content": "", "reasoning_content": ""}
    calls, reason = {}, None
    for event in s.post("/v1/chat/completions", dict(body, stream=True)).events():
        if event == "[DONE]" or not event["choices"]:
            continue
        delta = event["choices"][0]["delta"]
        check(sum(bool(delta.get(k)) for k in ("content", "reasoning_content", "tool_calls")) <= 1, "one kind a delta")
        reason = event["choices"][0]["finish_reason"] or reason
        for name in parts:
            parts[name] += delta.get(name) or ""
        for call in delta.get("tool_calls", []):
            one = calls.setdefault(call["index"], ["", ""])
            one[0] += call["function"].get("name") or ""
            one[1] += call["function"].get("arguments") or ""
    message = choice["message"]
    for name in parts:
        check(parts[name] == (message[name] or ""), "the stream has the same %s: %r, %r" % (name, parts[name], message[name]))
    whole = [[c["function"]["name"], c["function"]["arguments"]] for c in message.get("tool_calls") or []]
    check([calls[i] for i in sorted(calls)] == whole and reason == choice["finish_reason"], "the same calls and reason")
    return choice, answer.json()["usage"]


def thoughts(s):
    choice, usage = both(s, dict(ASK, max_tokens=12))
    check(choice["message"]["reasoning_content"] and not choice["message"]["content"], "an open tag: all is reasoning")
    check(usage["completion_tokens_details"]["reasoning_tokens"] == 12, "reasoning tokens are counted")
    choice, usage = both(s, dict(ASK, reasoning_budget=6))
    check(choice["message"]["reasoning_content"] and choice["message"]["content"], "the budget closes the tag: %r" % choice)
    check(usage["completion_tokens"] <= 60, "max_tokens is about all jobs: %r" % usage)
    check("think>" not in json.dumps(choice), "no tag is shown")
    choice, usage = both(s, dict(ASK, reasoning_budget=6, response_format=SCHEMA))
    check(json.loads(choice["message"]["content"])["answer"] in ("yes", "no"), "the grammar begins after the tag")
    check(choice["message"]["reasoning_content"], "and reasoning comes before it")
    choice, _ = both(s, dict(ASK, response_prefix="Well,"))
    check(not choice["message"]["reasoning_content"], "a prefix closes the open tag")
    choice, _ = both(s, dict(ASK, regex_pattern="(yes|no)"))
    check(choice["message"]["content"] in ("yes", "no"), "a regex is about the whole text")


def calls(s):
    choice, _ = both(s, dict(ASK, tools=TOOLS, tool_choice="required"))
    first = choice["message"]["tool_calls"][0]
    check(first["function"]["name"] == "get_weather" and set(json.loads(first["function"]["arguments"])) == {"city"},
          "a call must come")
    check(choice["message"]["content"] is None and choice["finish_reason"] == "tool_calls", "and no content")
    check(len(choice["message"]["tool_calls"]) <= 8, "eight calls at most")
    choice, _ = both(s, dict(ASK, tools=TOOLS, tool_choice="auto"))
    choice, _ = both(s, dict(ASK, tools=TOOLS, tool_choice="none"))
    check(not choice["message"].get("tool_calls"), "none: no calls")
    begun = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>"
    repeat = [{"role": "user", "content": "Repeat: " + begun}] * 3
    both(s, dict(ASK, messages=repeat, tools=TOOLS))
    choice, _ = both(s, dict(ASK, tools=TOOLS, tool_choice="auto", response_format=SCHEMA, reasoning_budget=8))
    check(choice["message"].get("tool_calls") or json.loads(choice["message"]["content"])["answer"] in ("yes", "no"),
          "auto with a schema: a call or the schema: %r" % choice)
    tool = {"type": "function", "function": {"name": "odd", "parameters": {
        "type": "object", "properties": {"a": {"type": "integer"}}, "if": {"required": ["a"]}, "then": {}}}}
    loose = s.post("/v1/chat/completions", dict(ASK, tools=[tool], tool_choice="required"))
    check(loose.status == 200 and "odd" in loose.headers.get("x-warning", ""), "a keyword is left out and named: %s %r" %
          (loose.body[:200], loose.headers.get("x-warning")))
    tool["function"]["strict"] = True
    firm = s.post("/v1/chat/completions", dict(ASK, tools=[tool], tool_choice="required"))
    check(firm.status == 400, "with strict it is a 400")
    del tool["function"]["strict"]
    tool["function"]["name"] = "\u00e9\r\nX-Forged: 1\r\n\r\n"
    forged = s.post("/v1/chat/completions", dict(ASK, max_tokens=1, tools=[tool], n=3))
    check(forged.status == 200 and "x-forged" not in forged.headers and forged.json()["choices"]
          and forged.headers.get("x-warning", "").endswith(": ????X-Forged: 1????: if"),
          "a name ends no line of the head, and is named once: %r" % forged.headers)


def history(s):
    """Calls and results of turns before, where the request has no tools and the template reads none."""
    call = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": "{\"city\": \"Rome\"}"}}
    turn = ASK["messages"] + [{"role": "assistant", "content": None, "tool_calls": [call]},
                              {"role": "tool", "tool_call_id": "c1", "content": "sunny, 20"}]
    answer = s.post("/v1/chat/completions", dict(ASK, messages=turn, max_tokens=2))
    check(answer.status == 200, "a call without text: %s" % answer.body)
    items = [{"role": "user", "content": "Is water wet?"},
             {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": "{\"city\": \"Rome\"}"},
             {"type": "function_call_output", "call_id": "c1", "output": "sunny, 20"}]
    other = s.post("/v1/responses", {"input": items, "max_output_tokens": 2, "temperature": 0})
    check(other.status == 200, "items of /v1/responses: %s" % other.body)
    ids = s.post("/v1/token/encode", {"text": turn}).json()["tokens"]
    text = s.post("/v1/token/decode", {"tokens": ids}).json()["text"]
    check("get_weather" in text and "Rome" in text and "<tool_response>\nsunny, 20\n</tool_response>" in text
          and "# Tools" not in text, "both are in the prompt: %r" % text)
    for counted in (answer.json()["usage"]["prompt_tokens"], other.json()["usage"]["input_tokens"]):
        check(counted == len(ids), "as many tokens as the job has: %d, %d" % (counted, len(ids)))


def pages(s):
    wait_for(lambda: s.figures()["exl2_pages_used"] == 0 and s.figures()["exl2_jobs_active"] == 0, 20)


def crowd(s):
    """More requests than the engine has jobs: the second job of each has a place, too."""
    def one(i):
        answer = s.post("/v1/chat/completions", dict(ASK, max_tokens=12, reasoning_budget=2, ban_eos_token=True, seed=i))
        check(answer.status == 200, "%d: %s" % (i, answer.body[:300]))
        choice = answer.json()["choices"][0]
        check(choice["message"]["content"] and answer.json()["usage"]["completion_tokens"] == 12, "it is whole: %r" % choice)
    with concurrent.futures.ThreadPoolExecutor(120) as threads:
        list(threads.map(one, range(240)))
    pages(s)


def main():
    model = model_of(sys.argv)
    with tempfile.TemporaryDirectory() as folder:
        template = pathlib.Path(folder) / "thinks.jinja"
        template.write_text(THINKS)
        for flags, tests in ((["--template", str(template)], (thoughts, calls, history, pages)),
                             ([], (calls, history, pages))):
            with Server(sys.argv[1], "--no-auth", *flags, model=model) as s:
                run_tests(s, tests)
        tiny = write_tiny(model, pathlib.Path(folder) / "tiny")
        with Server(sys.argv[1], "--no-auth", "--context", "2048", "--template", str(template), model=tiny) as s:
            run_tests(s, [crowd])
    return result()


if __name__ == "__main__":
    sys.exit(main())
