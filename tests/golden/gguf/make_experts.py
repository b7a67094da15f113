"""Makes GGUF files of tiny models with experts, as llama.cpp's converter stores them (conversion/*.py).

    python3 make_experts.py FOLDER OUT.gguf

FOLDER: config.json and model.safetensors of gpt_oss, glm4_moe, dbrx, olmoe or qwen2_moe, such as those of the shared
fixtures. Needs the packages gguf and numpy. The file has no tokenizer.
"""
import json
import struct
import sys

import gguf
import numpy as np

FOLDER, OUT = sys.argv[1:]
config = json.load(open(FOLDER + "/config.json"))
data = open(FOLDER + "/model.safetensors", "rb").read()
header_bytes = struct.unpack("<Q", data[:8])[0]
tensors = {}
for name, t in json.loads(data[8:8 + header_bytes]).items():
    if name != "__metadata__":
        begin, end = (8 + header_bytes + x for x in t["data_offsets"])
        dtype = {"F16": np.float16, "F32": np.float32}[t["dtype"]]
        tensors[name] = np.frombuffer(data[begin:end], dtype).reshape(t["shape"])

family = config["model_type"]
arch = {"gpt_oss": "gpt-oss", "glm4_moe": "glm4moe", "dbrx": "dbrx", "olmoe": "olmoe", "qwen2_moe": "qwen2moe"}[family]
dbrx = family == "dbrx"
attn, ffn = config.get("attn_config", {}), config.get("ffn_config", {})
layers = config.get("num_hidden_layers", config.get("n_layers"))
heads = config.get("num_attention_heads", config.get("n_heads"))
hidden = config.get("hidden_size", config.get("d_model"))
experts = (config.get("num_local_experts") or config.get("num_experts") or config.get("n_routed_experts") or
           ffn["moe_num_experts"])
head_dim = config.get("head_dim", hidden // heads)

w = gguf.GGUFWriter(OUT, arch)
w.add_block_count(layers + (1 if family == "glm4_moe" else 0))
w.add_context_length(config.get("max_position_embeddings", config.get("max_seq_len")))
w.add_embedding_length(hidden)
w.add_feed_forward_length(config.get("intermediate_size", ffn.get("ffn_hidden_size")))
w.add_head_count(heads)
w.add_head_count_kv(config.get("num_key_value_heads", attn.get("kv_n_heads")))
w.add_rope_freq_base(config.get("rope_theta", attn.get("rope_theta")))
w.add_expert_count(experts)
w.add_expert_used_count(config.get("num_experts_per_tok", ffn.get("moe_top_k")))
w.add_tokenizer_model("none")
if dbrx:
    w.add_layer_norm_eps(1e-5)
    w.add_clamp_kqv(attn["clip_qkv"])
else:
    w.add_layer_norm_rms_eps(config["rms_norm_eps"])
    w.add_key_length(head_dim)
    w.add_value_length(head_dim)
if config.get("clip_qkv"):
    w.add_clamp_kqv(config["clip_qkv"])
if family == "gpt_oss":
    scaling = config["rope_scaling"]
    w.add_sliding_window(config["sliding_window"])
    w.add_expert_feed_forward_length(config["intermediate_size"])
    w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    w.add_rope_scaling_factor(scaling["factor"])
    w.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])
if family in ("glm4_moe", "qwen2_moe"):
    w.add_expert_feed_forward_length(config["moe_intermediate_size"])
if family == "glm4_moe":
    w.add_rope_dimension_count(int(head_dim * config["partial_rotary_factor"]))
    w.add_expert_shared_count(config["n_shared_experts"])
    w.add_leading_dense_block_count(config["first_k_dense_replace"])
    w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    w.add_expert_weights_scale(config["routed_scaling_factor"])
    w.add_expert_weights_norm(config["norm_topk_prob"])
    w.add_nextn_predict_layers(1)
if family == "qwen2_moe":
    w.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])

WHOLE = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
         "lm_head.weight": "output.weight", "transformer.wte.weight": "token_embd.weight",
         "transformer.norm_f.weight": "output_norm.weight"}
PARTS = {"input_layernorm.weight": "attn_norm.weight", "self_attn.q_norm.weight": "attn_q_norm.weight",
         "self_attn.k_norm.weight": "attn_k_norm.weight", "self_attn.sinks": "attn_sinks.weight",
         "mlp.router.weight": "ffn_gate_inp.weight", "mlp.router.bias": "ffn_gate_inp.bias",
         "mlp.gate.weight": "ffn_gate_inp.weight", "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
         "mlp.shared_expert_gate.weight": "ffn_gate_inp_shexp.weight",
         "ffn.router.layer.weight": "ffn_gate_inp.weight", "norm_attn_norm.attn.Wqkv.weight": "attn_qkv.weight",
         "norm_attn_norm.attn.out_proj.weight": "attn_output.weight", "norm_attn_norm.norm_1.weight": "attn_norm.weight",
         "norm_attn_norm.norm_2.weight": "attn_output_norm.weight"}
for matrix, short in (("q_proj", "attn_q"), ("k_proj", "attn_k"), ("v_proj", "attn_v"), ("o_proj", "attn_output")):
    for suffix in ("weight", "bias"):
        PARTS[f"self_attn.{matrix}.{suffix}"] = f"{short}.{suffix}"
for matrix in ("gate", "up", "down"):
    PARTS[f"mlp.{matrix}_proj.weight"] = f"ffn_{matrix}.weight"
    PARTS[f"mlp.shared_expert.{matrix}_proj.weight"] = f"ffn_{matrix}_shexp.weight"
    PARTS[f"mlp.shared_experts.{matrix}_proj.weight"] = f"ffn_{matrix}_shexp.weight"
after = family in ("gpt_oss", "glm4_moe")  # these call the norm before the MLP by where it stands
PARTS["post_attention_layernorm.weight"] = "post_attention_norm.weight" if after else "ffn_norm.weight"


def put(name, values):
    values = np.ascontiguousarray(values)
    exact = values.ndim == 1 or "ffn_gate_inp" in name or ".bias" in name  # vectors and routers are F32
    w.add_tensor(name, values.astype(np.float32 if exact else np.float16))


stacks = {}
for name, values in tensors.items():
    words = name.split(".")
    if name in WHOLE:
        put(WHOLE[name], values)
        continue
    layer, part = words[2], ".".join(words[3:])
    block = f"blk.{layer}."
    if part == "mlp.experts.gate_up_proj":
        put(block + "ffn_gate_exps.weight", values.swapaxes(1, 2)[:, ::2])
        put(block + "ffn_up_exps.weight", values.swapaxes(1, 2)[:, 1::2])
    elif part == "mlp.experts.gate_up_proj_bias":
        put(block + "ffn_gate_exps.bias", values[:, ::2])
        put(block + "ffn_up_exps.bias", values[:, 1::2])
    elif part == "mlp.experts.down_proj":
        put(block + "ffn_down_exps.weight", values.swapaxes(1, 2))
    elif part == "mlp.experts.down_proj_bias":
        put(block + "ffn_down_exps.bias", values)
    elif part.startswith("ffn.experts.mlp."):
        stacked = values.reshape(experts, -1, hidden)
        short = {"w1": "ffn_gate_exps", "v1": "ffn_up_exps", "w2": "ffn_down_exps"}[words[-1]]
        put(block + short + ".weight", stacked.swapaxes(1, 2) if words[-1] == "w2" else stacked)
    elif part.startswith("mlp.experts."):
        stacks.setdefault(block + f"ffn_{words[6].split('_')[0]}_exps.weight", {})[int(words[5])] = values
    elif part == "mlp.shared_expert_gate.weight":
        put(block + "ffn_gate_inp_shexp.weight", values[0])
    else:
        put(block + PARTS[part], values)
for name, rows in stacks.items():
    put(name, np.stack([rows[i] for i in range(experts)]))
if family == "glm4_moe":  # the layer that predicts a second token
    put(f"blk.{layers}.nextn.eh_proj.weight", np.zeros((hidden, 2 * hidden), np.float16))
    put(f"blk.{layers}.attn_norm.weight", np.ones(hidden, np.float32))

w.write_header_to_file()
w.write_kv_data_to_file()
w.write_tensors_to_file()
w.close()
