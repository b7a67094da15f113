"""What Python values become in the structs of exl2.h. What C has no room for is an error."""

import ctypes
import json

from . import _abi


def named(names, name, what):
    if name not in names:
        raise ValueError("%s is %r; it must be one of %s" % (what, name, ", ".join(names)))
    return names[name]


def zero_ended(data):
    """A text that C reads up to its zero byte."""
    if b"\0" in data:
        raise ValueError("a text has a zero byte: %.80r" % data)
    return data


def encoded(text):
    return None if text is None else zero_ended(text.encode())


def set_numbers(desc, **numbers):
    """Sets members; ctypes would take the lower bits of a number that a member has no room for."""
    for name, value in numbers.items():
        setattr(desc, name, value)
        held = getattr(desc, name)
        if type(held) is int and held != value:
            raise ValueError("%s is %d, which is out of range" % (name, value))


def count(number):
    """An argument of 32 bits."""
    if not 0 <= number < 1 << 32:
        raise ValueError("%d is out of range" % number)
    return number


def text_array(texts, keep):
    """A C array of texts, and their number. `keep` holds what the desc points to until the call has ended."""
    texts = [texts] if isinstance(texts, str) else list(texts)
    array = (ctypes.c_char_p * max(len(texts), 1))(*[encoded(one) for one in texts])
    keep.append(array)
    return array, len(texts)


def id_array(ids, keep):
    ids = list(ids)
    array = (ctypes.c_int32 * max(len(ids), 1))(*ids)
    if array[:len(ids)] != ids:
        raise ValueError("an id is out of range")
    keep.append(array)
    return array, len(ids)


def json_text(value):
    return encoded(value if value is None or isinstance(value, str) else json.dumps(value))


_MESSAGE_KEYS = {"role", "content", "text", "name", "reasoning", "reasoning_content", "tool_calls", "tool_call_id"}


def message_array(messages, keep):
    array = (_abi.Message * max(len(messages), 1))()
    for to, message in zip(array, messages):
        content = message.get("content", message.get("text"))
        if not set(message) <= _MESSAGE_KEYS or isinstance(content, (list, dict)):
            to.fields = json.dumps(dict(message)).encode()  # other keys, or content in parts
            continue
        reasoning = message.get("reasoning", message.get("reasoning_content"))
        to.role = encoded(message["role"])
        to.text = encoded(content)
        to.name = json_text(message.get("name"))
        to.reasoning = encoded(reasoning)
        to.tool_calls = json_text(message.get("tool_calls"))
        to.tool_call_id = json_text(message.get("tool_call_id"))
    keep.append(array)
    return array


def set_prompt(to, prompt, keep):
    if prompt is None:
        return
    if isinstance(prompt, str):
        data = prompt.encode("utf-8", "surrogatepass")
        keep.append(data)
        to.text, to.text_bytes = data, len(data)
    elif len(prompt) and isinstance(prompt[0], dict):
        to.messages, to.message_count = message_array(prompt, keep), len(prompt)
    else:
        to.tokens, to.token_count = id_array(prompt, keep)


def set_begin(to, begin, keep):
    """What the reply begins with, after the messages."""
    if begin is not None:
        data = begin.encode("utf-8", "surrogatepass")
        keep.append(data)
        to.text, to.text_bytes = data, len(data)


_CHAT_TEXTS = {"template_text", "template_name", "now"}
_CHAT_JSON = {"tools", "documents", "variables", "special_tokens"}
_CHAT_FLAGS = {"close_reply", "begun_reply"}


def set_chat(desc, chat, keep):
    """Sets the members of an exl2_chat_desc; and takes them out of `chat`."""
    for name in list(chat):
        if name in _CHAT_TEXTS and chat[name] is not None:
            setattr(desc, name, encoded(chat.pop(name)))
        elif name in _CHAT_JSON and chat[name] is not None:
            setattr(desc, name, json_text(chat.pop(name)))
        elif name in _CHAT_FLAGS:
            setattr(desc, name, bool(chat.pop(name)))
        elif chat[name] is None:
            chat.pop(name)
    keep.append(desc)


_NUMBERS = (ctypes.c_int32, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_float, ctypes.c_bool)
_JOB_NUMBERS = {name for name, kind in _abi.JobDesc._fields_ if kind in _NUMBERS and not name.endswith("_count")}
_SAMPLER_NUMBERS = {name for name, kind in _abi.SamplerDesc._fields_
                    if kind in _NUMBERS and not name.endswith("_count") and name != "preset"}


def biases(value, keep):
    array = (_abi.Bias * max(len(value), 1))(*[_abi.Bias(token, add) for token, add in dict(value).items()])
    id_array(dict(value), [])
    keep.append(array)
    return array, len(value)


# Settings that are lists: where they belong, the names of the pointer and of the count, and what makes the C array.
_LISTS = {
    "stop": ("job", "stop_strings", "stop_string_count", text_array),
    "ban": ("job", "ban_strings", "ban_string_count", text_array),
    "stop_tokens": ("job", "stop_tokens", "stop_token_count", id_array),
    "dry_breakers": ("sampler", "dry_breakers", "dry_breaker_count", text_array),
    "ban_tokens": ("sampler", "ban", "ban_count", id_array),
    "allow_tokens": ("sampler", "allow", "allow_count", id_array),
    "xtc_keep": ("sampler", "xtc_keep", "xtc_keep_count", id_array),
    "bias": ("sampler", "bias", "bias_count", biases),
}


def set_list(desc, name, value, keep):
    owner, pointer, count, make = _LISTS[name]
    to = desc.sampler if owner == "sampler" else desc
    array, length = make(value, keep)
    setattr(to, pointer, array)
    setattr(to, count, length)


def own_grammar(desc, model, settings):
    """Makes the grammar of a job that names its source: it is closed once the job has begun. None: there is none."""
    sources = {name: settings.pop(name) for name in _abi.GRAMMARS if name in settings}
    sources = {name: value for name, value in sources.items() if value is not False}
    if len(sources) + (settings.get("grammar") is not None) > 1:
        raise TypeError("a job has one grammar")
    for name, value in sources.items():
        made = model.grammar(name, "" if name == "json" else value)
        desc.grammar = made._handle
        return made
    return None


def set_job(desc, settings, keep):
    """Fills in a job's desc, but for its prompt and a grammar of its own."""
    set_chat(desc.chat, settings, keep)
    for name, value in settings.items():
        if name == "grammar":
            desc.grammar = value._handle
        elif name == "draft":
            desc.draft.model = value._handle
        elif name == "draft_tokens":
            set_numbers(desc.draft, tokens=value)
        elif name in ("ngram", "one_by_one"):
            setattr(desc.draft, name, bool(value))
        elif name == "preset":
            desc.sampler.preset = named(_abi.PRESETS, value, "preset")
        elif name == "temperature" and value == 0:
            desc.sampler.greedy = True
        elif name == "logprobs":
            set_numbers(desc, alts_per_token=int(value))
        elif name == "plain":
            desc.prompt.flags |= _abi.TEXT_PLAIN if value else 0
        elif name == "begin":
            set_begin(desc.prompt, value, keep)
        elif name == "negative_prompt":
            set_prompt(desc.negative_prompt, value, keep)
        elif name == "negative_session":
            desc.negative_session = value._handle
        elif name in _JOB_NUMBERS:
            set_numbers(desc, **{name: value})
        elif name in _SAMPLER_NUMBERS:
            set_numbers(desc.sampler, **{name: value})
        elif name in _LISTS:
            set_list(desc, name, value, keep)
        else:
            raise TypeError("a job has no setting %r" % name)
