"""Engine, Model, Session, Grammar and Job: the functions of exl2.h as Python objects.

Threads: the methods of one engine take turns, so any thread may call them. Callbacks run on the thread that steps: the
one that iterates over a job, or calls Engine.step; also with worker=True, where a thread of the engine computes.
"""

import asyncio
import collections
import ctypes
import json
import os
import threading
import time
from ctypes import byref

from . import _abi, _descs
from ._abi import Exl2Error

Token = collections.namedtuple("Token", "id logprob alternatives")
"""A token of a text: its id, its natural log-probability, and a list of (id, logprob) of the likeliest tokens."""

_ASYNC_STEP_US = 5000  # of a step inside an event loop, which does other work between steps


class _Handle:
    """An object of an engine. It ends with close(), with `with`, or with its engine."""

    _close = None  # the name of the function that closes it

    def __init__(self, engine, handle):
        self.engine = engine
        self._handle = handle

    def close(self):
        """Ends the object; nothing happens if it has ended already."""
        with self.engine._lock:
            if self.engine._address and self._handle.id:
                getattr(self.engine._library, self._close)(self.engine._address, self._handle)
            self._handle = type(self._handle)()

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.close()


class Engine:
    """An engine: where models run, and its limits.

    backend: "auto" (a supported GPU, else the CPU), "cuda" or "cpu"; device: the index of a GPU. host_bytes_max and
    device_bytes_max are hard caps in bytes. kernels: a folder that keeps compiled GPU kernels. log: called with the
    level ("error", "warn" ...) and the text of each line. worker: a thread of the engine computes. library: the path of
    the shared library; the default is EXL2_LIBRARY, or the library beside this package.

    On the CPU one thread computes (Python cannot run the tasks of a pass in parallel).
    """

    def __init__(self, backend="auto", *, device=None, host_bytes_max=0, device_bytes_max=0, max_models=0,
                 max_sessions=0, max_jobs=0, kernels=None, log=None, log_level="warn", worker=False, library=None):
        self._address = None
        self._lock = threading.RLock()
        self._open = threading.RLock()  # held by calls of any thread, for which close waits; after _lock
        self._library = _abi.load_library(library)
        self._receivers = {}   # of events, by the number in their `user`
        self._next_receiver = 1
        self._raised = None    # what a callback raised; the call that steps raises it again
        self._on_event = _abi.EVENT_FN(self._called)
        desc = _abi.EngineDesc(backend=_descs.named(_abi.BACKENDS, backend, "backend"))
        _descs.set_numbers(desc, host_bytes_max=host_bytes_max, device_bytes_max=device_bytes_max,
                           max_models=max_models, max_sessions=max_sessions, max_jobs=max_jobs)
        if device is not None:
            self._device = _abi.DeviceDesc(pick=1)
            _descs.set_numbers(self._device, index=device)
            desc.devices, desc.device_count = ctypes.pointer(self._device), 1
        if log:
            names = {number: name for name, number in _abi.LOG_LEVELS.items()}
            self._log = _abi.LINE_FN(lambda _user, level, _id, _code, text: log(names[level],
                                                                               text.decode("utf-8", "replace")))
            desc.log.line, desc.log.max_level = self._log, _descs.named(_abi.LOG_LEVELS, log_level, "log_level")
        if kernels:
            self._use_kernels(desc, kernels)
        self._address = _abi.open_engine(self._library, desc)
        if worker:
            self._call("exl2_worker_start")

    def _use_kernels(self, desc, folder):
        os.makedirs(folder, exist_ok=True)

        def load(_user, key, to, room):
            try:
                with open(os.path.join(folder, key.decode()), "rb") as file:
                    data = file.read()
            except OSError:
                return 0
            if len(data) <= room:
                ctypes.memmove(to, data, len(data))
            return len(data)

        def store(_user, key, data, count):
            path = os.path.join(folder, key.decode())
            try:
                with open(path + ".new", "wb") as file:
                    file.write(ctypes.string_at(data, count))
                os.replace(path + ".new", path)
            except OSError:
                pass  # the kernel is compiled again at the next start

        self._load, self._store = _abi.LOAD_FN(load), _abi.STORE_FN(store)
        desc.kernel_cache.load, desc.kernel_cache.store = self._load, self._store

    # ---- calls ----

    def _check(self, result):
        if result < 0:
            error = _abi.Error()
            self._library.exl2_last_error(self._address, byref(error))
            raise Exl2Error(self._library, result, error.text.decode("utf-8", "replace"))
        return result

    def _call(self, name, *arguments):
        """Calls a function whose first argument is the engine, and raises Exl2Error if it fails."""
        with self._lock:
            if not self._address:
                raise Exl2Error(self._library, _abi.RESULTS["ERR_STALE"], "the engine is closed")
            return self._check(getattr(self._library, name)(self._address, *arguments))

    def _text(self, name, *arguments):
        """The bytes that a function with the arguments (.., out, cap, *need) writes."""
        with self._lock:
            need = ctypes.c_size_t()
            self._call(name, *arguments, None, 0, byref(need))
            out = ctypes.create_string_buffer(need.value + 1)
            self._call(name, *arguments, out, need.value + 1, byref(need))
            return out.raw[:need.value]

    def _any_thread(self, name, *arguments):
        """A function that any thread may call, also while another one steps. After close nothing happens."""
        with self._open:
            if self._address:
                getattr(self._library, name)(self._address, *arguments)

    def _read(self, name, struct):
        """The struct that a function fills in, as a dict."""
        with self._lock:
            if not self._address:
                raise Exl2Error(self._library, _abi.RESULTS["ERR_STALE"], "the engine is closed")
            getattr(self._library, name)(self._address, byref(struct))
        return struct.as_dict()

    # ---- events ----

    def _receive(self, receiver):
        """Gives the receiver of events a number for their `user`."""
        with self._lock:
            number = self._next_receiver
            self._next_receiver += 1
            self._receivers[number] = receiver
            return number

    def _called(self, user, address):
        """on_event of jobs with a callback. An exception ends the job, and the call that steps raises it again."""
        try:
            return self._deliver(user, _abi.Event.from_address(address))
        except BaseException as raised:  # also KeyboardInterrupt: nothing may pass through C
            self._raised = self._raised or raised
            return _abi.STOP_JOB

    def _deliver(self, user, event):
        receiver = self._receivers.get(user)
        if event.kind == _abi.EVENT_DONE:
            self._receivers.pop(user, None)
        flow = receiver._take(event) if receiver else None
        return _abi.CONTINUE if flow is None else int(flow)

    def step(self, cpu_us=0, gpu_us=0, wait=False):
        """Advances all loads and jobs: for a frame loop, with a budget in microseconds.

        True: there may be more to do at once. False: nothing can advance until you do something."""
        desc = _abi.StepDesc(wait=wait)
        _descs.set_numbers(desc, cpu_us=cpu_us, gpu_us=gpu_us)
        with self._lock:
            result = self._call("exl2_step", byref(desc))
            event = _abi.Event()
            taken = False
            while self._address and self._library.exl2_next_event(self._address, byref(event)):
                taken = True
                try:
                    self._deliver(event.user, event)
                except BaseException as raised:
                    self._raised = self._raised or raised
            raised, self._raised = self._raised, None
            if raised:
                raise raised
            return taken or result != _abi.RESULTS["IDLE"]

    # ---- objects ----

    def open_model(self, path, *, context=0, cache_tokens=0, cache="fp16", text_only=False, no_reuse=False, batch_max=0,
                   prefill_chunk=0, experts=0, keep_packed=False, rope_scale=0, rope_alpha=0, yarn_factor=0,
                   on_progress=None):
        """Begins to load a model, which `step` continues. on_progress is called with a fraction from 0 to 1."""
        desc = _abi.ModelDesc(path=_descs.zero_ended(os.fsencode(path)), text_only=text_only, keep_packed=keep_packed,
                              rope_scale=rope_scale, rope_alpha=rope_alpha, yarn_factor=yarn_factor)
        _descs.set_numbers(desc, context_max=context, batch_max=batch_max, prefill_chunk=prefill_chunk,
                           experts_active=experts)
        _descs.set_numbers(desc.cache, tokens=cache_tokens)
        desc.cache.no_reuse = no_reuse
        desc.cache.format = _descs.named(_abi.CACHE_FORMATS, cache, "cache")
        model = Model(self, _abi.Model())
        model._on_progress = on_progress
        desc.user = model._receiver = self._receive(model)
        try:
            self._call("exl2_model_open", byref(desc), byref(model._handle))
        except Exl2Error:
            self._receivers.pop(desc.user, None)
            raise
        return model

    def load(self, path, **settings):
        """Loads a model and waits until it is ready. The settings are those of open_model."""
        model = self.open_model(path, **settings)
        try:
            while not model.ready:
                self.step(wait=True)
        except BaseException:
            model.close()
            raise
        return model

    def devices(self):
        """The GPUs of this machine, as dicts."""
        count = ctypes.c_uint32()
        self._library.exl2_devices(None, 0, byref(count))
        found = (_abi.DeviceInfo * max(count.value, 1))()
        self._library.exl2_devices(found, count.value, byref(count))
        return [found[i].as_dict() for i in range(count.value)]

    @property
    def info(self):
        """The backend, the GPU, the CPU's path and the limits in use."""
        return self._read("exl2_engine_get", _abi.EngineInfo())

    def sentences(self, text, *, whole=True):
        """The sentences of a text, each with the spaces after it. whole=False: more text may come, and what may go on
        is left out."""
        data, sentences = text.encode("utf-8", "surrogatepass"), []
        while bytes_ := self._library.exl2_sentence(data, len(data), whole):
            sentences.append(data[:bytes_].decode("utf-8", "surrogatepass"))
            data = data[bytes_:]
        return sentences

    @property
    def stats(self):
        """Memory, pages, jobs and tokens, as exl2_engine_stats has them."""
        return self._read("exl2_stats", _abi.EngineStats())

    def interrupt(self):
        """Ends a call of another thread that waits; from any thread."""
        self._any_thread("exl2_interrupt")

    def close(self):
        """Ends all jobs and frees all memory."""
        with self._lock:
            with self._open:
                address, self._address = self._address, None
            if address:
                self._library.exl2_close(address)
            for receiver in self._receivers.values():
                receiver._ended()
            self._receivers.clear()

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.close()

    def __del__(self):
        if getattr(self, "_address", None):
            self.close()


class Model(_Handle):
    """A model: it makes sessions, and runs jobs of one prompt."""

    _close = "exl2_model_close"
    _on_progress = None
    _receiver = 0  # of LOAD events

    def close(self):
        """Ends the model, its jobs and its sessions; nothing happens if it has ended already."""
        super().close()
        self.engine._receivers.pop(self._receiver, None)

    def _take(self, event):
        if self._on_progress:
            self._on_progress(event.progress)

    def _ended(self):
        pass

    @property
    def ready(self):
        """False while the model loads or is parked. Raises Exl2Error if loading failed."""
        return self.engine._call("exl2_model_state", self._handle) == _abi.RESULTS["OK"]

    @property
    def info(self):
        """What the model is and what it needs, as exl2_model_info has it."""
        info = _abi.ModelInfo()
        self.engine._call("exl2_model_get", self._handle, byref(info))
        return info.as_dict()

    def park(self, parked=True):
        """True: gives back the model's memory; sessions and jobs stay. False: begins to load it again."""
        self.engine._call("exl2_model_park", self._handle, parked)

    def session(self):
        """An empty session."""
        session = Session(self.engine, _abi.Session())
        session.model = self
        self.engine._call("exl2_session_open", self._handle, byref(session._handle))
        return session

    def grammar(self, kind="json", source="", *, strict=False, prefer_end=False):
        """Compiles a grammar: "json", "schema" (text or dict), "regex", "ebnf" or "choices" (a list of lines)."""
        if kind == "schema" and not isinstance(source, str):
            source = json.dumps(source)
        if kind == "choices" and not isinstance(source, str):
            source = "\n".join(source)
        data = source.encode()
        desc = _abi.GrammarDesc(model=self._handle, kind=_descs.named(_abi.GRAMMARS, kind, "grammar"), source=data,
                                source_bytes=len(data), strict=strict, prefer_end=prefer_end)
        grammar = Grammar(self.engine, _abi.Grammar())
        self.engine._call("exl2_grammar_make", byref(desc), byref(grammar._handle))
        return grammar

    def tokenize(self, text, *, bos=True, plain=False):
        """The ids of a text. plain: special tokens written in it are plain text (for what a player types)."""
        data = text.encode("utf-8", "surrogatepass")
        flags = (0 if bos else _abi.TEXT_NO_BOS) | (_abi.TEXT_PLAIN if plain else 0)
        need = ctypes.c_size_t()
        with self.engine._lock:
            self.engine._call("exl2_tokenize", self._handle, data, len(data), flags, None, 0, byref(need))
            ids = (ctypes.c_int32 * max(need.value, 1))()
            self.engine._call("exl2_tokenize", self._handle, data, len(data), flags, ids, need.value, byref(need))
        return list(ids[:need.value])

    def chat_tokens(self, messages, *, begin=None, plain=False, **chat):
        """The ids of a conversation as a job has them. begin, plain: as of a job. chat: as of render."""
        keep, prompt, desc, need = [], _abi.Prompt(), _abi.ChatDesc(), ctypes.c_size_t()
        _descs.set_prompt(prompt, messages, keep)
        _descs.set_begin(prompt, begin, keep)
        prompt.flags = _abi.TEXT_PLAIN if plain else 0
        _descs.set_chat(desc, chat, keep)
        arguments = ("exl2_chat_tokenize", self._handle, byref(prompt), byref(desc))
        with self.engine._lock:
            self.engine._call(*arguments, None, 0, byref(need))
            ids = (ctypes.c_int32 * max(need.value, 1))()
            self.engine._call(*arguments, ids, need.value, byref(need))
        return list(ids[:need.value])

    def detokenize(self, ids, *, skip_markers=False, as_bytes=False):
        """The text of ids. as_bytes: their own bytes, which may be parts of characters."""
        array, _ = _descs.id_array(ids, [])
        flags = (_abi.TEXT_SKIP_MARKERS if skip_markers else 0) | (_abi.TEXT_BYTES if as_bytes else 0)
        data = self.engine._text("exl2_detokenize", self._handle, array, len(ids), flags)
        return data if as_bytes else data.decode("utf-8", "replace")

    def render(self, messages, **chat):
        """What the chat template makes of messages. chat: members of exl2_chat_desc; lists and dicts become JSON."""
        keep = []
        array = _descs.message_array(messages, keep)
        desc = _abi.ChatDesc()
        _descs.set_chat(desc, chat, keep)
        text = self.engine._text("exl2_chat_render", self._handle, array, len(messages), byref(desc))
        return text.decode("utf-8", "replace")

    def start(self, prompt, **settings):
        """Starts a job in a session of its own. See Session.start."""
        return Job(self.engine, self, None, prompt, settings)

    def generate(self, prompt, **settings):
        """An iterator over the text, in pieces. If it is dropped before its end, the job is cancelled."""
        return self.start(prompt, **settings)._pieces()

    def generate_json(self, prompt, schema, **settings):
        """A reply that fits the JSON schema, as Python values."""
        return json.loads("".join(self.generate(prompt, schema=schema, **settings)))

    def score(self, prompt):
        """The log-probability of each token of a prompt, from the second one on, as Tokens."""
        job = self.start(prompt, score_prompt=True, prefill_only=True)
        for _ in job:
            pass
        return job.prompt_tokens


    def embed(self, text, *, pool=None, unit=None, layer=0, plain=False):
        """The vector of a text, or of a list of ids, as a list of floats; of a list of texts, a list of vectors.

        pool: "last", "mean" or "first"; None: what the folder says, else "last". unit: divided by its length; None: as
        the folder says. layer: 0, or the block whose residual it is. A text gets the tokens that the tokenizer's
        post-processor puts after it. plain: special tokens written in it are plain text."""
        info = self.info
        many = not isinstance(text, str) and len(text) > 0 and not isinstance(text[0], int)
        values = {"pool": _descs.named(_abi.POOLS, pool, "pool") if pool else info["embed_pool"] or _abi.POOLS["last"],
                  "raw": info["embed_raw"] if unit is None else not unit, "layer": layer,
                  "flags": _abi.TEXT_END | (_abi.TEXT_PLAIN if plain else 0)}
        most = max(self.engine.info["max_jobs"] // 2, 1)  # at a time; other jobs go on meanwhile
        texts, vectors = list(text) if many else [text], []
        for first in range(0, len(texts), most):
            jobs = [Job(self.engine, self, None, one, {"embed": values}) for one in texts[first:first + most]]
            for job in jobs:
                job.wait()
            vectors += [job.embedding for job in jobs]
        return vectors if many else vectors[0]


class Session(_Handle):
    """A history of tokens, to which jobs append."""

    _close = "exl2_session_close"
    model = None

    def start(self, prompt=None, **settings):
        """Starts a job, and returns it at once.

        prompt: a text or a list of ids, which is appended; a list of messages, which is the whole conversation: dicts
        with "role" and "content", and "name", "reasoning", "tool_calls" or "tool_call_id"; or None, to go on.

        Settings: members of exl2_job_desc and exl2_sampler_desc by their names (temperature 0 is greedy; exl2.OFF turns
        one off), preset, begin (with messages: what the reply begins with), stop (texts), stop_tokens, ban (texts),
        logprobs (alternatives a token), grammar, or one of json=True, schema, regex, ebnf, choices; ngram, draft (a
        model), negative_prompt, members of exl2_chat_desc (tools, template_text ...). on_text(text), on_event(job,
        kind): callbacks; on_text may return exl2.STOP_JOB or exl2.PAUSE_JOB."""
        return Job(self.engine, self.model, self, prompt, settings)

    def say(self, prompt=None, **settings):
        """An iterator over the text of a job, in pieces. If it is dropped before its end, the job is cancelled."""
        return self.start(prompt, **settings)._pieces()

    def fork(self):
        """Another session with the same history."""
        other = Session(self.engine, _abi.Session())
        other.model = self.model
        self.engine._call("exl2_session_fork", self._handle, byref(other._handle))
        return other

    def rewind(self, tokens):
        """Keeps the first tokens of the history."""
        self.engine._call("exl2_session_rewind", self._handle, _descs.count(tokens))

    def trim(self, start, count):
        """Takes tokens out of the history."""
        self.engine._call("exl2_session_trim", self._handle, _descs.count(start), _descs.count(count))

    @property
    def tokens(self):
        """The ids of the history."""
        need = ctypes.c_size_t()
        with self.engine._lock:
            self.engine._call("exl2_session_tokens", self._handle, None, 0, byref(need))
            ids = (ctypes.c_int32 * max(need.value, 1))()
            self.engine._call("exl2_session_tokens", self._handle, ids, need.value, byref(need))
        return list(ids[:need.value])

    @property
    def info(self):
        """The size of the history, and whether the session is busy."""
        info = _abi.SessionInfo()
        self.engine._call("exl2_session_get", self._handle, byref(info))
        return info.as_dict()

    def save(self, kv=False):
        """The session as bytes, also while it speaks. kv: with K and V, so that nothing is computed again."""
        with self.engine._lock:
            need = ctypes.c_size_t()
            flags = _abi.SAVE_KV if kv else 0
            self.engine._call("exl2_session_save", self._handle, flags, None, 0, byref(need))
            out = ctypes.create_string_buffer(need.value)
            self.engine._call("exl2_session_save", self._handle, flags, out, need.value, byref(need))
            return out.raw[:need.value]

    def restore(self, data):
        """Replaces the history by a saved one. To go on in mid-sentence, start a job with resume=True."""
        self.engine._call("exl2_session_restore", self._handle, data, len(data))


class Grammar(_Handle):
    """A compiled grammar, for any number of jobs."""

    _close = "exl2_grammar_close"


class Job:
    """A generation. Iterate over it (also `async for`) for the text in pieces; `with` cancels it at the end."""

    def __init__(self, engine, model, session, prompt, settings):
        self.engine = engine
        self.text = ""            # so far
        self.tokens = []          # Tokens of the text
        self.prompt_tokens = []   # with score_prompt: Tokens of the prompt, from the second one on
        self.progress = 0.0       # of the prompt
        self.embedding = None     # of Model.embed: the vector
        self.done = False
        self.stop = "none"        # why it ended: "eos", "length" ...
        self.stats = None         # exl2_job_stats, once it is done
        self._error = None
        self._pending = collections.deque()
        self._on_text = settings.pop("on_text", None)
        self._on_event = settings.pop("on_event", None)
        self._handle = _abi.Job()
        keep = []
        desc = _abi.JobDesc()
        if session:
            desc.session = session._handle
        else:
            desc.model = model._handle
        _descs.set_prompt(desc.prompt, prompt, keep)
        embed = settings.pop("embed", None)
        if embed:
            desc.embed.pool, desc.embed.raw, desc.embed.layer = embed["pool"], embed["raw"], embed["layer"]
            desc.prompt.flags = embed["flags"]
        grammar = _descs.own_grammar(desc, model, settings)
        try:
            _descs.set_job(desc, settings, keep)
            with engine._lock:
                desc.user = engine._receive(self)
                if self._on_text or self._on_event:
                    desc.on_event = engine._on_event
                try:
                    engine._call("exl2_job_start", byref(desc), byref(self._handle))
                except BaseException:
                    engine._receivers.pop(desc.user, None)
                    raise
        finally:
            if grammar:
                grammar.close()

    def _take(self, event):
        """Copies what an event has: its pointers are valid only now."""
        if event.kind == _abi.EVENT_PREFILL:
            self.progress = event.progress
            self.prompt_tokens += _tokens(event)
        elif event.kind == _abi.EVENT_TEXT:
            piece = ctypes.string_at(event.text, event.bytes).decode("utf-8", "replace")
            self.text += piece
            self.tokens += _tokens(event)
            if piece:
                self._pending.append(piece)
            if self._on_text:
                return self._on_text(piece)
        elif event.kind == _abi.EVENT_EMBEDDING:
            self.embedding = event.values[:event.value_count]
        elif event.kind == _abi.EVENT_DONE:
            self.stop = _abi.STOPS[event.stop]
            self.stats = event.stats.as_dict()
            if event.result < 0 and event.result != _abi.RESULTS["ERR_CANCELLED"]:
                message = (event.error or b"").decode("utf-8", "replace")
                self._error = Exl2Error(self.engine._library, event.result, message)
            self.done = True
        if self._on_event:
            kinds = {_abi.EVENT_PREFILL: "prefill", _abi.EVENT_TEXT: "text", _abi.EVENT_DONE: "done"}
            return self._on_event(self, kinds[event.kind])
        return None

    def _ended(self):
        """The engine was closed, which cancels its jobs."""
        if not self.done:
            self.stop, self.done = "cancelled", True

    def __iter__(self):
        while True:
            while self._pending:
                yield self._pending.popleft()
            if self.done:
                break
            if not self.engine.step(wait=True):
                time.sleep(0.001)  # paused: another thread may let it go on
        if self._error:
            raise self._error

    async def __aiter__(self):
        while True:
            while self._pending:
                yield self._pending.popleft()
            if self.done:
                break
            advanced = self.engine.step(cpu_us=_ASYNC_STEP_US)
            await asyncio.sleep(0 if advanced else 0.001)
        if self._error:
            raise self._error

    def _pieces(self):
        try:
            yield from self
        finally:
            self.cancel()

    def wait(self):
        """Steps until the job is done, and returns its text."""
        for _ in self:
            pass
        return self.text

    def cancel(self):
        """Ends the job before its next token; from any thread. Nothing happens if it is done."""
        if not self.done:
            self.engine._any_thread("exl2_job_cancel", self._handle)

    def pause(self, paused=True):
        """Stops the job for a while, or lets it go on; from any thread."""
        if not self.done:
            self.engine._any_thread("exl2_job_pause", self._handle, paused)

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.cancel()


def _tokens(event):
    width = event.alts_per_token if event.alts else 0
    return [Token(event.tokens[i].token, event.tokens[i].logprob,
                  [(event.alts[i * width + k].token, event.alts[i * width + k].logprob) for k in range(width)])
            for i in range(event.token_count if event.tokens else 0)]
