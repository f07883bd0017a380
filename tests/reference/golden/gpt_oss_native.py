"""gpt_oss in JAX. Written by twinforge from the graph of the twin in whose folder this file lies.

    python reference/model.py --prompt-ids 1,2,3 --steps 16

    params = load()                                  # or load(directory, dtype=jnp.float32)
    logits(params, input_ids)                        # [batch, seq, vocab]
    generate(params, input_ids, steps=16)            # [batch, steps]

Sequences of several lengths are padded behind; what stands there changes no token before it.
"""
import argparse
import functools
import importlib
import importlib.util
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P

DIRECTORY = Path(__file__).resolve().parent.parent


def kernel_module(name):
    """A module of kernels/ beside this file, whoever imports this one. No bytecode is left there."""
    folder = Path(__file__).resolve().with_name("kernels")
    package = f"kernels_{hash(folder):x}"
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        if package not in sys.modules:
            spec = importlib.util.spec_from_file_location(package, folder / "__init__.py")
            sys.modules[package] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(sys.modules[package])
        return importlib.import_module(f"{package}.{name}")
    finally:
        sys.dont_write_bytecode = writes


decode_attention = kernel_module("decode_attention")
grouped_matmul = kernel_module("grouped_matmul")


@dataclass(frozen=True)
class Config:
    norm_eps: float = 1e-05
    rotary_dim: int = 10  # places of a head that turn
    rope_theta: float = 150000.0
    rope_beta_fast: float = 32.0
    rope_beta_slow: float = 1.0
    rope_trained_length: int = 4096
    rope_factor: float = 32.0
    rope_magnitude: float = 1.3465735902799727  # cosines and sines are multiplied by it
    score_scale: float = 0.31622776601683794  # softmax(scale * q k)
    kernels: str = "auto"  # on TPUs; "off", "interpret", or compiled for "v5e", "v6e", ..
    window: int = 8  # keys that a windowed layer sees
    top_k: int = 2  # experts that a token sees
    clamp_limit: float = 7.0  # of gate from above, of up both ways
    clamp_alpha: float = 1.702
    up_offset: float = 1.0
    experts: int = 4
    vocab: int = 23  # words; places beyond them are padding
    layers: int = 3
    kv_heads: int = 2
    head_dim: int = 10


CONFIG = Config()


def widen(x):
    """x in float32, or in float64 if it is that."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def rms_norm(x, scale, eps):
    """x / sqrt(mean of its squares + eps) along the last axis, in float32; times scale."""
    wide = widen(x)
    mean = jnp.mean(wide * wide, axis=-1, keepdims=True)
    return (wide * jax.lax.rsqrt(mean + eps)).astype(x.dtype) * scale.astype(x.dtype)


def wide_dot(spec, x, y):
    """einsum in the dtype of x, its sums in float32 and left so."""
    wide = jnp.promote_types(x.dtype, jnp.float32)  # "highest": no float32 is cut to bfloat16 on the way
    return jnp.einsum(spec, x, y.astype(x.dtype), precision="highest", preferred_element_type=wide)


def dot(spec, x, kernel, bias=None):
    """einsum, rounded to the dtype of x, plus a bias over the last axes."""
    y = wide_dot(spec, x, kernel).astype(x.dtype)
    return y if bias is None else y + bias.astype(x.dtype)


def rotate(x, angles):
    """x [batch, seq, heads, head_dim]: of the first rotary_dim places each i turns with i + rotary_dim / 2."""
    cos, sin = (angle.astype(x.dtype) for angle in angles)
    x, rest = x[..., :CONFIG.rotary_dim], x[..., CONFIG.rotary_dim:]
    a, b = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin, rest], axis=-1)


def rope_angles(positions, dtype):
    """Cosines and sines of each pair's turn, [batch, seq, 1, pairs]."""
    exponents = np.arange(0, CONFIG.rotary_dim, 2) / CONFIG.rotary_dim
    frequencies = CONFIG.rope_theta**-exponents
    turns = np.array([CONFIG.rope_beta_fast, CONFIG.rope_beta_slow])  # pairs that turn so often are blended
    pairs = np.log(CONFIG.rope_trained_length / (turns * 2 * np.pi)) / np.log(CONFIG.rope_theta)
    low, high = pairs * CONFIG.rotary_dim / 2
    low, high = max(low, 0), min(high, CONFIG.rotary_dim - 1)
    high = high + 0.001 if low == high else high
    stretch = np.clip((np.arange(CONFIG.rotary_dim // 2) - low) / (high - low), 0, 1)
    frequencies = frequencies * (1 - stretch) + frequencies / CONFIG.rope_factor * stretch
    angle = positions[:, :, None, None].astype(dtype) * jnp.asarray(frequencies, dtype)
    return jnp.cos(angle) * CONFIG.rope_magnitude, jnp.sin(angle) * CONFIG.rope_magnitude


def remember(cache, layer, positions, **fresh):
    """The cache [layers, batch, heads, keys, ..] with `fresh` [batch, seq, heads, ..] from each sequence's position on.

    Sequence by sequence: a scatter would have XLA lay the whole cache anew, another way round.
    """
    cache = dict(cache)
    for name, value in fresh.items():
        value = value.swapaxes(1, 2).astype(cache[name].dtype)
        for row, own in enumerate(value):
            place = (layer, row, 0, positions[row, 0], 0)
            cache[name] = jax.lax.dynamic_update_slice(cache[name], own[None, None], place)
    return cache


def kernel_options():
    """What kernels are called with, or None where plain JAX takes their place."""
    if CONFIG.kernels == "off":
        return None
    if CONFIG.kernels == "auto":
        return {} if jax.default_backend() == "tpu" and jax.device_count() == 1 else None
    return {"interpret": True} if CONFIG.kernels == "interpret" else {"chip": CONFIG.kernels}


def visible(at, keys, window=None):
    """[batch, 1, 1, seq, keys]: whether a token sees a place of its sequence."""
    place = jnp.arange(keys)
    age = at.positions[:, :, None] - place
    seen = age >= 0
    if window is not None:
        seen &= age < window
    return seen[:, None, None]


def attend(q, cache, layer, at, sinks, window=None):
    """[batch, seq, heads, head_dim]: values that each query sees, by the softmax of its scores."""
    options = kernel_options()
    if options is not None and q.shape[1] == 1:
        mixed = decode_attention.kernel(
            q[:, 0], cache["k"], cache["v"], at.positions[:, 0] + 1, layer=layer,
            scale=CONFIG.score_scale, window=window or 0, sinks=sinks, **options)
        return mixed[:, None]
    k, v = cache["k"][layer], cache["v"][layer]  # [batch, kv_heads, keys, head_dim]
    groups = q.reshape(*q.shape[:2], k.shape[1], -1, q.shape[3])  # heads that share a key
    scores = wide_dot("bsngh,bnth->bngst", groups, k) * CONFIG.score_scale
    scores = jnp.where(visible(at, scores.shape[-1], window), scores, -jnp.inf)
    sinks = widen(sinks).reshape(1, scores.shape[1], -1, 1, 1)
    sinks = jnp.broadcast_to(sinks, (*scores.shape[:-1], 1))  # a logit more, whose share is lost
    weights = jax.nn.softmax(jnp.concatenate([scores, sinks], axis=-1), axis=-1)[..., :-1].astype(q.dtype)
    mixed = dot("bnth,bngst->bsngh", v.astype(q.dtype), weights)
    return mixed.reshape(*q.shape[:3], v.shape[3])


def attention(x, p, cache, layer, at, window=None):
    q = dot("bsd,nhd->bsnh", x, p["q"], p["q_bias"])
    k = dot("bsd,nhd->bsnh", x, p["k"], p["k_bias"])
    v = dot("bsd,nhd->bsnh", x, p["v"], p["v_bias"])
    q, k = rotate(q, at.angles), rotate(k, at.angles)
    cache = remember(cache, layer, at.positions, k=k, v=v)
    mixed = attend(q, cache, layer, at, p["sinks"], window=window)
    return dot("bsnh,nhd->bsd", mixed, p["o"], p["o_bias"]), cache


def route(x, p):
    """[batch, seq, top_k] twice: which experts a token sees, and the weight of each."""
    scores = widen(dot("bsd,de->bse", x, p["router"], p["router_bias"]))
    chosen = jax.lax.top_k(scores, CONFIG.top_k)[1]
    weights = jnp.take_along_axis(scores, chosen, axis=-1)
    weights = jax.nn.softmax(weights, axis=-1)
    return chosen, weights


def gated(gate, up):
    gate = jnp.minimum(gate, CONFIG.clamp_limit)
    up = jnp.clip(up, -CONFIG.clamp_limit, CONFIG.clamp_limit)
    return (up + CONFIG.up_offset) * gate * jax.nn.sigmoid(CONFIG.clamp_alpha * gate)


def every_expert(x, p, chosen, weights):
    """Every expert's output times its weight, summed: what is not chosen has weight 0."""
    gate = dot("bsd,edf->bsef", x, p["gate"], p["gate_bias"])
    up = dot("bsd,edf->bsef", x, p["up"], p["up_bias"])
    inner = gated(gate, up)
    places = jax.nn.one_hot(chosen, CONFIG.experts, dtype=weights.dtype)
    weights = (places * weights[..., None]).sum(axis=-2).astype(x.dtype).reshape(inner.shape[:-1])
    y = dot("bsef,efd->bsd", inner * weights[..., None], p["down"])
    return y + dot("bse,ed->bsd", weights, p["down_bias"])


def chosen_experts(x, p, chosen, weights, options):
    """The same of the experts that are chosen: a row for each choice, sorted by expert."""
    experts, layer = p.get("stack", (p, None))
    rows = grouped_matmul.sort_rows(chosen, CONFIG.experts, x.dtype, **options)
    product = functools.partial(grouped_matmul.aligned, alignment=rows.alignment, layer=layer, **options)
    tokens = rows.gather(x.reshape(-1, x.shape[-1]))
    gate = product(tokens, experts["gate"]) + p["gate_bias"][rows.expert].astype(x.dtype)
    up = product(tokens, experts["up"]) + p["up_bias"][rows.expert].astype(x.dtype)
    y = product(gated(gate, up), experts["down"]) + p["down_bias"][rows.expert].astype(x.dtype)
    return wide_dot("bsk,bskd->bsd", weights, y[rows.place]).astype(x.dtype)


def moe(x, p):
    chosen, weights = route(x, p)
    options = kernel_options()
    if options is None:
        y = every_expert(x, p, chosen, weights)
    else:
        y = chosen_experts(x, p, chosen, weights, options)
    return y


def layer_0(x, p, cache, i, at):
    """2 of the 3 layers, the first of them layer 0."""
    norm_in = rms_norm(x, p["norm_in"], CONFIG.norm_eps)
    attn_out, cache = attention(norm_in, p["attn"], cache, i, at, window=CONFIG.window)
    x = x + attn_out
    norm_mid = rms_norm(x, p["norm_mid"], CONFIG.norm_eps)
    moe_out = moe(norm_mid, p["moe"])
    return x + moe_out, cache


def layer_1(x, p, cache, i, at):
    """Layer 1."""
    norm_in = rms_norm(x, p["norm_in"], CONFIG.norm_eps)
    attn_out, cache = attention(norm_in, p["attn"], cache, i, at)
    x = x + attn_out
    norm_mid = rms_norm(x, p["norm_mid"], CONFIG.norm_eps)
    moe_out = moe(norm_mid, p["moe"])
    return x + moe_out, cache


def embed(p, tokens, positions):
    return p[tokens]


class Step(NamedTuple):
    """What all layers share in one call."""

    positions: jax.Array  # of the tokens in their sequences, [batch, seq]
    angles: tuple[jax.Array, jax.Array]  # of the rotary embedding


def trunk(params, cache, tokens, positions):
    """Hidden states [batch, seq, d_model] of tokens at their positions, and the cache with them."""
    x = embed(params["embed"], tokens, positions)
    at = Step(positions, rope_angles(positions, jnp.promote_types(x.dtype, jnp.float32)))
    x, cache = layer_0(x, params["layers"][0], cache, 0, at)
    x, cache = layer_1(x, params["layers"][1], cache, 1, at)
    x, cache = layer_0(x, params["layers"][2], cache, 2, at)
    return x, cache


def lm_head(x, p):
    return dot("bsd,dv->bsv", x, p)[..., :CONFIG.vocab]  # a padded place has no logit


def head(params, x):
    """From hidden states to what the model says of each token."""
    x = rms_norm(x, params["norm"], CONFIG.norm_eps)
    return lm_head(x, params["lm_head"])


FILE_DTYPES = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
    "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
}


class Reader:
    """Stored tensors by name. The safetensors files are mapped into memory: what is not used is never read."""

    def __init__(self, directory):
        self.tensors = {}
        for path in sorted(Path(directory).glob("model*.safetensors")):
            with open(path, "rb") as file:
                size = int.from_bytes(file.read(8), "little")
                header = json.loads(file.read(size))
            header.pop("__metadata__", None)
            data = np.memmap(path, np.uint8, "r", 8 + size)
            self.tensors |= {name: (data, entry) for name, entry in header.items()}

    def __call__(self, name):
        data, entry = self.tensors[name]
        begin, end = entry["data_offsets"]
        return data[begin:end].view(FILE_DTYPES[entry["dtype"]]).reshape(entry["shape"])


def stacked(tree, layers):
    return jax.tree.map(lambda read: lambda: np.stack([read(i) for i in layers]), tree)


def alone(tree, layer):
    return jax.tree.map(lambda read: lambda: read(layer), tree)


def layer_0_stored(read):
    """How each parameter of layer i is read."""
    return {
        "norm_in": lambda i: read(f"layers.{i}.norm_in"),  # d_model
        "attn": {
            # heads, head_dim, d_model
            "q": lambda i: np.take(read(f"layers.{i}.attn.qkv"), np.r_[0:30, 50:80], axis=0).reshape(6, 10, 12),
            # kv_heads, head_dim, d_model
            "k": lambda i: np.take(read(f"layers.{i}.attn.qkv"), np.r_[30:40, 80:90], axis=0).reshape(2, 10, 12),
            # kv_heads, head_dim, d_model
            "v": lambda i: np.take(read(f"layers.{i}.attn.qkv"), np.r_[40:50, 90:100], axis=0).reshape(2, 10, 12),
            "o": lambda i: read(f"layers.{i}.attn.o").reshape(6, 10, 12),  # heads, head_dim, d_model
            # heads, head_dim
            "q_bias": lambda i: np.take(read(f"layers.{i}.attn.qkv_bias"), np.r_[0:30, 50:80], axis=0).reshape(6, 10),
            # kv_heads, head_dim
            "k_bias": lambda i: np.take(read(f"layers.{i}.attn.qkv_bias"), np.r_[30:40, 80:90], axis=0).reshape(2, 10),
            # kv_heads, head_dim
            "v_bias": lambda i: np.take(read(f"layers.{i}.attn.qkv_bias"), np.r_[40:50, 90:100], axis=0).reshape(2, 10),
            "o_bias": lambda i: read(f"layers.{i}.attn.o_bias"),  # d_model
            "sinks": lambda i: read(f"layers.{i}.attn.sinks"),  # heads
        },
        "norm_mid": lambda i: read(f"layers.{i}.norm_mid"),  # d_model
        "moe": {
            "router": lambda i: read(f"layers.{i}.moe.router"),  # d_model, expert
            "router_bias": lambda i: read(f"layers.{i}.moe.router_bias"),  # expert
            # expert, d_model, d_ff
            "gate": lambda i: np.take(read(f"layers.{i}.moe.gate_up"), np.r_[0:7, 14:21], axis=2),
            # expert, d_model, d_ff
            "up": lambda i: np.take(read(f"layers.{i}.moe.gate_up"), np.r_[7:14, 21:28], axis=2),
            "down": lambda i: read(f"layers.{i}.moe.down"),  # expert, d_ff, d_model
            # expert, d_ff
            "gate_bias": lambda i: np.take(read(f"layers.{i}.moe.gate_up_bias"), np.r_[0:7, 14:21], axis=1),
            # expert, d_ff
            "up_bias": lambda i: np.take(read(f"layers.{i}.moe.gate_up_bias"), np.r_[7:14, 21:28], axis=1),
            "down_bias": lambda i: read(f"layers.{i}.moe.down_bias"),  # expert, d_model
        },
    }


def stored(read):
    """How each parameter is read; layers of one loop are stacked, [layer, ..]."""
    return {
        "embed": lambda: read("embed"),  # vocab (23 and padding), d_model
        "layers": [
            alone(layer_0_stored(read), 0),
            alone(layer_0_stored(read), 1),
            alone(layer_0_stored(read), 2),
        ],
        "norm": lambda: read("norm"),  # d_model
        "lm_head": lambda: read("lm_head"),  # d_model, vocab (23 and padding)
    }


def partitions():
    """Which axis of each parameter devices split."""
    return {
        "embed": P("model"),
        "layers": [
            {
                "norm_in": P(),
                "attn": {
                    "q": P("model"),
                    "k": P("model"),
                    "v": P("model"),
                    "o": P("model"),
                    "q_bias": P("model"),
                    "k_bias": P("model"),
                    "v_bias": P("model"),
                    "o_bias": P(),
                    "sinks": P("model"),
                },
                "norm_mid": P(),
                "moe": {
                    "router": P(),
                    "router_bias": P(),
                    "gate": P(None, None, "model"),
                    "up": P(None, None, "model"),
                    "down": P(None, "model"),
                    "gate_bias": P(None, "model"),
                    "up_bias": P(None, "model"),
                    "down_bias": P(),
                },
            },
            {
                "norm_in": P(),
                "attn": {
                    "q": P("model"),
                    "k": P("model"),
                    "v": P("model"),
                    "o": P("model"),
                    "q_bias": P("model"),
                    "k_bias": P("model"),
                    "v_bias": P("model"),
                    "o_bias": P(),
                    "sinks": P("model"),
                },
                "norm_mid": P(),
                "moe": {
                    "router": P(),
                    "router_bias": P(),
                    "gate": P(None, None, "model"),
                    "up": P(None, None, "model"),
                    "down": P(None, "model"),
                    "gate_bias": P(None, "model"),
                    "up_bias": P(None, "model"),
                    "down_bias": P(),
                },
            },
            {
                "norm_in": P(),
                "attn": {
                    "q": P("model"),
                    "k": P("model"),
                    "v": P("model"),
                    "o": P("model"),
                    "q_bias": P("model"),
                    "k_bias": P("model"),
                    "v_bias": P("model"),
                    "o_bias": P(),
                    "sinks": P("model"),
                },
                "norm_mid": P(),
                "moe": {
                    "router": P(),
                    "router_bias": P(),
                    "gate": P(None, None, "model"),
                    "up": P(None, None, "model"),
                    "down": P(None, "model"),
                    "gate_bias": P(None, "model"),
                    "up_bias": P(None, "model"),
                    "down_bias": P(),
                },
            },
        ],
        "norm": P(),
        "lm_head": P(None, "model"),
    }


def load(directory=DIRECTORY, dtype=None, mesh=None):
    """The parameters of the twin in `directory`, as they are stored or in `dtype`, read one after another.

    With a mesh, devices along its axis "model" hold the parts that partitions() says, and XLA derives the rest.
    """

    def place(read, partition):
        value = read()
        value = value if dtype is None else value.astype(jnp.dtype(dtype))
        return jnp.asarray(value) if mesh is None else jax.device_put(value, NamedSharding(mesh, partition))

    return jax.tree.map(place, stored(Reader(directory)), partitions())


def init_cache(batch, length, dtype):
    """Room for what layers remember of `length` tokens of each sequence."""
    shape = (CONFIG.layers, batch, CONFIG.kv_heads, length, CONFIG.head_dim)
    return {"k": jnp.zeros(shape, dtype), "v": jnp.zeros(shape, dtype)}


@functools.partial(jax.jit, donate_argnames="cache")
def prefill(params, cache, input_ids, lengths):
    """Logits [batch, vocab] after the last token of each prompt, and the cache filled.

    Prompts [batch, seq] have `lengths` tokens each and stand at the beginning of their rows.
    """
    positions = jnp.broadcast_to(jnp.arange(input_ids.shape[1]), input_ids.shape)
    x, cache = trunk(params, cache, input_ids, positions)
    last = jnp.take_along_axis(x, lengths[:, None, None] - 1, axis=1)
    return head(params, last)[:, 0], cache


@functools.partial(jax.jit, donate_argnames="cache")
def decode_step(params, cache, tokens, positions):
    """Logits [batch, vocab] after one more token of each sequence, at its position, and the cache with it."""
    x, cache = trunk(params, cache, tokens[:, None], positions[:, None])
    return head(params, x)[:, 0], cache


def checked(input_ids, further=0):
    """Tokens [batch, seq], each a word that has a place, and so have as many `further` ones.

    XLA would read some other row for one that is not there. Within a jit, where no value is known, nothing is checked.
    """
    if not isinstance(input_ids, jax.core.Tracer):
        input_ids = np.asarray(input_ids)
        if input_ids.size and not 0 <= input_ids.min() <= input_ids.max() < CONFIG.vocab:
            span = f"{input_ids.min()} to {input_ids.max()}"
            raise ValueError(f"tokens from {span}, and the model has {CONFIG.vocab} words")
    return jnp.asarray(input_ids, jnp.int32)


@jax.jit
def all_logits(params, input_ids):
    """What logits() gives, of tokens that were checked."""
    cache = init_cache(*input_ids.shape, params["embed"].dtype)
    positions = jnp.broadcast_to(jnp.arange(input_ids.shape[1]), input_ids.shape)
    x, _ = trunk(params, cache, input_ids, positions)
    return head(params, x)


def logits(params, input_ids):
    """Logits [batch, seq, vocab] after each token of input_ids [batch, seq]."""
    return all_logits(params, checked(input_ids))


def generate(params, input_ids, steps, lengths=None, temperature=0.0, key=None):
    """`steps` tokens after each prompt, [batch, steps]: the likeliest, or drawn with `key` where temperature > 0."""
    input_ids = checked(input_ids, steps)
    batch, seq = input_ids.shape
    length = seq + steps
    lengths = jnp.full(batch, seq, jnp.int32) if lengths is None else jnp.asarray(lengths, jnp.int32)
    keys = jax.random.split(jax.random.key(0) if key is None else key, steps)
    said = [input_ids[:, :0]]
    row, cache = prefill(params, init_cache(batch, length, params["embed"].dtype), input_ids, lengths)
    for step in range(steps):
        drawn = jnp.argmax(row, axis=-1) if temperature == 0 else jax.random.categorical(keys[step], row / temperature)
        said.append(drawn[:, None].astype(jnp.int32))
        if step + 1 < steps:
            row, cache = decode_step(params, cache, said[-1][:, 0], lengths + step)
    return jnp.concatenate(said, axis=1)


def use_kernels(how):
    """From now on: "auto", "off", "interpret", or the TPU generation to compile for, "v5e" say."""
    global CONFIG
    CONFIG = replace(CONFIG, kernels=how)
    for compiled in (prefill, decode_step, all_logits):
        compiled.clear_cache()


def tokenizer(directory):
    """The twin's own tokenizer, where the file lies there and the package that reads it is installed."""
    path = Path(directory) / "tokenizer.json"
    try:
        from tokenizers import Tokenizer
    except ImportError:
        return None
    return Tokenizer.from_file(str(path)) if path.exists() else None


def main():
    parser = argparse.ArgumentParser(description="says what the model goes on with")
    parser.add_argument("--prompt", help="text, where the twin has a tokenizer")
    parser.add_argument("--prompt-ids", default="1", help="tokens, by commas")
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", help="float32, bfloat16; as stored where it is left out")
    parser.add_argument("--kernels", default="auto", choices=("auto", "off", "interpret"))
    flags = parser.parse_args()
    use_kernels(flags.kernels)
    words = tokenizer(DIRECTORY)
    if flags.prompt is not None and words is None:
        parser.error("--prompt needs tokenizer.json in the twin's folder and the package tokenizers; or --prompt-ids")
    prompt = words.encode(flags.prompt).ids if flags.prompt else [int(word) for word in flags.prompt_ids.split(",")]
    params = load(DIRECTORY, dtype=flags.dtype)
    key = jax.random.key(flags.seed)
    said = generate(params, [prompt], flags.steps, temperature=flags.temperature, key=key)[0].tolist()
    print("tokens:", *said)
    if words is not None:
        print("text:", words.decode(prompt + said))


if __name__ == "__main__":
    main()
