#!/usr/bin/env python3
"""Writes scalings.json: log-probabilities of this model with other RoPE scalings in its config.json, by a forward pass
in float64 and the formulas of transformers' modeling_rope_utils. Needs numpy. usage: scalings.py FOLDER
"""
import json
import math
import os
import struct
import sys

import numpy as np

ORIGINAL, LONGER = 128, 512
CONTEXTS = [96, 128, 192]  # of a session: below, at and above the original one
HALF = 8  # frequencies of a head
SHORT = [1, 1.05, 1.1, 1.2, 1.3, 1.4, 1.6, 1.9]
LONG = [1, 1.2, 1.5, 2, 2.7, 3.4, 4.5, 6]


def read_tensors(path):
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, t in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = t["data_offsets"]
            values = np.frombuffer(data[8 + size + begin:8 + size + end], np.float16)
            tensors[name] = values.astype(np.float64).reshape(t["shape"])
    return tensors


def rope_table(fields, context):
    """frequencies, factor of cosine and sine"""
    s, theta = fields["rope_scaling"], fields["rope_theta"]
    kind, factor, dim = s["rope_type"], s.get("factor"), 2 * HALF
    longest, original = fields["max_position_embeddings"], s.get("original_max_position_embeddings")
    i = np.arange(HALF)
    if kind == "dynamic":
        length = max(context, longest)
        theta *= (factor * length / longest - (factor - 1)) ** (dim / (dim - 2))
    plain = theta ** (-2.0 * i / dim)
    if kind == "linear":
        return plain / factor, 1.0
    if kind == "llama3":
        low, high = s["low_freq_factor"], s["high_freq_factor"]
        wavelength = 2 * math.pi / plain
        smooth = (original / wavelength - low) / (high - low)
        between = (1 - smooth) * plain / factor + smooth * plain
        longer = np.where(wavelength > original / low, plain / factor, between)
        return np.where(wavelength < original / high, plain, longer), 1.0
    if kind == "yarn":
        factor = factor or longest / original
        def index(turns):
            return dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))
        low, high = index(s.get("beta_fast", 32)), index(s.get("beta_slow", 1))
        if s.get("truncate", True):
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, dim - 1)
        ramp = np.clip((i - low) / (high - low if high != low else 0.001), 0, 1)
        def magnitude(scale):
            return 0.1 * scale * math.log(factor) + 1 if factor > 1 else 1.0
        m = magnitude(1)
        if s.get("mscale") and s.get("mscale_all_dim"):
            m = magnitude(s["mscale"]) / magnitude(s["mscale_all_dim"])
        return plain / factor * ramp + plain * (1 - ramp), s.get("attention_factor", m)
    if kind == "longrope":
        factor = factor or longest / original
        m = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
        divisors = np.array(s["long_factor"] if context > original else s["short_factor"])
        return plain / divisors, s.get("attention_factor", m)
    return plain, 1.0


def logprobs(t, c, ids, table):
    """log-probabilities of ids[1:]"""
    frequency, magnitude = table
    heads, kv, dim, count = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"], len(ids)
    angle = np.arange(count)[:, None, None] * frequency
    cosine, sine = magnitude * np.cos(angle), magnitude * np.sin(angle)

    def norm(x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + c["rms_norm_eps"]) * t[name + ".weight"]

    def rotate(x):
        a, b = x[..., :HALF], x[..., HALF:]
        return np.concatenate([a * cosine - b * sine, b * cosine + a * sine], -1)

    x = t["model.embed_tokens.weight"][ids]
    for layer in range(c["num_hidden_layers"]):
        p = "model.layers.%d." % layer
        h = norm(x, p + "input_layernorm")
        q, k, v = ((h @ t[p + "self_attn.%s_proj.weight" % n].T).reshape(count, -1, dim) for n in "qkv")
        q, k = rotate(q), rotate(k)
        k, v = np.repeat(k, heads // kv, 1), np.repeat(v, heads // kv, 1)
        score = np.einsum("ihd,jhd->hij", q, k) / math.sqrt(dim)
        score = np.where(np.tril(np.ones((count, count), bool)), score, -np.inf)
        weight = np.exp(score - score.max(-1, keepdims=True))
        weight /= weight.sum(-1, keepdims=True)
        x = x + np.einsum("hij,jhd->ihd", weight, v).reshape(count, -1) @ t[p + "self_attn.o_proj.weight"].T
        h = norm(x, p + "post_attention_layernorm")
        gate, up = h @ t[p + "mlp.gate_proj.weight"].T, h @ t[p + "mlp.up_proj.weight"].T
        x = x + gate / (1 + np.exp(-gate)) * up @ t[p + "mlp.down_proj.weight"].T
    logits = norm(x, "model.norm") @ t["model.embed_tokens.weight"].T
    logits -= logits.max(-1, keepdims=True)
    logits -= np.log(np.exp(logits).sum(-1, keepdims=True))
    return logits[np.arange(count - 1), ids[1:]]


def main(folder):
    t = read_tensors(os.path.join(folder, "model.safetensors"))
    c = json.load(open(os.path.join(folder, "config.json")))
    ids = json.load(open(os.path.join(folder, "golden.json")))["tokens"][1]
    yarn = dict(rope_type="yarn", original_max_position_embeddings=ORIGINAL)
    longrope = dict(rope_type="longrope", original_max_position_embeddings=ORIGINAL, short_factor=SHORT, long_factor=LONG)
    cases = [
        (LONGER, dict(yarn, factor=4.0)), (LONGER, yarn), (LONGER, dict(yarn, factor=16.0, truncate=False, beta_fast=16.0)),
        (LONGER, dict(yarn, factor=4.0, attention_factor=1.5)),
        (LONGER, dict(yarn, factor=40.0, mscale=0.707, mscale_all_dim=1.0)),
        (LONGER, dict(rope_type="linear", factor=4.0)),
        (LONGER, dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                      original_max_position_embeddings=ORIGINAL)),
        (LONGER, longrope), (LONGER, dict(longrope, factor=64.0)), (LONGER, dict(longrope, factor=1.0)),
        (LONGER, dict(longrope, factor=64.0, attention_factor=0.75)), (ORIGINAL, dict(rope_type="dynamic", factor=4.0)),
    ]
    rows, plain = [], None
    plain = logprobs(t, c, ids, (10000.0 ** (-np.arange(HALF) / HALF), 1.0))
    for longest, scaling in cases:
        fields = dict(max_position_embeddings=longest, rope_theta=10000.0, rope_scaling=scaling)
        for context in CONTEXTS:
            got = logprobs(t, c, ids, rope_table(fields, context))
            found = [round(float(v), 5) for v in got[::4]]
            if rows and rows[-1]["fields"] == fields and rows[-1]["logprobs"] == found:
                rows[-1]["contexts"].append(context)
            else:
                kind = "plain" if np.abs(got - plain).max() < 1e-9 else scaling["rope_type"]
                rows.append(dict(fields=fields, kind=kind, contexts=[context], logprobs=found))
                print(kind, context, "differs from plain RoPE by", np.abs(got - plain)[::4].max())
    with open(os.path.join(folder, "scalings.json"), "w") as f:
        f.write('{"cases":[\n' + ",\n".join(json.dumps(r, separators=(",", ":")) for r in rows) + "\n]}\n")


main(sys.argv[1])
