"""Checkpoints of zeros, in sparse files that take no room: full widths of public models, for the benches."""
import importlib.util
import json
import math
import struct
import sys


def attention(config):
    d, heads, kv = config["hidden_size"], config["num_attention_heads"], config.get("num_key_value_heads", config["num_attention_heads"])
    width = config.get("head_dim") or d // heads
    if config["model_type"] == "phi3":
        return {"self_attn.qkv_proj.weight": [(heads + 2 * kv) * width, d], "self_attn.o_proj.weight": [d, heads * width]}
    sides = {"q": heads * width, "k": kv * width, "v": kv * width}
    tensors = {f"self_attn.{name}_proj.weight": [rows, d] for name, rows in sides.items()} | {"self_attn.o_proj.weight": [d, heads * width]}
    if config["model_type"] in ("qwen2", "gpt_oss"):
        tensors |= {f"self_attn.{name}_proj.bias": [rows] for name, rows in sides.items()}
    if config["model_type"] == "gpt_oss":
        tensors |= {"self_attn.o_proj.bias": [d], "self_attn.sinks": [heads]}
    if config["model_type"] in ("qwen3", "qwen3_moe"):
        tensors |= {f"self_attn.{name}_norm.weight": [width] for name in "qk"}
    return tensors


def gated(prefix, d, f, names=("gate_proj", "up_proj", "down_proj")):
    return {f"{prefix}.{names[0]}.weight": [f, d], f"{prefix}.{names[1]}.weight": [f, d], f"{prefix}.{names[2]}.weight": [d, f]}


def feed_forward(config):
    d, f, family = config["hidden_size"], config["intermediate_size"], config["model_type"]
    if family == "phi3":
        return {"mlp.gate_up_proj.weight": [2 * f, d], "mlp.down_proj.weight": [d, f]}
    if family == "mixtral":
        experts = config["num_local_experts"]
        each = [gated(f"block_sparse_moe.experts.{e}", d, f, ("w1", "w3", "w2")) for e in range(experts)]
        return {"block_sparse_moe.gate.weight": [experts, d]} | {name: shape for one in each for name, shape in one.items()}
    if family == "qwen3_moe":
        experts = config["num_experts"]
        each = [gated(f"mlp.experts.{e}", d, config["moe_intermediate_size"]) for e in range(experts)]
        return {"mlp.gate.weight": [experts, d]} | {name: shape for one in each for name, shape in one.items()}
    if family == "gpt_oss":
        e = config["num_local_experts"]
        return {"mlp.router.weight": [e, d], "mlp.router.bias": [e], "mlp.experts.gate_up_proj": [e, d, 2 * f], "mlp.experts.gate_up_proj_bias": [e, 2 * f],
                "mlp.experts.down_proj": [e, f, d], "mlp.experts.down_proj_bias": [e, d]}
    return gated("mlp", d, f)


def gpt2(config):
    d = config["n_embd"]
    linear = lambda name, rows, columns: {f"{name}.weight": [rows, columns], f"{name}.bias": [columns]}
    norm = lambda name: {f"{name}.weight": [d], f"{name}.bias": [d]}
    layer = norm("ln_1") | linear("attn.c_attn", d, 3 * d) | linear("attn.c_proj", d, d) | norm("ln_2") | linear("mlp.c_fc", d, 4 * d) | linear("mlp.c_proj", 4 * d, d)
    return ({f"transformer.h.{i}.{name}": shape for i in range(config["n_layer"]) for name, shape in layer.items()} | norm("transformer.ln_f")
            | {"transformer.wte.weight": [config["vocab_size"], d], "transformer.wpe.weight": [config["n_positions"], d]})


def tensors_of(config):
    """name -> shape of what a checkpoint of that config holds, for the families that the benches ask about."""
    if config["model_type"] == "gpt2":
        return gpt2(config)
    d = config["hidden_size"]
    norms = ["input_layernorm", "post_attention_layernorm"] + ["pre_feedforward_layernorm", "post_feedforward_layernorm"] * (config["model_type"] == "gemma2")
    layer = attention(config) | feed_forward(config) | {f"{name}.weight": [d] for name in norms}
    outer = {"model.embed_tokens.weight": [config["vocab_size"], d], "model.norm.weight": [d]}
    if not config.get("tie_word_embeddings", config["model_type"] == "gemma2"):
        outer["lm_head.weight"] = [config["vocab_size"], d]
    return {f"model.layers.{i}.{name}": shape for i in range(config["num_hidden_layers"]) for name, shape in layer.items()} | outer


def checkpoint(folder, config):
    """A folder with the config and one sparse file of zeros."""
    header, at = {}, 0
    for name, shape in tensors_of(config).items():
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + 2 * math.prod(shape)]}
        at += 2 * math.prod(shape)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"torch_dtype": "bfloat16", **config}))
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)


def module_at(path):
    """The emitted module in a file, without leaving bytecode beside it."""
    sys.dont_write_bytecode = True
    spec = importlib.util.spec_from_file_location(f"twin_{abs(hash(str(path)))}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
