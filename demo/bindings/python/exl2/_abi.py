"""The C declarations of exl2.h, for ctypes. Class JobDesc is exl2_job_desc, and so on.

exl2_open_binding compares these declarations with the library's: a mistake here, or a library of another release, fails
with EXL2_ERR_VERSION before anything else happens.
"""

import ctypes
import os
import re
import sys
from ctypes import (CFUNCTYPE, POINTER, Structure, byref, c_bool, c_char, c_char_p, c_double, c_float, c_int32, c_int64,
                    c_size_t, c_uint8, c_uint32, c_uint64, c_void_p)

VERSION = 200  # EXL2_VERSION of the exl2.h that this file was made for
DEVICES_MAX = 8
OFF = -1000    # turns one setting of the sampler off

RESULTS = {"OK": 0, "PENDING": 1, "IDLE": 2, "ERR_ARG": -1, "ERR_STATE": -2, "ERR_STALE": -3, "ERR_TOO_SMALL": -4,
           "ERR_MEMORY": -5, "ERR_DEVICE_MEMORY": -6, "ERR_BUDGET": -7, "ERR_CONTEXT_FULL": -8, "ERR_IO": -9,
           "ERR_FORMAT": -10, "ERR_UNSUPPORTED": -11, "ERR_NO_DEVICE": -12, "ERR_NO_COMPILER": -13, "ERR_COMPILE": -14,
           "ERR_DEVICE_LOST": -15, "ERR_CANCELLED": -16, "ERR_VERSION": -17, "ERR_INTERNAL": -18}
BACKENDS = {"auto": 0, "cuda": 1, "cpu": 2}
CACHE_FORMATS = {"fp16": 0, "q8": 1, "q6": 2, "q4": 3}
PRESETS = {"model": 0, "neutral": 1, "greedy": 2, "balanced": 3}
GRAMMARS = {"json": 0, "schema": 1, "regex": 2, "ebnf": 3, "choices": 4}
EVENT_LOAD, EVENT_PREFILL, EVENT_TEXT, EVENT_DONE, EVENT_EMBEDDING = 1, 2, 3, 4, 5
POOLS = {"off": 0, "last": 1, "mean": 2, "first": 3}
CONTINUE, STOP_JOB, PAUSE_JOB = 0, 1, 2
STOPS = ("none", "eos", "string", "token", "length", "grammar", "callback", "cancelled", "error", "loop")
LOG_LEVELS = {"error": 1, "warn": 2, "info": 3, "debug": 4}
TEXT_NO_BOS, TEXT_PLAIN, TEXT_SKIP_MARKERS, TEXT_BYTES, TEXT_END = 1, 2, 4, 8, 16
SAVE_KV = 1


class _Public(Structure):
    """A public struct of exl2.h."""

    def as_dict(self):
        """The struct's members as Python values."""
        return {name: _plain(getattr(self, name)) for name, _ in self._fields_ if not name.endswith("_canary")}


def _plain(value):
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, Structure):
        return value.as_dict()
    if isinstance(value, ctypes.Array):
        return [_plain(one) for one in value]
    return value


EVENT_FN = CFUNCTYPE(c_int32, c_void_p, c_void_p)  # user, const exl2_event *
LOGITS_FN = CFUNCTYPE(None, c_void_p, c_uint64, POINTER(c_float), c_uint32)
TOKEN_FN = CFUNCTYPE(c_int32, c_void_p, c_uint64, c_uint32, c_int32)
ALLOW_FN = CFUNCTYPE(c_bool, c_void_p, c_uint64, POINTER(c_int32), c_uint32, POINTER(c_uint32), c_uint32)
LINE_FN = CFUNCTYPE(None, c_void_p, c_int32, c_int32, c_int32, c_char_p)
LOAD_FN = CFUNCTYPE(c_size_t, c_void_p, c_char_p, c_void_p, c_size_t)
STORE_FN = CFUNCTYPE(None, c_void_p, c_char_p, c_void_p, c_size_t)


class Model(_Public):
    _fields_ = [("id", c_uint64)]


class Session(_Public):
    _fields_ = [("id", c_uint64)]


class Job(_Public):
    _fields_ = [("id", c_uint64)]


class Grammar(_Public):
    _fields_ = [("id", c_uint64)]


class Lora(_Public):
    _fields_ = [("id", c_uint64)]


class Steer(_Public):
    _fields_ = [("id", c_uint64)]


class Image(_Public):
    _fields_ = [("id", c_uint64)]


class Error(_Public):
    _fields_ = [("code", c_int32), ("native", c_int32), ("text", c_char * 248)]


class Allocator(_Public):
    _fields_ = [("alloc_fn", c_void_p), ("free_fn", c_void_p), ("device_alloc_fn", c_void_p),
        ("device_free_fn", c_void_p), ("user", c_void_p)]


class Files(_Public):
    _fields_ = [("open", c_void_p), ("list", c_void_p), ("read", c_void_p), ("close", c_void_p),
        ("user", c_void_p)]


class KernelCache(_Public):
    _fields_ = [("load", LOAD_FN), ("store", STORE_FN), ("user", c_void_p)]


class Logger(_Public):
    _fields_ = [("line", LINE_FN), ("user", c_void_p), ("max_level", c_int32)]


class Zones(_Public):
    _fields_ = [("begin", c_void_p), ("end", c_void_p), ("user", c_void_p), ("unit", c_void_p)]


class Parallel(_Public):
    _fields_ = [("run", c_void_p), ("width", c_uint32), ("user", c_void_p)]


class DeviceDesc(_Public):
    _fields_ = [("_start_canary", c_uint32), ("pick", c_int32), ("index", c_uint32), ("uuid", c_uint8 * 16),
        ("luid", c_uint8 * 8), ("cuda_context", c_void_p), ("shared_bytes_max", c_uint32),
        ("stream_priority", c_int32), ("bytes_max", c_uint64), ("gpu_us", c_uint32),
        ("_end_canary", c_uint32)]


class DeviceInfo(_Public):
    _fields_ = [("name", c_char * 64), ("uuid", c_uint8 * 16), ("luid", c_uint8 * 8), ("bytes_total", c_uint64),
        ("index", c_uint32), ("arch", c_uint32), ("usable", c_bool), ("why_not", c_char * 120)]


class DeviceSpeed(_Public):
    _fields_ = [("index", c_uint32), ("read_bytes_s", c_uint64), ("copy_bytes_s", c_uint64)]


class EngineDesc(_Public):
    _fields_ = [("_start_canary", c_uint32), ("backend", c_int32), ("devices", POINTER(DeviceDesc)),
        ("device_count", c_uint32), ("cpu_path_max", c_int32), ("host_bytes_max", c_uint64),
        ("device_bytes_max", c_uint64), ("max_models", c_uint32), ("max_sessions", c_uint32),
        ("max_jobs", c_uint32), ("max_events", c_uint32), ("nvrtc_path", c_char_p),
        ("allocator", Allocator), ("files", Files), ("kernel_cache", KernelCache), ("log", Logger),
        ("zones", Zones), ("parallel", Parallel), ("load_thread", c_int32), ("open_error", POINTER(Error)),
        ("_end_canary", c_uint32)]


class EngineInfo(_Public):
    _fields_ = [("backend", c_int32), ("device", DeviceInfo), ("devices", DeviceInfo * DEVICES_MAX),
        ("device_count", c_uint32), ("peers", c_uint32 * 8), ("cpu_path", c_int32), ("max_models", c_uint32),
        ("max_sessions", c_uint32), ("max_jobs", c_uint32), ("max_events", c_uint32),
        ("host_bytes_max", c_uint64), ("device_bytes_max", c_uint64)]


class Layout(_Public):
    _fields_ = [("type", c_char_p), ("member", c_char_p), ("offset", c_uint32), ("bytes", c_uint32)]


class JobStats(_Public):
    _fields_ = [("prompt_tokens", c_uint32), ("reused_tokens", c_uint32), ("new_tokens", c_uint32),
        ("forced_tokens", c_uint32), ("drafted", c_uint32), ("accepted", c_uint32), ("seed", c_uint64),
        ("queued_ns", c_uint64), ("prefill_ns", c_uint64), ("decode_ns", c_uint64),
        ("bans_avoided", c_uint32), ("bans_shown", c_uint32), ("stop_string", c_uint32),
        ("image_rows", c_uint32), ("image_ns", c_uint64)]


class Alt(_Public):
    _fields_ = [("token", c_int32), ("logprob", c_float)]


class Event(_Public):
    _fields_ = [("kind", c_int32), ("model", Model), ("session", Session), ("job", Job), ("lora", Lora),
        ("user", c_void_p), ("text", c_void_p), ("bytes", c_size_t), ("tokens", POINTER(Alt)),
        ("token_count", c_uint32),
        ("alts", POINTER(Alt)), ("alts_per_token", c_uint32), ("logsumexp", POINTER(c_float)),
        ("values", POINTER(c_float)), ("value_count", c_uint32), ("progress", c_float), ("stop", c_int32),
        ("result", c_int32), ("error", c_char_p), ("stats", JobStats), ("image", Image)]


class StepDesc(_Public):
    _fields_ = [("_start_canary", c_uint32), ("cpu_us", c_uint32), ("gpu_us", c_uint32), ("wait", c_bool),
        ("_end_canary", c_uint32)]


class EngineStats(_Public):
    _fields_ = [("host_bytes", c_uint64), ("host_peak", c_uint64), ("device_bytes", c_uint64),
        ("device_peak", c_uint64), ("devices_bytes", c_uint64 * DEVICES_MAX),
        ("devices_peak", c_uint64 * DEVICES_MAX), ("kernels_compiled", c_uint64), ("allocations", c_uint64),
        ("pages_total", c_uint32), ("pages_used", c_uint32), ("pages_shared", c_uint32),
        ("pages_cached", c_uint32), ("pages_host", c_uint32), ("jobs_active", c_uint32), ("jobs_waiting", c_uint32),
        ("pages_out", c_uint64), ("pages_in", c_uint64), ("evictions", c_uint64), ("preemptions", c_uint64), ("steps", c_uint64), ("forwards", c_uint64),
        ("tokens_in", c_uint64), ("tokens_out", c_uint64), ("forced_tokens", c_uint64),
        ("drafted", c_uint64), ("accepted", c_uint64), ("cpu_sampled", c_uint64),
        ("last_step_ns", c_uint64), ("slowest_step_ns", c_uint64)]


class CacheDesc(_Public):
    _fields_ = [("_start_canary", c_uint32), ("tokens", c_uint64), ("no_reuse", c_bool), ("full", c_bool),
        ("format", c_int32), ("host_bytes", c_uint64), ("_end_canary", c_uint32)]


class Card(_Public):
    _fields_ = [("device", c_uint32), ("bytes_max", c_uint64), ("share", c_float)]


class VisionDesc(_Public):
    _fields_ = [("_start_canary", c_uint32), ("images", c_uint32), ("rows", c_uint32), ("pixels_max", c_uint32),
        ("max_rows", c_uint32), ("max_tiles", c_uint32), ("_end_canary", c_uint32)]


class ModelDesc(_Public):
    _fields_ = [("_start_canary", c_uint32), ("path", c_char_p), ("cache", CacheDesc), ("context_max", c_uint32),
        ("text_only", c_bool), ("prefill_chunk", c_uint32), ("batch_max", c_uint32),
        ("experts_active", c_uint32), ("lora_max", c_uint32), ("lora_rank_max", c_uint32),
        ("steer_max", c_uint32), ("keep_packed", c_bool), ("grammars", c_bool), ("rope_scale", c_float),
        ("rope_alpha", c_float), ("yarn_factor", c_float), ("cards", POINTER(Card)), ("card_count", c_uint32),
        ("split_auto", c_bool), ("split", c_int32), ("offload", c_int32), ("host_mlps", c_uint32),
        ("host_prompts", c_bool), ("vision", VisionDesc), ("on_event", EVENT_FN), ("user", c_void_p),
        ("_end_canary", c_uint32)]


class RopeInfo(_Public):
    _fields_ = [("kind", c_char_p), ("theta", c_double), ("factor", c_double)]


class CardInfo(_Public):
    _fields_ = [("device", c_uint32), ("first_layer", c_uint32), ("layers", c_uint32), ("weight_bytes", c_uint64),
        ("cache_bytes", c_uint64), ("scratch_bytes", c_uint64), ("host_mlps", c_uint32),
        ("host_prompts", c_bool), ("columns", c_float)]


class ModelInfo(_Public):
    _fields_ = [("arch", c_char * 64), ("norms", c_char * 64), ("family", c_char_p), ("format", c_char_p),
        ("dequantized", c_uint32), ("head_dim", c_uint32), ("window", c_uint32),
        ("windowed", c_uint32 * 128), ("ropes", RopeInfo * 2), ("rope_count", c_uint32),
        ("needs_bos", c_bool), ("tower_skipped", c_bool), ("parallel", c_bool), ("vocab", c_uint32),
        ("hidden", c_uint32), ("layers", c_uint32), ("heads", c_uint32), ("kv_heads", c_uint32),
        ("context_max", c_uint32), ("experts", c_uint32), ("experts_active", c_uint32),
        ("bits_per_weight", c_float), ("weight_bytes", c_uint64), ("cache_bytes", c_uint64),
        ("scratch_bytes", c_uint64), ("tower", c_char_p), ("tower_bytes", c_uint64), ("image_bytes", c_uint64),
        ("device_bytes", c_uint64), ("host_mlps", c_uint32), ("host_prompts", c_bool),
        ("host_weight_bytes", c_uint64),
        ("cards", CardInfo * DEVICES_MAX),
        ("card_count", c_uint32), ("cache_bytes_per_token", c_uint64), ("cache_tokens", c_uint64),
        ("window_tokens", c_uint64), ("window_bytes", c_uint64), ("host_pages", c_uint32), ("pass_bytes", c_uint64),
        ("row_weights", c_uint64), ("bos", c_int32), ("eos", c_int32),
        ("has_tokenizer", c_bool), ("has_chat_template", c_bool), ("has_head", c_bool), ("embed_pool", c_int32), ("embed_raw", c_bool),
        ("reads_tools", c_bool), ("reads_tool_calls", c_bool),
        ("content_id", c_uint8 * 16)]


class ArchInfo(_Public):
    _fields_ = [("name", c_char_p), ("family", c_char_p), ("reason", c_char_p), ("golden", c_bool),
        ("differs", c_char * 256)]


class LoraDesc(_Public):
    _fields_ = [("_start_canary", c_uint32), ("model", Model), ("path", c_char_p), ("on_event", EVENT_FN),
        ("user", c_void_p), ("_end_canary", c_uint32)]


class LoraInfo(_Public):
    _fields_ = [("content_id", c_uint8 * 16), ("rank_max", c_uint32), ("matrices", c_uint32),
        ("bytes", c_uint64), ("device_bytes", c_uint64), ("warning", c_char * 128)]


class SteerDesc(_Public):
    _fields_ = [("_start_canary", c_uint32), ("model", Model), ("path", c_char_p), ("values", POINTER(c_float)),
        ("first_layer", c_uint32), ("layer_count", c_uint32), ("_end_canary", c_uint32)]


class SteerInfo(_Public):
    _fields_ = [("content_id", c_uint8 * 16), ("layers", c_uint32), ("largest", c_float), ("bytes", c_uint64)]


class Message(_Public):
    _fields_ = [("role", c_char_p), ("text", c_char_p), ("name", c_char_p), ("reasoning", c_char_p),
        ("tool_calls", c_char_p), ("tool_call_id", c_char_p), ("fields", c_char_p), ("images", POINTER(Image)),
        ("image_count", c_size_t)]


class ChatDesc(_Public):
    _fields_ = [("_start_canary", c_uint32), ("template_text", c_char_p), ("template_name", c_char_p),
        ("tools", c_char_p), ("documents", c_char_p), ("variables", c_char_p),
        ("special_tokens", c_char_p), ("now", c_char_p), ("close_reply", c_bool), ("begun_reply", c_bool),
        ("_end_canary", c_uint32)]


class SessionInfo(_Public):
    _fields_ = [("model", Model), ("busy_with", Job), ("tokens", c_uint32), ("tokens_cached", c_uint32),
        ("context_max", c_uint32), ("pages", c_uint32), ("pages_shared", c_uint32), ("resumes", c_bool),
        ("pictures_missing", c_uint32)]


class Bias(_Public):
    _fields_ = [("token", c_int32), ("add", c_float)]


class SamplerDesc(_Public):
    _fields_ = [("_start_canary", c_uint32), ("preset", c_int32), ("greedy", c_bool), ("seed", c_uint64),
        ("top_k", c_int32), ("temperature", c_float), ("top_p", c_float), ("min_p", c_float),
        ("top_a", c_float), ("tail_free", c_float), ("typical", c_float), ("smoothing", c_float),
        ("skew", c_float), ("temperature_last", c_bool), ("dynamic_min", c_float),
        ("dynamic_max", c_float), ("dynamic_exponent", c_float), ("repeat_penalty", c_float),
        ("frequency_penalty", c_float), ("presence_penalty", c_float), ("penalty_range", c_int32),
        ("penalty_decay", c_int32), ("dry_multiplier", c_float), ("dry_base", c_float),
        ("dry_allowed", c_int32), ("dry_range", c_int32), ("dry_match_max", c_int32),
        ("dry_breakers", POINTER(c_char_p)), ("dry_breaker_count", c_uint32), ("xtc_probability", c_float),
        ("xtc_threshold", c_float), ("xtc_keep", POINTER(c_int32)), ("xtc_keep_count", c_uint32),
        ("mirostat_tau", c_float), ("mirostat_eta", c_float), ("adaptive_target", c_float),
        ("adaptive_decay", c_float), ("bias", POINTER(Bias)),
        ("bias_count", c_uint32), ("allow", POINTER(c_int32)), ("allow_count", c_uint32),
        ("ban", POINTER(c_int32)), ("ban_count", c_uint32), ("_end_canary", c_uint32)]


class GrammarDesc(_Public):
    _fields_ = [("_start_canary", c_uint32), ("model", Model), ("kind", c_int32), ("source", c_char_p),
        ("source_bytes", c_size_t), ("cache_bytes", c_uint32), ("strict", c_bool), ("prefer_end", c_bool),
        ("allow", ALLOW_FN), ("user", c_void_p), ("_end_canary", c_uint32)]


class Prompt(_Public):
    _fields_ = [("text", c_char_p), ("text_bytes", c_size_t), ("tokens", POINTER(c_int32)),
        ("token_count", c_size_t), ("messages", POINTER(Message)), ("message_count", c_size_t),
        ("flags", c_uint32), ("images", POINTER(Image)), ("image_count", c_size_t)]


class DraftDesc(_Public):
    _fields_ = [("_start_canary", c_uint32), ("model", Model), ("tokens", c_uint32), ("ngram", c_bool),
        ("one_by_one", c_bool), ("_end_canary", c_uint32)]


class EmbedDesc(_Public):
    _fields_ = [("_start_canary", c_uint32), ("pool", c_int32), ("raw", c_bool), ("layer", c_uint32),
        ("_end_canary", c_uint32)]


class LoraUse(_Public):
    _fields_ = [("lora", Lora), ("scale", c_float)]


class SteerUse(_Public):
    _fields_ = [("steer", Steer), ("factor", c_float)]


class JobDesc(_Public):
    _fields_ = [("_start_canary", c_uint32), ("model", Model), ("session", Session), ("prompt", Prompt),
        ("chat", ChatDesc), ("max_tokens", c_uint32), ("min_tokens", c_uint32), ("reserve", c_uint32),
        ("resume", c_bool), ("prefill_only", c_bool), ("score_prompt", c_bool), ("show_markers", c_bool),
        ("heal_prompt", c_bool), ("sampler", SamplerDesc), ("loras", POINTER(LoraUse)),
        ("lora_count", c_uint32), ("steers", POINTER(SteerUse)), ("steer_count", c_uint32),
        ("grammar", Grammar), ("grammars", POINTER(Grammar)), ("grammar_count", c_uint32), ("draft", DraftDesc),
        ("embed", EmbedDesc), ("stop_strings", POINTER(c_char_p)), ("stop_string_count", c_uint32),
        ("ban_strings", POINTER(c_char_p)), ("ban_string_count", c_uint32),
        ("stop_tokens", POINTER(c_int32)), ("stop_token_count", c_uint32), ("loop_stop", c_uint32),
        ("alts_per_token", c_uint32), ("guidance", c_float), ("negative_session", Session),
        ("negative_prompt", Prompt), ("priority", c_int32), ("on_logits", LOGITS_FN), ("on_token", TOKEN_FN),
        ("on_event", EVENT_FN), ("user", c_void_p), ("_end_canary", c_uint32)]


class JobInfo(_Public):
    _fields_ = [("state", c_int32), ("session", Session), ("stats", JobStats)]


class JobSize(_Public):
    _fields_ = [("prompt_tokens", c_uint32), ("reused_tokens", c_uint32), ("max_tokens", c_uint32),
        ("context_tokens", c_uint32), ("context_max", c_uint32), ("pages_needed", c_uint32),
        ("pages_free", c_uint32)]


class KernelBuildDesc(_Public):
    _fields_ = [("_start_canary", c_uint32), ("archs", POINTER(c_uint32)), ("arch_count", c_uint32),
        ("converter", c_bool), ("nvrtc_path", c_char_p), ("into", KernelCache), ("allocator", Allocator),
        ("log", Logger), ("parallel", Parallel), ("error", POINTER(Error)), ("_end_canary", c_uint32)]


class ImageDesc(_Public):
    _fields_ = [("_start_canary", c_uint32), ("model", Model), ("format", c_int32), ("width", c_uint32),
        ("height", c_uint32), ("stride", c_int64), ("pixels", c_void_p), ("frames", c_uint32),
        ("fps", c_double), ("max_rows", c_uint32), ("max_tiles", c_uint32), ("on_event", EVENT_FN), ("user", c_void_p),
        ("silent", c_bool), ("_end_canary", c_uint32)]


class ImageInfo(_Public):
    _fields_ = [("state", c_int32), ("result", c_int32), ("id", c_uint8 * 16), ("width", c_uint32),
        ("height", c_uint32), ("tiles", c_uint32), ("grid", c_uint32 * 3), ("rows", c_uint32), ("tokens", c_uint32),
        ("bytes", c_uint64), ("encode_ns", c_uint64), ("operations", c_uint64)]


class Picture(_Public):
    _fields_ = [("from", c_uint32), ("count", c_uint32), ("rows", c_uint32), ("missing", c_bool),
        ("id", c_uint8 * 16)]


_STRUCTS = [one for one in list(globals().values())
            if isinstance(one, type) and issubclass(one, _Public) and one is not _Public]


def c_name(struct):
    """JobDesc is exl2_job_desc."""
    return "exl2" + re.sub("([A-Z])", lambda letter: "_" + letter.group(1).lower(), struct.__name__)


def layout():
    """All members of all structs above, for exl2_open_binding."""
    rows = [(c_name(one).encode(), name.encode(), getattr(one, name)) for one in _STRUCTS for name, _ in one._fields_]
    members = (Layout * len(rows))()
    for member, (struct, name, field) in zip(members, rows):
        member.type, member.member, member.offset, member.bytes = struct, name, field.offset, field.size
    return members


def find_library():
    """The path in EXL2_LIBRARY, or the library beside this package's files."""
    named = os.environ.get("EXL2_LIBRARY")
    if named:
        return named
    name = "exl2.dll" if sys.platform == "win32" else "libexl2.so"
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), name)
    if os.path.exists(path):
        return path
    raise OSError("there is no %s in this package: set EXL2_LIBRARY to the library that "
                  "'meson setup build -Dlibrary=enabled' builds" % name)


_E = c_void_p
_PROTOTYPES = {
    "exl2_version": (c_uint32, []),
    "exl2_result_name": (c_char_p, [c_int32]),
    "exl2_open_binding": (c_int32, [POINTER(EngineDesc), c_uint32, POINTER(Layout), c_uint32, POINTER(Error),
                                    POINTER(c_void_p)]),
    "exl2_close": (None, [_E]),
    "exl2_engine_get": (None, [_E, POINTER(EngineInfo)]),
    "exl2_last_error": (None, [_E, POINTER(Error)]),
    "exl2_interrupt": (None, [_E]),
    "exl2_devices": (c_int32, [POINTER(DeviceInfo), c_uint32, POINTER(c_uint32)]),
    "exl2_step": (c_int32, [_E, POINTER(StepDesc)]),
    "exl2_next_event": (c_bool, [_E, POINTER(Event)]),
    "exl2_stats": (None, [_E, POINTER(EngineStats)]),
    "exl2_worker_start": (c_int32, [_E]),
    "exl2_worker_stop": (c_int32, [_E]),
    "exl2_model_measure": (c_int32, [_E, POINTER(ModelDesc), POINTER(ModelInfo)]),
    "exl2_model_open": (c_int32, [_E, POINTER(ModelDesc), POINTER(Model)]),
    "exl2_model_state": (c_int32, [_E, Model]),
    "exl2_model_get": (c_int32, [_E, Model, POINTER(ModelInfo)]),
    "exl2_model_park": (c_int32, [_E, Model, c_bool]),
    "exl2_model_close": (c_int32, [_E, Model]),
    "exl2_lora_measure": (c_int32, [_E, POINTER(LoraDesc), POINTER(LoraInfo)]),
    "exl2_lora_open": (c_int32, [_E, POINTER(LoraDesc), POINTER(Lora)]),
    "exl2_lora_load": (c_int32, [_E, POINTER(LoraDesc), POINTER(Lora)]),
    "exl2_lora_state": (c_int32, [_E, Lora]),
    "exl2_lora_get": (c_int32, [_E, Lora, POINTER(LoraInfo)]),
    "exl2_lora_close": (c_int32, [_E, Lora]),
    "exl2_steer_make": (c_int32, [_E, POINTER(SteerDesc), POINTER(Steer)]),
    "exl2_steer_get": (c_int32, [_E, Steer, POINTER(SteerInfo)]),
    "exl2_steer_close": (c_int32, [_E, Steer]),
    "exl2_tokenize": (c_int32, [_E, Model, c_char_p, c_size_t, c_uint32, POINTER(c_int32), c_size_t,
                                POINTER(c_size_t)]),
    "exl2_detokenize": (c_int32, [_E, Model, POINTER(c_int32), c_size_t, c_uint32, c_char_p, c_size_t,
                                  POINTER(c_size_t)]),
    "exl2_chat_render": (c_int32, [_E, Model, POINTER(Message), c_size_t, POINTER(ChatDesc), c_char_p, c_size_t,
                                   POINTER(c_size_t)]),
    "exl2_chat_tokenize": (c_int32, [_E, Model, POINTER(Prompt), POINTER(ChatDesc), POINTER(c_int32), c_size_t,
                                     POINTER(c_size_t)]),
    "exl2_sentence": (c_size_t, [c_char_p, c_size_t, c_bool]),
    "exl2_session_open": (c_int32, [_E, Model, POINTER(Session)]),
    "exl2_session_fork": (c_int32, [_E, Session, POINTER(Session)]),
    "exl2_session_rewind": (c_int32, [_E, Session, c_uint32]),
    "exl2_session_trim": (c_int32, [_E, Session, c_uint32, c_uint32]),
    "exl2_session_get": (c_int32, [_E, Session, POINTER(SessionInfo)]),
    "exl2_session_tokens": (c_int32, [_E, Session, POINTER(c_int32), c_size_t, POINTER(c_size_t)]),
    "exl2_session_save": (c_int32, [_E, Session, c_uint32, c_char_p, c_size_t, POINTER(c_size_t)]),
    "exl2_session_restore": (c_int32, [_E, Session, c_char_p, c_size_t]),
    "exl2_session_close": (c_int32, [_E, Session]),
    "exl2_session_pictures": (c_int32, [_E, Session, POINTER(Picture), c_size_t, POINTER(c_size_t)]),
    "exl2_image_make": (c_int32, [_E, POINTER(ImageDesc), POINTER(Image)]),
    "exl2_image_get": (c_int32, [_E, Image, POINTER(ImageInfo)]),
    "exl2_image_measure": (c_int32, [_E, POINTER(ImageDesc), POINTER(ImageInfo)]),
    "exl2_image_seen": (c_int32, [_E, Image, c_void_p, c_size_t, POINTER(c_size_t)]),
    "exl2_image_rows": (c_int32, [_E, Image, POINTER(c_float), c_size_t, POINTER(c_size_t)]),
    "exl2_image_close": (c_int32, [_E, Image]),
    "exl2_grammar_make": (c_int32, [_E, POINTER(GrammarDesc), POINTER(Grammar)]),
    "exl2_grammar_close": (c_int32, [_E, Grammar]),
    "exl2_job_start": (c_int32, [_E, POINTER(JobDesc), POINTER(Job)]),
    "exl2_job_measure": (c_int32, [_E, POINTER(JobDesc), POINTER(JobSize)]),
    "exl2_job_cancel": (c_int32, [_E, Job]),
    "exl2_job_pause": (c_int32, [_E, Job, c_bool]),
    "exl2_job_priority": (c_int32, [_E, Job, c_int32]),
    "exl2_job_get": (c_int32, [_E, Job, POINTER(JobInfo)]),
}


def load_library(path=None):
    """The library with the types of its functions. A function that it lacks raises AttributeError, which names it."""
    library = ctypes.CDLL(path or find_library())
    for name, (result, arguments) in _PROTOTYPES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def open_engine(library, desc):
    """The engine's address. Raises Exl2Error; VERSION if these declarations are not the library's."""
    members, error, engine = layout(), Error(), c_void_p()
    result = library.exl2_open_binding(byref(desc), VERSION, members, len(members), byref(error), byref(engine))
    if result < 0:
        raise Exl2Error(library, result, error.text.decode("utf-8", "replace"))
    return engine


class Exl2Error(Exception):
    """A call failed. `result` is the code, `name` its name, such as "EXL2_ERR_IO"; str() is the message."""

    def __init__(self, library, result, message):
        super().__init__(message)
        self.result = result
        self.name = library.exl2_result_name(result).decode()

    def __str__(self):
        return "%s: %s" % (self.name, super().__str__())
