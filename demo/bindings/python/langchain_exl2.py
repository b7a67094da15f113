"""langchain_exl2: a chat model and an LLM for LangChain, over the package exl2. Needs langchain-core alone.

    from langchain_exl2 import ChatExl2

    chat = ChatExl2(model="build/models/smollm2-135m-instruct", temperature=0.7, max_tokens=200)
    print(chat.invoke("Who stole the key?").content)

Tools and structured output are grammars: whatever the model is, a call's name and arguments fit the tool's schema. A
chat template that reads tools gets them; for another one they are described in the system message.
"""

import json
import threading
import uuid
from typing import Any, Optional

import exl2
from langchain_core.language_models import LLM, BaseChatModel
from langchain_core.messages import (AIMessage, AIMessageChunk, BaseMessage, ChatMessage, HumanMessage, SystemMessage,
                                     ToolMessage)
from langchain_core.messages.ai import UsageMetadata
from langchain_core.output_parsers import JsonOutputParser, PydanticOutputParser
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult, GenerationChunk
from langchain_core.runnables import RunnableMap, RunnablePassthrough
from langchain_core.utils.function_calling import convert_to_json_schema, convert_to_openai_tool
from langchain_core.utils.json_schema import dereference_refs
from langchain_core.utils.pydantic import is_basemodel_subclass
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr


class _Exl2Settings(BaseModel):
    """What the chat model and the LLM have in common: where the model lies, and how it is sampled."""

    model_config = ConfigDict(populate_by_name=True)

    model: str = Field(alias="model_path")
    """The folder of the model."""
    backend: str = "auto"
    """"auto", "cuda" or "cpu"."""
    context: int = 0
    """Tokens of a conversation; 0: the model's own, at most 8,192."""
    max_tokens: Optional[int] = None
    temperature: Optional[float] = None
    """None: as the model's files say; 0: the likeliest token."""
    top_p: Optional[float] = None
    top_k: Optional[int] = None
    min_p: Optional[float] = None
    repeat_penalty: Optional[float] = None
    seed: Optional[int] = None
    stop: Optional[list[str]] = Field(default=None, alias="stop_sequences")
    settings: dict = Field(default_factory=dict)
    """Any other setting of exl2.Session.start."""

    _loaded: Any = PrivateAttr(default=None)
    _loading: Any = PrivateAttr(default_factory=threading.Lock)

    @property
    def _llm_type(self) -> str:
        return "exl2"

    @property
    def _identifying_params(self):
        return {"model": self.model, "temperature": self.temperature, "max_tokens": self.max_tokens}

    def loaded(self) -> exl2.Model:
        """The model, which the first call loads."""
        with self._loading:
            if self._loaded is None:
                self._loaded = exl2.Engine(self.backend).load(self.model, context=self.context)
            return self._loaded

    def _job(self, prompt, stop, more):
        """Starts a job with the object's settings, and those of a call over them."""
        settings = {name: getattr(self, name) for name in ("max_tokens", "temperature", "top_p", "top_k", "min_p",
                                                           "repeat_penalty", "seed")}
        settings.update(self.settings)
        settings.update({name: value for name, value in more.items() if not name.startswith("ls_")})
        settings["stop"] = stop or settings.get("stop") or self.stop
        settings = {name: value for name, value in settings.items() if value is not None}
        return self.loaded().start(prompt, **settings)


def _content_text(content):
    """The text of a message's content. Only text can be given to these models."""
    if isinstance(content, str):
        return content
    texts = []
    for part in content:
        if isinstance(part, str):
            texts.append(part)
        elif part.get("type") == "text":
            texts.append(part["text"])
        elif part.get("type") not in ("tool_use", "tool_call", "thinking", "reasoning"):
            raise ValueError("a message has content of the type %r; this model reads text only" % part.get("type"))
    return "".join(texts)


def _call_json(call):
    return {"name": call["name"], "arguments": call["args"]}


def _message(message: BaseMessage, template_calls: bool):
    """A message for the chat template. template_calls: the template reads `tool_calls`; else they become text."""
    content = _content_text(message.content)
    if isinstance(message, SystemMessage):
        return {"role": "system", "content": content}
    if isinstance(message, ChatMessage):
        return {"role": message.role, "content": content}
    if isinstance(message, ToolMessage):
        return {"role": "tool", "content": content, "tool_call_id": message.tool_call_id}
    if isinstance(message, AIMessage):
        if message.tool_calls and template_calls:
            calls = [{"id": call["id"], "type": "function", "function": _call_json(call)}
                     for call in message.tool_calls]
            return {"role": "assistant", "content": content, "tool_calls": calls}
        said = [content] if content else []
        return {"role": "assistant", "content": "\n".join(said + [json.dumps(_call_json(call))
                                                                   for call in message.tool_calls])}
    return {"role": "user", "content": content}


def _system_tools(messages, tools):
    """The messages with the tools described in the system message, for a template that does not read tools."""
    text = ("You may call these tools, each described in JSON:\n" + "\n".join(json.dumps(tool["function"])
                                                                           for tool in tools)
            + "\nA call is {\"name\": ..., \"arguments\": {...}}.")
    if messages and messages[0]["role"] == "system":
        first = dict(messages[0], content=messages[0]["content"] + "\n\n" + text)
        return [first] + messages[1:]
    return [{"role": "system", "content": text}] + messages


def _call_schema(tools, choice):
    """The schema of a reply with tools: a call of one of them or, if the model may choose, {"reply": text}."""
    calls = [{"type": "object", "required": ["name", "arguments"], "additionalProperties": False,
              "properties": {"name": {"const": tool["function"]["name"]},
                             "arguments": _flat(tool["function"].get("parameters") or {"type": "object"})}}
             for tool in tools if choice in ("auto", "any", tool["function"]["name"])]
    if not calls:
        raise ValueError("tool_choice names %r, which is none of the tools" % choice)
    if choice == "auto":
        calls.append({"type": "object", "required": ["reply"], "additionalProperties": False,
                      "properties": {"reply": {"type": "string"}}})
    return {"anyOf": calls} if len(calls) > 1 else calls[0]


def _flat(schema):
    """The schema without references, which would point elsewhere inside a larger schema."""
    schema = dereference_refs(schema)
    return {name: value for name, value in schema.items() if name not in ("$defs", "definitions")}


class ChatExl2(_Exl2Settings, BaseChatModel):
    """A chat model in a folder on this machine."""

    def bind_tools(self, tools, *, tool_choice=None, **kwargs):
        """Tools for the model. tool_choice: "auto" (a call or a text), "any" or a tool's name (always a call)."""
        converted = [convert_to_openai_tool(tool) for tool in tools]
        if isinstance(tool_choice, dict):
            tool_choice = tool_choice["function"]["name"]
        choice = {None: "auto", True: "any", "required": "any"}.get(tool_choice, tool_choice)
        if choice == "none":
            return self.bind(**kwargs)
        _call_schema(converted, choice)
        return self.bind(tools=converted, tool_choice=choice, **kwargs)

    def with_structured_output(self, schema, *, include_raw=False, method="json_schema", **kwargs):
        """Replies that fit the schema: a Pydantic class, a TypedDict or a JSON schema. `method` may have any of
        LangChain's names; each is a grammar here."""
        if method not in ("json_schema", "json_mode", "function_calling"):
            raise ValueError("method is %r; it must be json_schema, json_mode or function_calling" % method)
        pydantic = isinstance(schema, type) and is_basemodel_subclass(schema)
        shape = convert_to_json_schema(schema)
        parser = PydanticOutputParser(pydantic_object=schema) if pydantic else JsonOutputParser()
        bound = self.bind(schema=_flat(shape), **kwargs,
                          ls_structured_output_format={"kwargs": {"method": method}, "schema": shape})
        if not include_raw:
            return bound | parser
        parsed = RunnablePassthrough.assign(parsed=lambda all: parser.invoke(all["raw"]), parsing_error=lambda _: None)
        failed = RunnablePassthrough.assign(parsed=lambda _: None)
        return RunnableMap(raw=bound) | parsed.with_fallbacks([failed], exception_key="parsing_error")

    def _start(self, messages, stop, more):
        more = dict(more)
        tools, choice = more.pop("tools", None), more.pop("tool_choice", "auto")
        model = self.loaded()
        info = model.info
        prompt = [_message(message, info["reads_tool_calls"]) for message in messages]
        if tools:
            more["schema"] = _call_schema(tools, choice)
            if info["reads_tools"]:
                more["tools"] = tools
            else:
                prompt = _system_tools(prompt, tools)
        return self._job(prompt, stop, more), bool(tools)

    def _usage(self, job) -> UsageMetadata:
        given, made = job.stats["prompt_tokens"], job.stats["new_tokens"]
        return UsageMetadata(input_tokens=given, output_tokens=made, total_tokens=given + made,
                             input_token_details={"cache_read": job.stats["reused_tokens"]})

    def _last(self, job) -> ChatGenerationChunk:
        """An empty chunk that ends the message: why it ended, and the usage."""
        reason = "length" if job.stop == "length" else "stop"
        message = AIMessageChunk(content="", usage_metadata=self._usage(job), chunk_position="last",
                                 response_metadata={"finish_reason": reason, "model_name": self.model,
                                                    "model_provider": "exl2"})
        return ChatGenerationChunk(message=message, generation_info={"finish_reason": reason})

    def _with_tools(self, text) -> ChatGenerationChunk:
        """A whole reply that fits _call_schema."""
        reply = json.loads(text)
        if "reply" in reply:
            return ChatGenerationChunk(message=AIMessageChunk(content=reply["reply"]))
        call = {"name": reply["name"], "args": json.dumps(reply["arguments"]), "id": "call_" + uuid.uuid4().hex,
                "index": 0}
        return ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[call]))

    def _stream(self, messages, stop=None, run_manager=None, **kwargs):
        job, with_tools = self._start(messages, stop, kwargs)
        with job:
            for piece in job:
                if not with_tools:
                    chunk = ChatGenerationChunk(message=AIMessageChunk(content=piece))
                    if run_manager:
                        run_manager.on_llm_new_token(piece, chunk=chunk)
                    yield chunk
        if with_tools:
            yield self._with_tools(job.text)
        yield self._last(job)

    async def _astream(self, messages, stop=None, run_manager=None, **kwargs):
        job, with_tools = self._start(messages, stop, kwargs)
        with job:
            async for piece in job:
                if not with_tools:
                    chunk = ChatGenerationChunk(message=AIMessageChunk(content=piece))
                    if run_manager:
                        await run_manager.on_llm_new_token(piece, chunk=chunk)
                    yield chunk
        if with_tools:
            yield self._with_tools(job.text)
        yield self._last(job)

    def _generate(self, messages, stop=None, run_manager=None, **kwargs) -> ChatResult:
        return _joined(list(self._stream(messages, stop, run_manager, **kwargs)))

    async def _agenerate(self, messages, stop=None, run_manager=None, **kwargs) -> ChatResult:
        return _joined([chunk async for chunk in self._astream(messages, stop, run_manager, **kwargs)])


def _joined(chunks) -> ChatResult:
    whole = chunks[0].message
    for chunk in chunks[1:]:
        whole = whole + chunk.message
    message = AIMessage(content=whole.content, tool_calls=whole.tool_calls, usage_metadata=whole.usage_metadata,
                        response_metadata=whole.response_metadata)
    return ChatResult(generations=[ChatGeneration(message=message, generation_info=chunks[-1].generation_info)])


class Exl2LLM(_Exl2Settings, LLM):
    """A model that continues a text."""

    def _call(self, prompt, stop=None, run_manager=None, **kwargs) -> str:
        return "".join(chunk.text for chunk in self._stream(prompt, stop, run_manager, **kwargs))

    async def _acall(self, prompt, stop=None, run_manager=None, **kwargs) -> str:
        return "".join([chunk.text async for chunk in self._astream(prompt, stop, run_manager, **kwargs)])

    def _stream(self, prompt, stop=None, run_manager=None, **kwargs):
        with self._job(prompt, stop, kwargs) as job:
            for piece in job:
                if run_manager:
                    run_manager.on_llm_new_token(piece)
                yield GenerationChunk(text=piece)

    async def _astream(self, prompt, stop=None, run_manager=None, **kwargs):
        with self._job(prompt, stop, kwargs) as job:
            async for piece in job:
                if run_manager:
                    await run_manager.on_llm_new_token(piece)
                yield GenerationChunk(text=piece)
