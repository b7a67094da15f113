"""packages.py: pydantic-ai, litellm and instructor against `exl2 serve`: text, streams, tools, typed answers, errors.
takes: packages.py PROGRAM [MODEL] [TEST...]; the model of EXL2_TEST_MODEL. pydantic-ai needs openai 3, the others
       openai 2: openai3.txt and openai2.txt beside this file are for pip.
gives: exit code 0, 1 (the failed checks are printed) or 77 (all three are absent, or the model is)."""

import asyncio
import importlib.util
import json
import os
import sys
import typing

from server import Server, check, model_of, result, run_tests, skip

PACKAGES = [name for name in ("pydantic_ai", "litellm", "instructor") if importlib.util.find_spec(name)]
if not PACKAGES:
    skip("the packages pydantic-ai, litellm and instructor are absent")

from pydantic import BaseModel, Field


class Person(BaseModel):
    name: str = Field(max_length=12)
    age: int


ASK = [{"role": "user", "content": "Say hello."}]
BO = "A person called Bo, 30 years old."
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "maxLength": 12}}, "required": ["city"]}}}
SHORT, LONG = {"max_tokens": 12, "temperature": 0}, {"max_tokens": 120, "temperature": 0}


def pydantic_ai(s):
    from pydantic_ai import Agent, ModelRequest, NativeOutput, ToolDefinition, ToolOutput
    from pydantic_ai.direct import model_request_sync
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider
    provider = OpenAIProvider(base_url=s.url + "v1", api_key=s.keys["api_key"])

    async def streamed(agent):
        async with agent.run_stream("Say hello.") as answer:
            return "".join([text async for text in answer.stream_text(delta=True)])

    for kind in (OpenAIChatModel, OpenAIResponsesModel):
        model = kind("m", provider=provider)
        agent = Agent(model, system_prompt="Be short.", model_settings=SHORT)
        answer = agent.run_sync("Say hello.")
        check(answer.output and answer.usage.output_tokens == 12, "%s: a text: %r" % (kind.__name__, answer))
        check(asyncio.run(streamed(agent)) == answer.output, "%s: its stream is the same text" % kind.__name__)
        for output in (ToolOutput(Person), NativeOutput(Person)):
            person = Agent(model, output_type=output, model_settings=LONG).run_sync(BO).output
            check(isinstance(person, Person), "%s: %s: %r" % (kind.__name__, type(output).__name__, person))
        tool = ToolDefinition(name="get_weather", parameters_json_schema=TOOL["function"]["parameters"])
        parts = model_request_sync(
            model, [ModelRequest.user_text_prompt("What is the weather in Rome?")], model_settings=LONG,
            model_request_parameters=ModelRequestParameters(function_tools=[tool], allow_text_output=False)).parts
        check(parts[0].part_kind == "tool-call" and set(parts[0].args_as_dict()) == {"city"}, "a tool is called: %r" % parts)


def litellm(s):
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # asks nobody for prices
    import litellm as package
    package.suppress_debug_info = True
    to = {"model": "openai/m", "api_base": s.url + "v1", "api_key": s.keys["api_key"]}
    whole = package.completion(messages=ASK, **SHORT, **to)
    check(whole.choices[0].message.content and whole.usage.completion_tokens == 12, "a text: %r" % whole)
    pieces = list(package.completion(messages=ASK, stream=True, stream_options={"include_usage": True}, **SHORT, **to))
    check("".join(p.choices[0].delta.content or "" for p in pieces if p.choices) == whole.choices[0].message.content, "its stream")
    check(pieces[-1].usage.completion_tokens == 12, "the stream's usage: %r" % pieces[-1])
    plain = package.text_completion(prompt="Once", **SHORT, **dict(to, model="text-completion-openai/m"))
    check(plain.choices[0].text, "a completion: %r" % plain)
    call = package.completion(messages=ASK, tools=[TOOL], tool_choice="required", **LONG, **to).choices[0]
    check(call.finish_reason == "tool_calls" and set(json.loads(call.message.tool_calls[0].function.arguments)) == {"city"},
          "a call: %r" % call)
    pieces = list(package.completion(messages=ASK, tools=[TOOL], tool_choice="required", stream=True, **LONG, **to))
    built = package.stream_chunk_builder(pieces, messages=ASK).choices[0].message.tool_calls
    check([c.function.arguments for c in built] == [c.function.arguments for c in call.message.tool_calls], "its stream")
    for error, changed in ((package.ContextWindowExceededError, {"messages": [{"role": "user", "content": "word " * 20000}]}),
                           (package.AuthenticationError, {"api_key": "wrong"}),
                           (package.BadRequestError, {"temperature": 99})):
        try:
            package.completion(**dict(dict(to, messages=ASK, max_retries=0, num_retries=0), **changed))
            check(False, "%s must be raised" % error.__name__)
        except error:
            pass


def instructor(s):
    import instructor as package
    import openai
    client = openai.OpenAI(base_url=s.url + "v1", api_key=s.keys["api_key"], max_retries=0)
    ask = {"model": "m", "messages": [{"role": "user", "content": BO}], "max_retries": 0, **LONG}
    for mode in (package.Mode.TOOLS, package.Mode.TOOLS_STRICT, package.Mode.JSON_SCHEMA):
        person = package.from_openai(client, mode=mode).chat.completions.create(response_model=Person, **ask)
        check(isinstance(person, Person), "%s: %r" % (mode, person))
    several = package.from_openai(client, mode=package.Mode.PARALLEL_TOOLS).chat.completions.create(
        response_model=typing.Iterable[Person], **ask)
    check(all(isinstance(person, Person) for person in several), "parallel tools")
    *_, last = package.from_openai(client, mode=package.Mode.JSON_SCHEMA).chat.completions.create_partial(
        response_model=Person, **ask)
    check(last.name and last.age is not None, "a partial answer grows: %r" % last)


def main():
    with Server(sys.argv[1], model=model_of(sys.argv)) as s:
        run_tests(s, [test for test in (pydantic_ai, litellm, instructor) if test.__name__ in PACKAGES])
    absent = [name for name in ("pydantic_ai", "litellm", "instructor") if name not in PACKAGES]
    if absent:
        print("left out, as they are absent:", ", ".join(absent))
    return result()


if __name__ == "__main__":
    sys.exit(main())
