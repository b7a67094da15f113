#!/usr/bin/env python3
"""Goldens of videos: make.py FIXTURES [OUT], by hand, with numpy; FIXTURES: the shared folder fixtures/vision.

The towers, the text models and the resizing are those of FIXTURES/ref_vision.py, which agrees with transformers on
pictures. What videos add is written here after transformers: sizes (smart_resize of video_processing_qwen3_vl.py; for
the others that of image_processing_qwen2_vl.py), texts (processing_qwen3_vl.py), positions (get_rope_index of
modeling_qwen2_5_vl.py in transformers 4, with the seconds of a pair of frames not rounded)."""
import json, math, os, sys
import numpy as np

FIXTURES, OUT = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, FIXTURES)
import ref_vision as ref
from tokenizers import Tokenizer

V, STEPS = 320, 12
ONE = "<|im_start|>user\n<|vision_start|><|video_pad|><|vision_end|>What is this?<|im_end|>\n<|im_start|>assistant\n"
MIX = ("<|im_start|>user\nFirst:<|vision_start|><|image_pad|><|vision_end|> then:<|vision_start|><|video_pad|>"
       "<|vision_end|> Which?<|im_end|>\n<|im_start|>assistant\n")
FPS = {"qwen2-vl": 2.0, "qwen2.5-vl": 1.5, "qwen3-vl": 2.0}


def picture(frame, width, height):
    y, x, c = np.mgrid[0:height, 0:width, 0:3]
    return ((x * (2 + c) + y * (3 + frame) + (x * y >> 5) * (c + 1) + 40 * frame) & 255).astype(np.uint8)


def size(m, n, h, w):
    """Of n frames; 0: a picture."""
    p, f = m.pre, m.pre["patch_size"] * m.pre["merge_size"]
    lo = p.get("min_pixels") or p["size"]["shortest_edge"]
    hi = p.get("max_pixels") or p["size"]["longest_edge"]
    if not n or m.kind != "qwen3_vl":
        return ref.smart_resize(h, w, f, lo, hi)
    if h < f or w < f:
        s = max(f / h, f / w)
        h, w = int(h * s), int(w * s)
    H, W, T = round(h / f) * f, round(w / f) * f, round(n / 2) * 2
    if T * H * W > hi:
        b = math.sqrt(n * h * w / hi)
        H, W = max(f, math.floor(h / b / f) * f), max(f, math.floor(w / b / f) * f)
    elif T * H * W < lo:
        b = math.sqrt(lo / (n * h * w))
        H, W = math.ceil(h * b / f) * f, math.ceil(w * b / f) * f
    return H, W


def text_of(m, grid, n, fps):
    rows = grid[1] * grid[2]
    if m.kind != "qwen3_vl":
        return "<|vision_start|>" + "<|video_pad|>" * (grid[0] * rows) + "<|vision_end|>"
    at = [i / fps for i in list(range(n)) + ([n - 1] if n % 2 else [])]
    return "".join(f"<{(at[2 * i] + at[2 * i + 1]) / 2:.1f} seconds><|vision_start|>" + "<|video_pad|>" * rows
                   + "<|vision_end|>" for i in range(grid[0]))


def positions(m, ids, parts):
    """parts: of each picture or video its grid and fps, which is 0 for a picture."""
    pads, out, nxt, i, part = (m.special["<|image_pad|>"], m.special["<|video_pad|>"]), [], 0, 0, -1
    while i < len(ids):
        if ids[i] not in pads:
            out.append((nxt,) * 3)
            nxt, i = nxt + 1, i + 1
            continue
        part += 1
        (T, h, w), fps = parts[part]
        step = m.v["tokens_per_second"] * 2 / fps if fps and m.kind == "qwen2_5_vl" else 1
        new = [(nxt + math.floor(t * step + 1e-9), nxt + y, nxt + x) for t in range(T) for y in range(h) for x in range(w)]
        out, i, nxt = out + new, i + len(new), max(map(max, new)) + 1
    return np.array(out).T


def forward(m, ids, rows, deep, parts):
    """As ref.Model.forward, with these positions."""
    c, t, P = m.x, m.t, m.text
    ids, n, heads = np.array(ids), len(ids), c["num_attention_heads"]
    d = c.get("head_dim") or c["hidden_size"] // heads
    pic = np.isin(ids, (m.special["<|image_pad|>"], m.special["<|video_pad|>"]))
    x = t[P + "embed_tokens.weight"][ids].copy()
    x[pic] = rows
    pos, half, axis = positions(m, list(ids), parts), np.arange(d // 2), np.zeros(d // 2, int)
    sec = c["rope_scaling"]["mrope_section"]
    if m.kind == "qwen3_vl":
        for a in (1, 2):
            axis[a:sec[a] * 3:3] = a
    else:
        axis = np.repeat([0, 1, 2], sec)
    ang, see = pos[axis].T * c["rope_theta"] ** -(2 * half / d), np.tril(np.ones((n, n), bool))
    norm = lambda x, k: ref.rms(x, t[k + ".weight"], c["rms_norm_eps"])
    for i in range(c["num_hidden_layers"]):
        L = f"{P}layers.{i}."
        y = norm(x, L + "input_layernorm")
        q, k, v = (m.lin(y, L + f"self_attn.{a}_proj").reshape(n, -1, d) for a in "qkv")
        if m.kind == "qwen3_vl":
            q, k = norm(q, L + "self_attn.q_norm"), norm(k, L + "self_attn.k_norm")
        x = x + m.lin(ref.attend(ref.rotate(q, ang), ref.rotate(k, ang), v, d ** -0.5, see), L + "self_attn.o_proj")
        y = norm(x, L + "post_attention_layernorm")
        x = x + m.lin(ref.ACTS["silu"](m.lin(y, L + "mlp.gate_proj")) * m.lin(y, L + "mlp.up_proj"), L + "mlp.down_proj")
        if i < len(deep):
            x[pic] += deep[i]
    x = norm(x, P + "norm")
    head = t.get("lm_head.weight")
    return (x @ (head if head is not None else t[P + "embed_tokens.weight"]).T)[:, :V], pos


def prompt(m, tk, name, text, given):
    """given: (frames, fps, width, height) of each picture or video; frames 0: a picture."""
    rows, deep, parts, whole = [], [], [], text
    for n, fps, w, h in given:
        H, W = size(m, n, h, w)
        r, dp, grid = m.encode([ref.resize(picture(i, w, h), H, W, 3) for i in range(n or 1)], n > 0)
        rows.append(r)
        deep = [np.concatenate([a, b]) for a, b in zip(deep, dp)] if deep else dp
        apart = n and m.kind == "qwen3_vl"
        parts += [((1,) + grid[1:], 0)] * grid[0] if apart else [(grid, fps if n else 0)]
        pad = "<|video_pad|>" if n else "<|image_pad|>"
        new = text_of(m, grid, n, fps) if n else f"<|vision_start|>{pad * (grid[1] * grid[2])}<|vision_end|>"
        whole = whole.replace(f"<|vision_start|>{pad}<|vision_end|>", new.replace("pad|", "PAD|"), 1)
    whole = whole.replace("PAD|", "pad|")
    enc = lambda s: tk.encode(s, add_special_tokens=False).ids
    ids, rows, said, gap = enc(whole), np.concatenate(rows), [], 9
    y, pos = forward(m, ids, rows, deep, parts)
    mx = y.max(1)
    lse = mx + np.log(np.exp(y - mx[:, None]).sum(1))
    for _ in range(STEPS):
        z = forward(m, ids + said, rows, deep, parts)[0][-1]
        two = np.sort(z)[-2:]
        if two[1] - two[0] < 0.02:
            break
        gap = min(gap, two[1] - two[0])
        said.append(int(z.argmax()))
    r = lambda a, k=7: [float(f"{v:.{k}g}") for v in np.ravel(a)]
    out = dict(name=name, text=text, given=given, ids=enc(text), ids_expanded=ids, rows=len(rows), positions=pos.tolist(),
               logsumexp=r(lse), greedy=said)
    if name == "video":
        out.update(embeddings_first=r(rows[0]), embeddings_last=r(rows[-1]), embeddings_sum=r(rows.sum(1)),
                   embeddings_square=r((rows * rows).sum(1)))
        if deep:
            out["deepstack_sum"] = [r(a.sum(1)) for a in deep]
    print(m.kind, name, "rows", len(rows), "tokens", len(ids), "greedy", said, f"gap {gap:.3f}", whole[:200].encode())
    return out


def main():
    for folder, fps in FPS.items():
        m, tk = ref.Model(f"{FIXTURES}/{folder}"), Tokenizer.from_file(f"{FIXTURES}/{folder}/tokenizer.json")
        prompts = [prompt(m, tk, "video", ONE, [(5, fps, 80, 60)]),
                   prompt(m, tk, "mixed", MIX, [(0, 0.0, 64, 64), (4, 4.0, 50, 70)])]
        if m.kind == "qwen2_5_vl": # times that take more positions than rows
            prompts.append(prompt(m, tk, "slow", ONE, [(4, 0.25, 50, 70)]))
        path = f"{OUT}/{folder}.json"
        json.dump(dict(placeholder="<|video_pad|>", prompts=prompts), open(path, "w"), separators=(",", ":"))
        print(path, os.path.getsize(path))


if __name__ == "__main__":
    main()
