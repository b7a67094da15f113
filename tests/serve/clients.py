"""clients.py: the openai package and langchain-openai against `exl2 serve`. Every body and every chunk must pass the
package's own types, strictly.
takes: clients.py PROGRAM [MODEL]; the model of EXL2_TEST_MODEL.
gives: exit code 0, 1 (the failed checks are printed) or 77 (a package or the model is absent)."""

import json
import sys

from server import Server, check, model_of, result, run_tests, skip

try:
    import openai
    from openai.types import Completion
    from openai.types.chat import ChatCompletion, ChatCompletionChunk
except ImportError:
    skip("the package openai is absent")

TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "Weather of a city", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "maxLength": 20}, "unit": {"enum": ["c", "f"]}},
    "required": ["city", "unit"], "additionalProperties": False}}},
    {"type": "function", "function": {"name": "tell_time", "parameters": {"type": "object", "properties": {
        "zone": {"type": "string", "maxLength": 10}}, "required": ["zone"]}}}]
HELLO = [{"role": "user", "content": "Say hello to Marla."}]


def strict(kind, data):
    """The package parses leniently; its classes with strict=True do not."""
    value = json.dumps(data)
    try:
        return kind.model_validate_json(value, strict=True)
    except Exception as error:
        check(False, "%s: %s in %s" % (kind.__name__, error, value[:400]))
        return None


def shapes(s, _):
    chat = {"model": "m", "messages": HELLO, "max_tokens": 6, "temperature": 0}
    for more in ({}, {"n": 3, "seed": 1, "temperature": 1}, {"logprobs": True, "top_logprobs": 2}, {"logprobs": True},
                 {"tools": TOOLS}, {"tools": TOOLS, "tool_choice": "required", "max_tokens": 80}):
        whole = s.post("/v1/chat/completions", dict(chat, **more))
        check(whole.status == 200, "%r: %s" % (more, whole.body[:200]))
        strict(ChatCompletion, whole.json())
        events = s.post("/v1/chat/completions", dict(chat, stream=True, stream_options={"include_usage": True},
                                                     **more)).events()
        check(events[-1] == "[DONE]", "[DONE] ends the stream")
        ids = set()
        for event in events[:-1]:
            strict(ChatCompletionChunk, event)
            ids.add((event["id"], event["created"], event["model"], event["system_fingerprint"]))
        check(len(ids) == 1, "one id in all chunks")
        text = ["".join(c["delta"].get("content") or "" for e in events[:-1] for c in e["choices"] if c["index"] == i)
                for i in range(more.get("n", 1))]
        check(text == [c["message"]["content"] or "" for c in whole.json()["choices"]], "the same text: %r" % more)
    plain = {"model": "m", "prompt": ["One", "Two"], "max_tokens": 5, "temperature": 0}
    for more in ({}, {"n": 2}, {"logprobs": 3}, {"echo": True, "logprobs": 1}):
        whole = s.post("/v1/completions", dict(plain, **more))
        check(whole.status == 200, "%r: %s" % (more, whole.body[:200]))
        body = whole.json()
        if more.get("echo"):  # a prompt's first token has no log-probability: null in OpenAI's own answers, not in the class
            for choice in body["choices"]:
                check(choice["logprobs"]["token_logprobs"].pop(0) is None, "the first token has none")
                choice["logprobs"]["top_logprobs"].pop(0)
        strict(Completion, body)
        check(len(whole.json()["choices"]) == 2 * more.get("n", 1), "prompts x n choices")
        events = s.post("/v1/completions", dict(plain, stream=True, **more)).events()
        for event in events[:-1]:
            # The class of a chunk is the class of a body, whose finish_reason may not be null; the package lets it pass.
            for choice in event["choices"]:
                choice["finish_reason"] = choice["finish_reason"] or "stop"
                for name in ("token_logprobs", "top_logprobs"):
                    rows = (choice["logprobs"] or {}).get(name) or [0]
                    if rows[0] is None:
                        rows.pop(0)
            strict(Completion, event)


def package(_, client):
    check(client.models.list().data[0].id, "models.list")
    answer = client.chat.completions.create(model="m", messages=HELLO, max_completion_tokens=8, temperature=0, seed=3)
    check(answer.choices[0].message.content and answer.usage.completion_tokens <= 8, "a chat")
    text = ""
    for chunk in client.chat.completions.create(model="m", messages=HELLO, max_tokens=8, temperature=0, stream=True):
        text += chunk.choices[0].delta.content or "" if chunk.choices else ""
    check(text == answer.choices[0].message.content, "its stream")
    try:
        client.completions.create(model="m", prompt="word " * 20000)
        check(False, "a prompt that is too long raises")
    except openai.BadRequestError as error:
        check(error.code == "context_length_exceeded", "a code says that the prompt is too long")
    try:
        client.chat.completions.create(model="m", messages=HELLO, temperature=99)
        check(False, "a temperature of 99 raises")
    except openai.BadRequestError as error:
        check(error.param == "temperature", "the parameter is named")


def tools(_, client):
    for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
        answer = client.chat.completions.create(model="m", temperature=0, max_tokens=120, tools=TOOLS, tool_choice=choice,
                                                messages=[{"role": "user", "content": "What is the weather in Rome?"}],
                                                parallel_tool_calls=False)
        first = answer.choices[0]
        check(first.finish_reason == "tool_calls" and first.message.content is None and first.message.tool_calls,
              "a call must come: %r" % first)
        call = first.message.tool_calls[0]
        arguments = json.loads(call.function.arguments)
        check(call.id.startswith("call_") and len(call.id) == 29, "its id")
        if call.function.name == "get_weather":
            check(set(arguments) == {"city", "unit"} and arguments["unit"] in ("c", "f"), "arguments fit the schema")
        pieces = client.chat.completions.create(model="m", temperature=0, max_tokens=120, tools=TOOLS, tool_choice=choice,
                                                messages=[{"role": "user", "content": "What is the weather in Rome?"}],
                                                parallel_tool_calls=False, stream=True)
        name, text, reason, first_arguments = "", "", None, None
        for chunk in pieces:
            delta = chunk.choices[0].delta
            reason = chunk.choices[0].finish_reason or reason
            for part in delta.tool_calls or []:
                check(part.index == 0, "an index")
                name += part.function.name or ""
                first_arguments = part.function.arguments if first_arguments is None else first_arguments
                text += part.function.arguments or ""
        check(name == call.function.name and text == call.function.arguments and reason == "tool_calls"
              and first_arguments == "", "the stream has the same call: %r %r" % (name, text))
        again = client.chat.completions.create(model="m", temperature=0, max_tokens=16, tools=TOOLS, messages=[
            {"role": "user", "content": "What is the weather in Rome?"},
            {"role": "assistant", "content": None, "tool_calls": [call.model_dump()]},
            {"role": "tool", "tool_call_id": call.id, "content": "sunny, 20"}])
        check(again.choices[0].finish_reason in ("stop", "length", "tool_calls"), "the result is read")
    for name in ("get_weather", "tell_time"):
        one = client.chat.completions.create(model="m", temperature=0, max_tokens=120, tools=TOOLS, tool_choice={
            "type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [
                {"type": "function", "function": {"name": name}}]}},
            messages=[{"role": "user", "content": "What is the weather in Rome?"}], parallel_tool_calls=False)
        check(one.choices[0].message.tool_calls[0].function.name == name, "allowed_tools restrict the tools")
    auto = client.chat.completions.create(model="m", temperature=0, max_tokens=40, tools=TOOLS, messages=HELLO)
    check(auto.choices[0].message.content or auto.choices[0].message.tool_calls, "auto gives text or calls")
    none = client.chat.completions.create(model="m", temperature=0, max_tokens=20, tools=TOOLS, tool_choice="none",
                                          messages=HELLO)
    check(none.choices[0].message.tool_calls is None, "none gives no calls")


def logprobs(client, s, ask):
    """Those of /v1/responses are those of a chat, in the response and in the stream's events."""
    chat = client.chat.completions.create(model="m", messages=HELLO, max_tokens=ask["max_output_tokens"], temperature=0,
                                          logprobs=True, top_logprobs=2).choices[0].logprobs.content
    wanted = [(t.token, t.logprob, t.bytes, [(a.token, a.logprob) for a in t.top_logprobs]) for t in chat]
    whole = s.post("/v1/responses", ask)
    part = whole.json()["output"][0]["content"][0]

    def rows(tokens):
        return [(t["token"], t["logprob"], t["bytes"], [(a["token"], a["logprob"]) for a in t["top_logprobs"]])
                for t in tokens]
    check(len(wanted) > 4 and rows(part["logprobs"]) == wanted, "as a chat's: %r" % part)
    check(whole.json()["top_logprobs"] == 2 and "x-warning" not in whole.headers, "what was asked: %r" % whole.headers)
    events = s.post("/v1/responses", dict(ask, stream=True)).events()
    deltas = [t for e in events if e["type"] == "response.output_text.delta" for t in e["logprobs"]]
    check(rows(deltas) == wanted, "the deltas have each once: %r" % deltas)
    for kind, find in (("response.output_text.done", lambda e: e), ("response.content_part.done", lambda e: e["part"]),
                       ("response.output_item.done", lambda e: e["item"]["content"][0]),
                       (events[-1]["type"], lambda e: e["response"]["output"][0]["content"][0])):
        ends = [find(e)["logprobs"] for e in events if e["type"] == kind]
        check(len(ends) == 1 and rows(ends[0]) == wanted, "%s has all: %r" % (kind, ends))
    other = s.post("/v1/responses", dict(ask, include=["reasoning.encrypted_content"], top_logprobs=0))
    check(other.json()["output"][0]["content"][0]["logprobs"] == [] and "include: reasoning.encrypted_content"
          in other.headers["x-warning"], "what the server lacks is named: %r" % other.headers)


def responses(s, client):
    from openai.types.responses import Response
    ask = {"model": "m", "input": "Say hello to Marla.", "max_output_tokens": 10, "temperature": 0}
    plain = s.post("/v1/responses", ask)
    check(plain.status == 200, "a response: %s" % plain.body[:300])
    strict(Response, plain.json())
    text = client.responses.create(**ask).output_text
    kinds, streamed, last = [], "", None
    for event in client.responses.create(stream=True, **ask):
        kinds.append(event.type)
        streamed += event.delta if event.type == "response.output_text.delta" else ""
        last = event
    check(streamed == text and last.response.output_text == text, "its stream has the same text: %r %r" % (streamed, text))
    check(kinds[:4] == ["response.created", "response.in_progress", "response.output_item.added",
                        "response.content_part.added"], "events in order: %r" % kinds[:5])
    check(kinds[-4:-1] == ["response.output_text.done", "response.content_part.done", "response.output_item.done"]
          and kinds[-1] in ("response.completed", "response.incomplete"), "and at the end: %r" % kinds[-4:])
    logprobs(client, s, dict(ask, include=["message.output_text.logprobs"], top_logprobs=2))
    flat = [dict(TOOLS[0]["function"], type="function")]
    call = client.responses.create(model="m", input=[{"role": "user", "content": "Weather in Rome?"}], tools=flat,
                                   tool_choice="required", max_output_tokens=100, temperature=0, parallel_tool_calls=False)
    item = call.output[0]
    check(item.type == "function_call" and set(json.loads(item.arguments)) == {"city", "unit"}, "a call: %r" % item)
    both = [dict(tool["function"], type="function") for tool in TOOLS]
    other = client.responses.create(model="m", input="Weather in Rome?", tools=both, max_output_tokens=100, temperature=0,
                                    tool_choice={"type": "allowed_tools", "mode": "required", "tools": [
                                        {"type": "function", "name": "tell_time"}]}, parallel_tool_calls=False)
    check(other.output[0].name == "tell_time", "allowed_tools restrict the tools: %r" % other)
    again = client.responses.create(model="m", tools=flat, max_output_tokens=10, input=[
        {"role": "user", "content": "Weather in Rome?"}, item.model_dump(),
        {"type": "function_call_output", "call_id": item.call_id, "output": "sunny"}])
    check(again.status in ("completed", "incomplete"), "its result is read")
    check(s.post("/v1/responses", dict(ask, previous_response_id="resp_1")).status == 400, "no state: a 400")


def langchain(s, _):
    try:
        from langchain_openai import ChatOpenAI, OpenAI
    except ImportError:
        print("langchain-openai is absent; its part is left out")
        return
    common = {"base_url": s.url + "v1", "api_key": s.keys["api_key"], "model": "m", "temperature": 0}
    chat = ChatOpenAI(max_completion_tokens=12, **common)
    check(chat.invoke("Say hello.").content, "ChatOpenAI.invoke")
    check("".join(c.content for c in chat.stream("Say hello.")) == chat.invoke("Say hello.").content, "its stream")
    check(chat.invoke("Say hello.").usage_metadata["input_token_details"]["cache_read"] > 0, "cached tokens are read")
    check(OpenAI(max_tokens=8, **common).invoke("Once upon a time"), "OpenAI.invoke")
    schema = {"title": "Person", "description": "A person", "type": "object", "properties": {
        "name": {"type": "string", "maxLength": 10}, "age": {"type": "integer"}}, "required": ["name", "age"]}
    wide = ChatOpenAI(max_completion_tokens=120, **common)
    for method in ("json_schema", "function_calling"):
        value = wide.with_structured_output(schema, method=method).invoke("A person called Bo, 30 years old.")
        check(isinstance(value, dict) and set(value) == {"name", "age"}, "with_structured_output %s: %r" % (method, value))


def main():
    with Server(sys.argv[1], model=model_of(sys.argv)) as s:
        s.headers = {"Authorization": "Bearer " + s.keys["api_key"]}
        client = openai.OpenAI(base_url=s.url + "v1", api_key=s.keys["api_key"], max_retries=0)
        run_tests(s, (shapes, package, tools, responses, langchain), client)
    return result()


if __name__ == "__main__":
    sys.exit(main())
