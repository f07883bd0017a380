#!/usr/bin/env python3
"""The emitted JAX code of one-layer twins at full width, lowered for a TPU: the programs behind two tables of docs/attainability.md.

    attainability_jax.py TWINFORGE FOLDER MODEL TOPOLOGY     decode of 8 sequences into a cache of 2,048 places; one row of JSON

A checkpoint of one layer is made sparse, of zeros, and forged by the tool; of the twin's reference/model.py the function
`layer` is lowered in plain JAX and, where the module calls kernels, with them. FOLDER gets the programs. The row has the
names of their files, what JAX's own ahead-of-time compile says of the plain one, and how many bytes kernels read. Needs
jax[tpu] (0.10.2 with libtpu 0.0.42.1); exits with 77 where it is not installed.
"""
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import compile_layers  # noqa: E402  (sets the library's environment)
from attainability import DECODE, config_of, models  # noqa: E402
from sparse_checkpoint import checkpoint, module_at  # noqa: E402

BATCH, CONTEXT, VOCAB = 8, 2048, 1024


def one_layer(config):
    """The config with one layer and few words; the layer has no window."""
    config = {**config, "vocab_size": VOCAB, "n_layer" if "n_layer" in config else "num_hidden_layers": 1}
    if "layer_types" in config:
        config["layer_types"] = ["full_attention"]
    return config


# ---- the emitted layer

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
