#!/usr/bin/env python3
"""The emitted JAX code of one-layer twins at full width, lowered for a TPU: the programs behind two tables of docs/attainability.md.

    attainability_jax.py TWINFORGE FOLDER MODEL TOPOLOGY     decode of 8 sequences into a cache of 2,048 places; one row of JSON

A checkpoint of one layer is made sparse, of zeros, and forged by the tool; of the twin's reference/model.py the function
`layer` is lowered in plain JAX and, where the module calls kernels, with them. FOLDER gets the programs. The row has the
names of their files, what JAX's own ahead-of-time compile says of the plain one, and how many bytes kernels read. Needs
jax[tpu] (0.10.2 with libtpu 0.0.42.1); exits with 77 where it is not installed.
"""
import importlib.util
import json
import math
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import compile_layers  # noqa: E402  (sets the library's environment)
from attainability import DECODE, config_of, models  # noqa: E402

BATCH, CONTEXT, VOCAB = 8, 2048, 1024


# ---- a checkpoint of one layer

def one_layer(config):
    """The config with one layer and few words; the layer has no window."""
    config = {**config, "vocab_size": VOCAB, "n_layer" if "n_layer" in config else "num_hidden_layers": 1}
    if "layer_types" in config:
        config["layer_types"] = ["full_attention"]
    return config


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
    return ({f"transformer.h.0.{name}": shape for name, shape in layer.items()} | norm("transformer.ln_f")
            | {"transformer.wte.weight": [VOCAB, d], "transformer.wpe.weight": [config["n_positions"], d]})


def tensors_of(config):
    if config["model_type"] == "gpt2":
        return gpt2(config)
    d = config["hidden_size"]
    norms = ["input_layernorm", "post_attention_layernorm"] + ["pre_feedforward_layernorm", "post_feedforward_layernorm"] * (config["model_type"] == "gemma2")
    layer = attention(config) | feed_forward(config) | {f"{name}.weight": [d] for name in norms}
    outer = {"model.embed_tokens.weight": [VOCAB, d], "model.norm.weight": [d]}
    if not config.get("tie_word_embeddings", config["model_type"] == "gemma2"):
        outer["lm_head.weight"] = [VOCAB, d]
    return {f"model.layers.0.{name}": shape for name, shape in layer.items()} | outer


def checkpoint(folder, config):
    header, at = {}, 0
    for name, shape in tensors_of(config).items():
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + 2 * math.prod(shape)]}
        at += 2 * math.prod(shape)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"torch_dtype": "bfloat16", **config}))
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)


# ---- the emitted layer

def module_at(path):
    sys.dont_write_bytecode = True
    spec = importlib.util.spec_from_file_location(f"twin_{abs(hash(str(path)))}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class Layer:
    """`layer` of a twin's module, and the shapes of what it takes."""

    def __init__(self, twin, compiler):
        import jax
        self.jax, self.compiler, self.module = jax, compiler, module_at(Path(twin) / "reference" / "model.py")
        self.module.stacked = lambda tree, layers: jax.tree.map(lambda read: lambda: read(layers[0]), tree)  # one of its layers
        params = jax.tree.map(lambda read: self.shape(read()), self.module.stored(self.module.Reader(twin)))
        self.params, first = params, params["layers"][0]
        self.p = first[0] if isinstance(first, tuple) else first
        self.width = params["norm"]["scale"].shape[0] if isinstance(params["norm"], dict) else params["norm"].shape[0]
        self.cache = jax.tree.map(self.shape, jax.eval_shape(lambda: self.module.init_cache(BATCH, CONTEXT, jax.numpy.bfloat16)))

    def shape(self, value):
        return self.jax.ShapeDtypeStruct(tuple(value.shape), value.dtype, sharding=self.compiler.sharding)

    def lowered(self, kernels):
        """With the kernels of a generation, or in plain JAX where `kernels` is off."""
        module, jnp = self.module, self.jax.numpy
        if hasattr(module, "use_kernels"):
            module.use_kernels(kernels)

        def step(x, p, cache, positions):
            places = positions[:, None]
            angles = [module.rope_angles(places, jnp.float32)] if hasattr(module, "rope_angles") else []
            return module.layer(x, p, cache, 0, module.Step(places, *angles))

        args = self.compiler.array((BATCH, 1, self.width)), self.p, self.cache, self.compiler.array((BATCH,), "int32")
        return self.jax.jit(step, donate_argnums=2).lower(*args)

    def step(self):
        """The whole decode step of a twin whose layers are no loop, in plain JAX."""
        if hasattr(self.module, "use_kernels"):
            self.module.use_kernels("off")
        row = self.compiler.array((BATCH,), "int32")
        return self.module.decode_step.lower(self.params, self.cache, row, row)

    def kernel_bytes(self):
        """Of as many experts as rows can choose, where a kernel multiplies by them; caches are the caller's to count."""
        if "moe" not in self.p or not hasattr(self.module, "grouped_matmul"):
            return 0
        config = self.module.CONFIG
        size = sum(math.prod(one.shape) * one.dtype.itemsize for name, one in self.p["moe"].items() if name in ("gate", "up", "down", "gate_up"))
        return size * min(BATCH * config.top_k, config.experts) // config.experts


def cycles(lowered):
    """By JAX's own compile."""
    return compile_layers.cycles_of(lowered.compile(compiler_options={"xla_msa_enable": "false"}).as_text())[0]


def row(tool, folder, model, topology, kernel):
    """Programs of the twin made for `kernel` ("" or "paged")."""
    from compile_kernels import BYTES_PER_CYCLE
    generation = topology.split(":")[0].replace("tpu7x", "7x")
    config = one_layer(config_of(models()[model]))
    with tempfile.TemporaryDirectory() as scratch:
        source, twin = Path(scratch) / "source", Path(scratch) / "twin"
        checkpoint(source, config)
        words = [tool, "forge", source, "--recipe", DECODE, "--to", "twin", "--out", twin, "--progress", "none"] + (["--kernel", kernel] if kernel else [])
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
        (folder / f"{model} {kernel or 'as it is'}.config.json").write_text(json.dumps(config))
        layer = Layer(twin, compile_layers.Compiler(generation))
        said = {"model": model, "topology": topology, "kernel": kernel, "expert_bytes": layer.kernel_bytes(), "bytes_per_cycle": BYTES_PER_CYCLE[generation],
                "config": f"{model} {kernel or 'as it is'}.config.json"}
        for how in ["off"] + [generation] * hasattr(layer.module, "use_kernels"):
            name = f"{model} {topology.replace(':', '-')} {kernel or 'as it is'} {'plain' if how == 'off' else 'kernels'}.mlir"
            lowered = layer.lowered(how)
            (folder / name).write_text(lowered.as_text())
            said["plain" if how == "off" else "kernels"] = name
            if how == "off" and not kernel:
                said["jax_cycles"] = cycles(lowered)
        return said


def main(argv):
    if len(argv) != 4:
        sys.exit(__doc__)
    compile_layers.load_jax()
    tool, folder, model, topology = argv[0], Path(argv[1]), argv[2], argv[3]
    config = config_of(models()[model])
    heads = config.get("num_attention_heads") or config["n_head"]
    head_dim = config.get("head_dim") or (config.get("hidden_size") or config["n_embd"]) // heads
    for kernel in [""] + ["paged"] * (head_dim % 128 != 0):
        print(json.dumps(row(tool, folder, model, topology, kernel)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
    sys.stdout.flush()
    import os
    os._exit(0)  # the plugin's own shutdown is slow
