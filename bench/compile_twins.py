#!/usr/bin/env python3
"""Compiles the decode step of emitted JAX code for TPUs, without a TPU, in plain JAX and with the kernels beside it.

    compile_twins.py [v6e ...]                    a layer of public models at full width: the table of docs/kernels.md
    compile_twins.py --twin FOLDER [v5e v6e ...]  one twin, one row of JSON for each generation
    compile_twins.py --one MODEL [v6e ...]        one of the models
    compile_twins.py --small [v6e ...]            the small ones of the tests, as --twin

The step is of 8 sequences with room for 2,048 tokens each. Checkpoints are made sparse, of zeros, and forged by the tool
($TWINFORGE, or build/release). Cycles are the compiler's own estimate. A kernel carries none: in its place stand the cycles
in which its bytes arrive, at the rate that the compiler reckons with, every place of the cache in use and each row an expert
of its own. Needs jax[tpu] (0.10.2 with libtpu 0.0.42.1); exits with 77 where it is not installed, with 1 where a step does
not compile.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from math import prod
from pathlib import Path

from compile_kernels import BIG, BYTES_PER_CYCLE, TOPOLOGY, device, sizes  # first: it sets what libtpu asks of its environment
from compile_layers import cycles_of
from sparse_checkpoint import checkpoint, module_at
import jax
import jax.numpy as jnp
import numpy as np

ROOT = Path(__file__).resolve().parents[1]
TOOL = os.environ.get("TWINFORGE", str(ROOT / "build" / "release" / "cli" / "twinforge"))
BATCH, CONTEXT, VOCAB = 8, 2048, 1024
HALF = ('name: "half" require: RETRAIN step { use: "tpu-exact-native" } step { keep_n_of_m { keep: 2 of: 4 along: "in" stride: 128 } '
        'where { path: "layers.*mlp.down" } }')


# --- configs; the checkpoints are sparse


def common(family, architecture, d, heads, kv, width, f):
    return dict(model_type=family, architectures=[architecture], hidden_size=d, num_attention_heads=heads, num_key_value_heads=kv,
                head_dim=width, intermediate_size=f, vocab_size=VOCAB, rms_norm_eps=1e-6, rope_theta=1e6, hidden_act="silu",
                max_position_embeddings=131072, tie_word_embeddings=False, torch_dtype="bfloat16", attention_bias=False)


def dense(d, heads, kv, width, f, norms=False):
    """llama, or qwen3 with norms of q and k."""
    return common("qwen3" if norms else "llama", "Qwen3ForCausalLM" if norms else "LlamaForCausalLM", d, heads, kv, width, f)


def qwen3_moe(d, heads, kv, width, f, experts, top):
    return common("qwen3_moe", "Qwen3MoeForCausalLM", d, heads, kv, width, f) | dict(
        num_experts=experts, num_experts_per_tok=top, moe_intermediate_size=f, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[])


def mixtral(d, heads, kv, width, f, experts, top):
    return common("mixtral", "MixtralForCausalLM", d, heads, kv, width, f) | dict(num_local_experts=experts, num_experts_per_tok=top)


def gpt_oss(d, heads, kv, width, f, experts, top):
    return common("gpt_oss", "GptOssForCausalLM", d, heads, kv, width, f) | dict(
        num_local_experts=experts, num_experts_per_tok=top, sliding_window=128, attention_bias=True, swiglu_limit=7.0, rope_theta=150000.0,
        rope_scaling=dict(rope_type="yarn", factor=32.0, beta_fast=32.0, beta_slow=1.0, original_max_position_embeddings=4096, truncate=False))


def of_layers(config, layers):
    """The config with so many layers, none with a window."""
    return config | {"num_hidden_layers": layers} | ({"layer_types": ["full_attention"] * layers} if config["model_type"] == "gpt_oss" else {})


MODELS = {
    "Llama-3.2-1B": (dense(2048, 32, 8, 64, 8192), "tpu-exact-native"),
    "Qwen3-8B": (dense(4096, 32, 8, 128, 12288, norms=True), "tpu-exact-native"),
    "Qwen3-8B, 2 of 4 of its down kept": (dense(4096, 32, 8, 128, 12288, norms=True), HALF),
    "Qwen3-30B-A3B": (qwen3_moe(2048, 32, 4, 128, 768, 128, 8), "tpu-exact-native"),
    "Mixtral-8x7B": (mixtral(4096, 32, 8, 128, 14336, 8, 2), "tpu-exact-native"),
    "gpt-oss-20b": (gpt_oss(2880, 64, 8, 64, 2880, 32, 4), "tpu-exact-native"),
}


# Layers of a loop: a kernel is given a stack of weights or caches, and a number.
SMALL = {
    "heads of 64": (dense(256, 8, 2, 64, 512), "tpu-exact-native"),
    "experts": (qwen3_moe(512, 4, 2, 128, 256, 8, 2), "tpu-exact-native"),
    "2 of 4 of down kept": (dense(512, 4, 2, 128, 1024, norms=True), HALF),
}


def forge(source, recipe, twin):
    words = [TOOL, "forge", source, "--recipe", recipe, "--out", twin, "--to", "twin", "--progress", "none"]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)


# --- decode steps


class Step:
    """The decode step of a twin's module, and the shapes of what it takes."""

    def __init__(self, twin):
        self.module, self.twin = module_at(Path(twin) / "reference" / "model.py"), twin

    def shapes(self):
        """Those of the parameters as load() gives them, without packing a weight: that takes long."""
        module = self.module
        if hasattr(module, "packed"):
            module.packed = lambda weight, axes, shape, pattern: (
                weight if module.kernel_options() is None else packed_shape(module.nm_pack, shape, module.nm_pack.Pattern(*pattern), weight.dtype))
        shape = lambda value: jax.ShapeDtypeStruct(value.shape, value.dtype)
        params = jax.tree.map(lambda read: jax.tree.map(shape, read()), self.stored())
        table = params["embed"]["table"] if isinstance(params["embed"], dict) else params["embed"]
        cache = jax.eval_shape(lambda: module.init_cache(BATCH, CONTEXT, table.dtype))
        return params, cache

    def stored(self):
        module = self.module
        module.stacked = lambda tree, layers: jax.tree.map(lambda read: lambda: jax.tree.map(
            lambda one: jax.ShapeDtypeStruct((len(layers), *one.shape), one.dtype), read(layers[0])), tree)
        return module.stored(module.Reader(self.twin))

    def compiled(self, chip, kernels):
        """The step as text of the compiler, and the bytes that its kernels read."""
        self.module.use_kernels(chip if kernels else "off")
        params, cache = self.shapes()
        sharding = jax.sharding.SingleDeviceSharding(device(chip))
        placed = lambda tree: jax.tree.map(lambda of: jax.ShapeDtypeStruct(of.shape, of.dtype, sharding=sharding), tree)
        row = jax.ShapeDtypeStruct((BATCH,), jnp.int32, sharding=sharding)
        lowered = self.module.decode_step.lower(placed(params), placed(cache), row, row)
        self.params, self.cache = params, cache
        return lowered.compile(compiler_options={"xla_msa_enable": "false"}).as_text()  # else prefetched bytes cost nothing

    def row(self, chip):
        """What the compiler makes of the step with kernels, of the generation `chip`."""
        text = self.compiled(chip, True)
        rest, _, _ = cycles_of(text)
        return {"chip": chip, "rest": rest, "kernel_bytes": self.kernel_bytes(), "kernels": text.count("tpu_custom_call"),
                "arrive": self.kernel_bytes() // BYTES_PER_CYCLE[chip], "outcome": self.outcome(text)}

    def plain(self, chip):
        """The cycles of plain JAX."""
        return cycles_of(self.compiled(chip, False))[0]

    def layers(self):
        """The parameters of each layer, or of a stack of equal ones."""
        return [one for part in self.params["layers"] for one in (part if isinstance(part, tuple) else (part,))]

    def packed(self, layer):
        if not hasattr(self.module, "nm_pack"):
            return []
        is_packed = lambda leaf: isinstance(leaf, self.module.nm_pack.Packed)
        return [leaf for leaf in jax.tree.leaves(layer, is_leaf=is_packed) if is_packed(leaf)]

    def experts(self, layer):
        grouped = "moe" in layer and hasattr(self.module, "grouped_matmul")
        return [layer["moe"][name] for name in ("gate", "up", "down")] if grouped else []

    def kernel_bytes(self):
        """Of the caches, of as many experts as there are rows, of packed weights."""
        total = sum(nbytes(leaf) for leaf in jax.tree.leaves(self.cache))
        for layer in self.layers():
            for expert in self.experts(layer):
                config = self.module.CONFIG
                total += nbytes(expert) * min(BATCH * config.top_k, config.experts) // config.experts
            total += sum(nbytes(one.values) + nbytes(one.codes) for one in self.packed(layer))
        return total

    def outcome(self, text):
        """Whether a cache, or a weight that a kernel reads, is moved before it is read."""
        read = jax.tree.leaves(self.cache)
        for layer in self.layers():
            read += self.experts(layer) + [one.values for one in self.packed(layer)]
        big = {sizes(of.shape[first:]) for of in read if prod(of.shape) >= BIG for first in (0, 1)}
        moved = set()
        for name, shape in re.findall(r"(\S+) = \w+\[([\d,]+)\]\S* (?:copy|fusion|transpose|pad|slice|dynamic-slice)\(", text):
            if "update-slice" not in name:  # a new token, written in its place
                moved.add(sizes(int(part) for part in shape.split(",")))
        return "copied" if {part for part in big if prod(part) >= BIG} & moved else "in place"


def packed_shape(nm_pack, shape, pattern, dtype):
    """The Packed form of a weight [in, out], of shapes alone."""
    along_in = pattern.along == "in"
    words = -(-(shape[0 if along_in else 1] // (pattern.of * pattern.stride)) // pattern.shared)
    tile = (pattern.stride, -(-shape[1] // 128) * 128) if along_in else (shape[0], pattern.stride)
    values = jax.ShapeDtypeStruct((words * pattern.shared, pattern.keep) + tile, dtype)
    return nm_pack.Packed(values, jax.ShapeDtypeStruct((words,) + tile, pattern.code_dtype), pattern, tuple(shape))


def nbytes(of):
    return prod(of.shape) * np.dtype(of.dtype).itemsize


def of_model(model, chips, layers=1, plain=True):
    config, recipe = model
    with tempfile.TemporaryDirectory() as scratch:
        source, twin = Path(scratch) / "source", Path(scratch) / "twin"
        checkpoint(source, of_layers(config, layers))
        if recipe.startswith("name:"):
            (Path(scratch) / "recipe.textproto").write_text(recipe)
            recipe = Path(scratch) / "recipe.textproto"
        forge(source, recipe, twin)
        shutil.rmtree(source)
        step = Step(twin)
        return [{"plain": step.plain(chip) if plain else None} | step.row(chip) for chip in chips]


def main(arguments):
    chips = [word for word in arguments if word in TOPOLOGY]
    if arguments[:1] == ["--twin"]:
        step = Step(arguments[1])
        for chip in chips or ["v5e", "v6e"]:
            print(json.dumps({"plain": step.plain(chip)} | step.row(chip)), flush=True)
        return 0
    if arguments[:1] == ["--small"]:
        for name, model in SMALL.items():
            for row in of_model(model, chips or ["v5e", "v6e"], layers=3, plain=False):
                print(json.dumps({"name": name, **row}), flush=True)
        return 0
    names = [name for name in MODELS if arguments[:1] != ["--one"] or name == arguments[1]]
    chips = chips or ["v5e", "v6e"]
    print("| one layer, embedding and head, decode | " + " | ".join(chips) + " |\n| --- |" + " --- |" * len(chips))
    for name in names:
        cells = [f"{row['plain']:,} → {row['rest']:,} + {row['arrive']:,}" + (", copied" if row["outcome"] == "copied" else "")
                 for row in of_model(MODELS[name], chips)]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    return 0


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(status)  # the plugin's own shutdown is slow
