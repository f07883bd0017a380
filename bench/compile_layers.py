#!/usr/bin/env python3
"""Asks the TPU compiler about whole decoder layers and about memory layouts, without a TPU.

    compile_layers.py layer  v6e llama1b decode8 src [default] ...     rows in the columns of layers.csv
    compile_layers.py layer  v6e 3072,24,8,128,8192,1,gated decode8 fqkv
    compile_layers.py check  v6e TABLES/layers.csv llama1b:decode8:src ...     rows beside the recorded ones; fails
                                                                       where one is off by more than 2 %
    compile_layers.py pad    v6e 100 [SEED]                            padded bytes of random arrays, columns of pad.csv
    compile_layers.py product v6e 8x4096x4096 ...                      bf16 products, columns of aot.csv

Needs jax[tpu] (0.10.2 with libtpu 0.0.42.1 gave the recorded tables) in an environment of its own, and nothing that
is not in the wheel. Exits with 77 where it is not installed. Every cycle is the compiler's own estimate, never a
measurement; custom calls, cache updates and collectives carry none.
"""
import csv
import os
import random
import re
import sys
import time

os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")  # else a metadata query hangs
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v5litepod-4")

TOPOLOGY = {"v4": "v4:2x2x1", "v5e": "v5e:2x2", "v5p": "v5p:2x2x1", "v6e": "v6e:2x2", "7x": "tpu7x:2x2x1"}
# d_model, heads, kv_heads, head_dim, d_ff, experts, gated
MODELS = {
    "llama1b": (2048, 32, 8, 64, 8192, 1, True),
    "llama8b": (4096, 32, 8, 128, 14336, 1, True),
    "phi3": (3072, 32, 32, 96, 8192, 1, True),
    "phi2": (2560, 32, 32, 80, 10240, 1, False),
    "gemma9b": (3584, 16, 8, 256, 14336, 1, True),
    "qwen7b": (3584, 28, 4, 128, 18944, 1, True),
    "gptoss": (2880, 64, 8, 64, 2880, 32, True),
    "qwen3moe": (2048, 32, 4, 128, 768, 128, True),
    # Never fitted on: cost/compiled/unseen.csv.
    "llama3b": (3072, 24, 8, 128, 8192, 1, True),
    "qwen05b": (896, 14, 2, 64, 4864, 1, True),
    "qwen3_8b": (4096, 32, 8, 128, 12288, 1, True),
    "smollm17b": (2048, 32, 32, 64, 8192, 1, True),
    "stablelm3b": (2560, 32, 32, 80, 6912, 1, True),
    "gptj6b": (4096, 16, 16, 256, 16384, 1, False),
    "olmoe": (2048, 16, 16, 128, 1024, 64, True),
}
TOP_K = 4
CACHED = 2048
PREFILL = 512


def load_jax():
    try:
        import jax
        import libtpu  # noqa: F401
    except ImportError:
        print("jax[tpu] is not installed", file=sys.stderr)
        sys.exit(77)
    return jax


class Form:
    """How a rewrite of layers.csv stores the layer: the words of its `rewrite` column."""

    def __init__(self, model, rewrite):
        if model in MODELS:
            dims = MODELS[model]
        else:
            parts = model.split(",")
            dims = tuple(int(part) for part in parts[:6]) + (len(parts) < 7 or parts[6] == "gated",)
        self.d, self.h, self.kv, self.hd, self.f, self.experts, self.gated = dims
        self.scale = self.hd ** -0.5  # of the published head_dim, also where it is padded
        self.qkv_io = self.rest_io = self.fused_qkv = self.fused_gate_up = False
        self.cache = "bhtd"
        for word in rewrite.split("+"):
            self.apply(word)

    def apply(self, word):
        if word == "src":
            return
        if word in ("kv_bthd", "kv_bhdt"):
            self.cache = word[3:]
        elif word == "w_in_out":
            self.qkv_io = self.rest_io = True
        elif word in ("qkv_oi_rest_io", "rest_io"):
            self.rest_io = True
        elif word in ("fqkv", "fgu", "fused"):
            self.fused_qkv |= word != "fgu"
            self.fused_gate_up |= word != "fqkv"
        elif word == "pairs":
            self.experts, self.f = self.experts // 2, self.f * 2
        elif re.fullmatch(r"hd\d+", word):
            self.hd = int(word[2:])
        elif re.fullmatch(r"ffn\d+", word):
            self.f = int(word[3:])
        else:
            sys.exit(f"no such rewrite here: {word}")

    def weights(self):
        """Name -> stored shape."""
        q, kv = self.h * self.hd, self.kv * self.hd
        orient = lambda n_out, n_in, io: (n_in, n_out) if io else (n_out, n_in)
        lead = (self.experts,) if self.experts > 1 else ()
        shapes = {}
        if self.fused_qkv:
            shapes["qkv"] = orient(q + 2 * kv, self.d, self.qkv_io)
        else:
            for name, width in (("q", q), ("k", kv), ("v", kv)):
                shapes[name] = orient(width, self.d, self.qkv_io)
        shapes["o"] = orient(self.d, q, self.rest_io)
        if self.experts > 1:
            shapes["router"] = orient(self.experts, self.d, self.rest_io)
        if self.gated and self.fused_gate_up:
            shapes["gate_up"] = lead + orient(2 * self.f, self.d, self.rest_io)
        else:
            if self.gated:
                shapes["gate"] = lead + orient(self.f, self.d, self.rest_io)
            shapes["up"] = lead + orient(self.f, self.d, self.rest_io)
        shapes["down"] = lead + orient(self.d, self.f, self.rest_io)
        return shapes


def make_layer(jax, form, decode):
    """layer(x, norms, weights, cos, sin[, position, keys, values]) -> outputs, keys, values."""
    jnp = jax.numpy
    bf16, f32 = jnp.bfloat16, jnp.float32

    def norm(x, gain):
        wide = x.astype(f32)
        return (wide * jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + 1e-6) ).astype(bf16) * gain

    def mul(x, w, io):
        return x @ w if io else x @ w.T

    def rotate(x, cos, sin):
        """x [b, t, heads, hd]; cos, sin broadcast to it."""
        half = x.shape[-1] // 2
        turned = jnp.concatenate([-x[..., half:], x[..., :half]], -1)
        return (x.astype(f32) * cos + turned.astype(f32) * sin).astype(bf16)

    def attend(q, keys, values, order, mask):
        """q [b, t, h, hd]; keys, values in the order of dims that `order` says; mask [t, s]."""
        b, t = q.shape[:2]
        grouped = q.reshape(b, t, form.kv, form.h // form.kv, form.hd)
        order = order.replace("t", "s")
        scores = jnp.einsum(f"bthgd,{order}->bhgts", grouped, keys, preferred_element_type=f32) * form.scale
        mix = jax.nn.softmax(jnp.where(mask, scores, -1e30), -1).astype(bf16)
        return jnp.einsum(f"bhgts,{order}->bthgd", mix, values).reshape(b, t, form.h * form.hd)

    def feed_forward(x, w):
        if form.experts > 1:
            side = "edf" if form.rest_io else "efd"
            first = lambda name: jnp.einsum(f"btd,{side}->ebtf", x, w[name])
            logits = mul(x, w["router"], form.rest_io).astype(f32)
            top, _ = jax.lax.top_k(logits, TOP_K)
            gates = jax.nn.softmax(jnp.where(logits >= top[..., -1:], logits, -1e30), -1).astype(bf16)
        else:
            first = lambda name: mul(x, w[name], form.rest_io)
        if not form.gated:
            inner = jax.nn.gelu(first("up"))
        elif form.fused_gate_up:
            both = first("gate_up")
            inner = jax.nn.silu(both[..., :form.f]) * both[..., form.f:]
        else:
            inner = jax.nn.silu(first("gate")) * first("up")
        if form.experts > 1:
            each = jnp.einsum("ebtf,efd->ebtd" if form.rest_io else "ebtf,edf->ebtd", inner, w["down"])
            return jnp.einsum("ebtd,bte->btd", each, gates)
        return mul(inner, w["down"], form.rest_io)

    def layer(x, norms, w, cos, sin, *cache):
        b, t = x.shape[:2]
        q_width, kv_width = form.h * form.hd, form.kv * form.hd
        y = norm(x, norms[0])
        if form.fused_qkv:
            q, k, v = jnp.split(mul(y, w["qkv"], form.qkv_io), [q_width, q_width + kv_width], -1)
        else:
            q, k, v = (mul(y, w[name], form.qkv_io) for name in "qkv")
        split = lambda a, heads: a.reshape(b, t, heads, form.hd)
        # One position for each sequence (decode) or for each token (prefill).
        cos, sin = (a[:, None, None, :] if decode else a[:, None, :] for a in (cos, sin))
        q, k, v = rotate(split(q, form.h), cos, sin), rotate(split(k, form.kv), cos, sin), split(v, form.kv)
        order = form.cache if decode else "bhtd"
        turn = ["bthd".index(axis) for axis in order]
        keys, values = k.transpose(turn), v.transpose(turn)
        mask = jnp.tril(jnp.ones((t, t), bool))
        if decode:
            position, old_keys, old_values = cache
            put = lambda old, new: jax.lax.dynamic_update_slice_in_dim(old, new, position, order.index("t"))
            keys, values = put(old_keys, keys), put(old_values, values)
            mask = jnp.arange(CACHED) <= position
        mixed = attend(q, keys, values, order, mask)
        x = x + mul(mixed, w["o"], form.rest_io)
        return x + feed_forward(norm(x, norms[1]), w), keys, values

    return layer


class Compiler:
    def __init__(self, generation):
        self.jax = load_jax()
        from jax.experimental import topologies
        extra = {"chip_config_name": "megacore"} if generation == "v4" else {}
        topology = topologies.get_topology_desc(platform="tpu", topology_name=TOPOLOGY[generation], **extra)
        self.generation = generation
        self.sharding = self.jax.sharding.SingleDeviceSharding(topology.devices[0])

    def array(self, shape, dtype="bfloat16"):
        jnp = self.jax.numpy
        return self.jax.ShapeDtypeStruct(shape, getattr(jnp, dtype), sharding=self.sharding)

    def compile(self, function, args, options=None, donate=()):
        jitted = self.jax.jit(function, donate_argnums=donate)
        return jitted.lower(*args).compile(compiler_options=options or {})

    def lower_layer(self, model, phase, rewrite):
        """A layer of layers.csv as JAX lowers it."""
        form = Form(model, rewrite)
        decode = phase.startswith("decode")
        n = int(phase[6:]) if decode else PREFILL
        weights = {name: self.array(shape) for name, shape in form.weights().items()}
        norms = [self.array((form.d,)) for _ in range(2)]
        args = [self.array((n, 1, form.d) if decode else (1, n, form.d)), norms, weights] + [self.array((n, form.hd), "float32") for _ in range(2)]
        if decode:
            size = {"b": n, "h": form.kv, "t": CACHED, "d": form.hd}
            cache = self.array(tuple(size[axis] for axis in form.cache))
            args += [self.array((), "int32"), cache, cache]
        donated = (6, 7) if decode else ()  # the caches are updated in place
        return self.jax.jit(make_layer(self.jax, form, decode), donate_argnums=donated).lower(*args)

    def layer(self, model, phase, rewrite, mode="default"):
        """A row of layers.csv."""
        if mode != "default":
            sys.exit("only the default layouts are compiled here")
        begin = time.time()
        compiled = self.lower_layer(model, phase, rewrite).compile(compiler_options={"xla_msa_enable": "false"})
        return self.row(compiled, model, phase, rewrite, mode, time.time() - begin)

    def row(self, compiled, model, phase, rewrite, mode, seconds):
        total, copies, copy_cycles = cycles_of(compiled.as_text())
        memory = compiled.memory_analysis()
        cost = compiled.cost_analysis()
        cost = cost[0] if isinstance(cost, list) else cost
        return {"generation": self.generation, "model": model, "phase": phase, "rewrite": rewrite, "mode": mode,
                "est_cycles": total, "copies": copies, "copy_cycles": copy_cycles,
                "arg_bytes": memory.argument_size_in_bytes, "out_bytes": memory.output_size_in_bytes,
                "temp_bytes": memory.temp_size_in_bytes, "bytes_accessed": int(cost.get("bytes accessed", 0)),
                "collectives": "", "compile_s": f"{seconds:.1f}", "kv_layout": ""}


def cycles_of(text):
    """Estimated cycles of the entry computation, how many copies it has, and their cycles."""
    entry = text[text.index("\nENTRY "):]
    total = copies = copy_cycles = 0
    for line in entry.split("\n"):
        found = re.search(r'"estimated_cycles":"?(\d+)', line)
        cycles = int(found.group(1)) if found else 0
        total += cycles
        if re.search(r" copy(-start|-done)?\(", line) or "copy_fusion" in line.split("=")[0]:
            copies += 1
            copy_cycles += cycles
    return total, copies, copy_cycles


LAYER_COLUMNS = ["generation", "model", "phase", "rewrite", "mode", "est_cycles", "copies", "copy_cycles", "arg_bytes",
                 "out_bytes", "temp_bytes", "bytes_accessed", "collectives", "compile_s", "kv_layout"]


def print_rows(columns, rows):
    writer = csv.DictWriter(sys.stdout, columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow(row)
        sys.stdout.flush()


def do_layer(generation, *words):
    compiler = Compiler(generation)
    model, phase, rewrites = words[0], words[1], words[2:]
    print_rows(LAYER_COLUMNS, (compiler.layer(model, phase, rewrite) for rewrite in rewrites))


def do_check(generation, table, *wanted):
    with open(table, newline="") as file:
        recorded = {(r["generation"], r["model"], r["phase"], r["rewrite"]): r
                    for r in csv.DictReader(file) if r["mode"] == "default"}
    compiler = Compiler(generation)
    far = 0
    print("row | recorded cycles | compiled now | copies | copy cycles | argument bytes")
    for want in wanted:
        model, phase, rewrite = want.split(":")
        old = recorded[generation, model, phase, rewrite]
        new = compiler.layer(model, phase, rewrite)
        change = 100 * (new["est_cycles"] / int(old["est_cycles"]) - 1)
        far += abs(change) > 2
        both = lambda name: f"{old.get(name, '-')} {new[name]}"
        print(f"{generation} {want} | {old['est_cycles']} | {new['est_cycles']} ({change:+.1f} %) | {both('copies')} | "
              f"{both('copy_cycles')} | {both('arg_bytes')}", flush=True)
    sys.exit(1 if far else 0)


def do_pad(generation, count, seed="7"):
    compiler = Compiler(generation)
    types = {"f32": ("float32", 32), "bf16": ("bfloat16", 16), "int8": ("int8", 8), "e4m3": ("float8_e4m3fn", 8),
             "int4": ("int4", 4)}
    extents = [1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 17, 24, 28, 31, 32, 40, 48, 60, 64, 72, 80, 96, 100, 112, 120, 127, 128,
               129, 144, 160, 192, 200, 255, 256, 257, 384, 500, 512, 576, 768, 1000, 1024, 1408, 2048, 2880, 4096, 50257]
    draw = random.Random(int(seed))

    def rows():
        made = 0
        while made < int(count):
            shape = tuple(draw.choice(extents) for _ in range(draw.choice([1, 1, 2, 2, 3, 3, 4])))
            name = draw.choice(sorted(types))
            dtype, bits = types[name]
            elements = 1
            for extent in shape:
                elements *= extent
            if elements > 2 ** 27:
                continue
            made += 1
            compiled = compiler.compile(lambda x: x, [compiler.array(shape, dtype)])
            yield {"generation": generation, "dtype": name, "shape": "x".join(map(str, shape)), "mode": "hbm",
                   "layout": "", "padded_bytes": compiled.memory_analysis().argument_size_in_bytes,
                   "logical_bytes": elements * bits // 8}

    print_rows(["generation", "dtype", "shape", "mode", "layout", "padded_bytes", "logical_bytes"], rows())


def do_product(generation, *sizes):
    compiler = Compiler(generation)

    def row(size):
        m, k, n = (int(extent) for extent in size.split("x"))
        compiled = compiler.compile(lambda x, w: x @ w, [compiler.array((m, k)), compiler.array((k, n))],
                                    {"xla_msa_enable": "false"})
        return {"generation": generation, "op": "matmul", "mode": "hbm", "shapes": f"{m}x{k} {k}x{n}", "dtype": "bf16",
                "M": m, "K": k, "N": n, "B": "", "est_cycles": cycles_of(compiled.as_text())[0],
                "arg_bytes": compiled.memory_analysis().argument_size_in_bytes}

    print_rows(["generation", "op", "mode", "shapes", "dtype", "M", "K", "N", "B", "est_cycles", "arg_bytes"],
               (row(size) for size in sizes))


def main(argv):
    verbs = {"layer": do_layer, "check": do_check, "pad": do_pad, "product": do_product}
    if len(argv) < 3 or argv[0] not in verbs or argv[1] not in TOPOLOGY:
        sys.exit(__doc__)
    verbs[argv[0]](*argv[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
