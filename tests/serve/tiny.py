"""tiny.py: a model of two small layers with the tokenizer of another one, whose passes cost next to nothing.
takes: a folder with tokenizer.json and tokenizer_config.json, a folder to write.
gives: write_tiny. Its text is noise, but the same noise each time."""

import json
import pathlib
import random
import shutil
import struct

HIDDEN, LAYERS, HEADS, MLP = 64, 2, 1, 128  # heads of 64, which GPUs compute, too


def halves(count, seed, ones=False):
    """FP16 numbers of a size between 1/64 and 1/32 with random signs, or ones."""
    if ones:
        return struct.pack("<H", 0x3C00) * count
    bits = int.from_bytes(random.Random(seed).randbytes(2 * count), "little")
    mask = int.from_bytes(struct.pack("<H", 0x83FF) * count, "little")
    base = int.from_bytes(struct.pack("<H", 0x2400) * count, "little")
    return ((bits & mask) | base).to_bytes(2 * count, "little")


def write_tiny(source, folder):
    source, folder = pathlib.Path(source), pathlib.Path(folder)
    config = json.loads((source / "config.json").read_text())
    vocab = config["vocab_size"]
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(source / name, folder / name)
    ends = {k: config[k] for k in ("bos_token_id", "eos_token_id") if k in config}
    (folder / "config.json").write_text(json.dumps(dict(ends, **{
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS, "num_key_value_heads": HEADS, "intermediate_size": MLP, "vocab_size": vocab,
        "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True,
        "torch_dtype": "float16", "hidden_act": "silu"})))
    shapes = {"model.embed_tokens.weight": (vocab, HIDDEN), "model.norm.weight": (HIDDEN,)}
    for i in range(LAYERS):
        layer = "model.layers.%d." % i
        for name in "qkvo":
            shapes[layer + "self_attn.%s_proj.weight" % name] = (HIDDEN, HIDDEN)
        shapes[layer + "mlp.gate_proj.weight"] = shapes[layer + "mlp.up_proj.weight"] = (MLP, HIDDEN)
        shapes[layer + "mlp.down_proj.weight"] = (HIDDEN, MLP)
        shapes[layer + "input_layernorm.weight"] = shapes[layer + "post_attention_layernorm.weight"] = (HIDDEN,)
    header, data = {}, []
    offset = 0
    for seed, (name, shape) in enumerate(shapes.items()):
        count = 1
        for size in shape:
            count *= size
        data.append(halves(count, seed, len(shape) == 1))
        header[name] = {"dtype": "F16", "shape": shape, "data_offsets": [offset, offset + 2 * count]}
        offset += 2 * count
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data))
    return str(folder)


if __name__ == "__main__":
    import sys
    write_tiny(sys.argv[1], sys.argv[2])
