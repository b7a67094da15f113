"""layers.json: golden of exl2_compare's figures by layer, in float64 and without packages.

A is ../models/smollm3. B is A with bit 5 of every third FP16 number of its layers' projections flipped, which
engine/compare_layers.c does as well. 48 ids in two sequences of 24: 3 + i * 37 % 300.

error: of the residual after each layer, the norm of B - A over all positions, by the norm of A. kl: mean KL divergence
from A of A with that layer's tensors from B. nll: of A, of each id after its sequence's first. Usage: make_layers.py
"""
import json
import math
import os
import struct

HERE = os.path.dirname(os.path.abspath(__file__))
MODEL = os.path.join(HERE, "..", "models", "smollm3")
TOKENS = [3 + i * 37 % 300 for i in range(48)]
ROW = 24


def half(bits):
    return struct.unpack("<e", struct.pack("<H", bits))[0]


def read(change):
    with open(os.path.join(MODEL, "model.safetensors"), "rb") as f:
        data = f.read()
    size = struct.unpack("<Q", data[:8])[0]
    out = {}
    for name, t in json.loads(data[8:8 + size]).items():
        if name == "__metadata__":
            continue
        assert t["dtype"] == "F16"
        begin, end = t["data_offsets"]
        bits = list(struct.unpack("<%dH" % ((end - begin) // 2), data[8 + size + begin:8 + size + end]))
        if change and ".layers." in name and "_proj." in name:
            for i in range(0, len(bits), 3):
                bits[i] ^= 0x20
        values = [half(b) for b in bits]
        if len(t["shape"]) == 2:
            columns = t["shape"][1]
            values = [values[i:i + columns] for i in range(0, len(values), columns)]
        out[name] = values
    return out


def times(matrix, x):
    return [math.fsum(w * v for w, v in zip(row, x)) for row in matrix]


def norm(x, weight, eps):
    scale = 1 / math.sqrt(math.fsum(v * v for v in x) / len(x) + eps)
    return [v * scale * w for v, w in zip(x, weight)]


def turn(x, position, theta):
    half_size = len(x) // 2
    out = list(x)
    for i in range(half_size):
        angle = position * theta ** (-i / half_size)
        out[i] = x[i] * math.cos(angle) - x[i + half_size] * math.sin(angle)
        out[i + half_size] = x[i + half_size] * math.cos(angle) + x[i] * math.sin(angle)
    return out


def layer(w, config, index, rows):
    """The residual of a sequence after a layer."""
    p = "model.layers.%d." % index
    heads, kv_heads, eps = config["num_attention_heads"], config["num_key_value_heads"], config["rms_norm_eps"]
    size = config.get("head_dim") or config["hidden_size"] // heads
    rope = (index + 1) % config["no_rope_layer_interval"] != 0
    q, k, v = [], [], []
    for position, x in enumerate(rows):
        x = norm(x, w[p + "input_layernorm.weight"], eps)
        for name, count, out in (("q", heads, q), ("k", kv_heads, k), ("v", kv_heads, v)):
            y = times(w[p + "self_attn.%s_proj.weight" % name], x)
            y = [y[h * size:(h + 1) * size] for h in range(count)]
            out.append([turn(h, position, config["rope_theta"]) if rope and name != "v" else h for h in y])
    after = []
    for position, x in enumerate(rows):
        joined = []
        for head in range(heads):
            group = head // (heads // kv_heads)
            scores = [math.fsum(a * b for a, b in zip(q[position][head], k[i][group])) / math.sqrt(size)
                      for i in range(position + 1)]
            top = max(scores)
            shares = [math.exp(s - top) for s in scores]
            total = math.fsum(shares)
            joined += [math.fsum(s / total * v[i][group][e] for i, s in enumerate(shares)) for e in range(size)]
        x = [a + b for a, b in zip(x, times(w[p + "self_attn.o_proj.weight"], joined))]
        y = norm(x, w[p + "post_attention_layernorm.weight"], eps)
        gate, up = times(w[p + "mlp.gate_proj.weight"], y), times(w[p + "mlp.up_proj.weight"], y)
        y = [g / (1 + math.exp(-g)) * u for g, u in zip(gate, up)]
        after.append([a + b for a, b in zip(x, times(w[p + "mlp.down_proj.weight"], y))])
    return after


def logs(w, config, rows):
    """Log-probabilities of each row."""
    head = w.get("lm_head.weight") or w["model.embed_tokens.weight"]
    out = []
    for x in rows:
        logits = times(head, norm(x, w["model.norm.weight"], config["rms_norm_eps"]))
        top = max(logits)
        total = top + math.log(math.fsum(math.exp(v - top) for v in logits))
        out.append([v - total for v in logits])
    return out


def main():
    with open(os.path.join(MODEL, "config.json")) as f:
        config = json.load(f)
    a, b = read(False), read(True)
    layers = config["num_hidden_layers"]
    error, size, kl, nll = [0.0] * layers, [0.0] * layers, [0.0] * layers, []
    for begin in range(0, len(TOKENS), ROW):
        ids = TOKENS[begin:begin + ROW]
        ours = [a["model.embed_tokens.weight"][i] for i in ids]
        theirs = [list(x) for x in ours]
        swapped = []
        for index in range(layers):
            swapped = [layer(a, config, index, rows) for rows in swapped] + [layer(b, config, index, ours)]
            ours, theirs = layer(a, config, index, ours), layer(b, config, index, theirs)
            error[index] += math.fsum((y - x) ** 2 for r, s in zip(ours, theirs) for x, y in zip(r, s))
            size[index] += math.fsum(x * x for r in ours for x in r)
        truth = logs(a, config, ours)
        nll += [0.0] + [-truth[i][ids[i + 1]] for i in range(len(ids) - 1)]
        for index, rows in enumerate(swapped):
            kl[index] += math.fsum(math.exp(p) * (p - q) for r, s in zip(truth, logs(a, config, rows))
                                   for p, q in zip(r, s))
    out = {"tokens": TOKENS, "row": ROW, "error": [math.sqrt(e / s) for e, s in zip(error, size)],
           "kl": [k / len(TOKENS) for k in kl], "nll": nll}
    with open(os.path.join(HERE, "layers.json"), "w") as f:
        f.write("{" + ",\n ".join("%s: %s" % (json.dumps(k), json.dumps(v)) for k, v in out.items()) + "}\n")


main()
