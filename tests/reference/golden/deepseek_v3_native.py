"""deepseek_v3 in JAX. Written by twinforge from the graph of the twin in whose folder this file lies.

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
    norm_eps: float = 1e-06
    latent_norm_eps: float = 1e-06
    rotary_dim: int = 4  # places of a head that turn
    rope_theta: float = 10000.0
    score_scale: float = 0.3333333333333333  # softmax(scale * q k)
    kv_lora: int = 9
    kernels: str = "auto"  # on TPUs; "off", "interpret", or compiled for "v5e", "v6e", ..
    router_groups: int = 4
    router_top_groups: int = 2
    top_k: int = 2  # experts that a token sees
    routed_scale: float = 2.5
    experts: int = 8
    vocab: int = 23  # words; places beyond them are padding
    layers: int = 3
    rope_dim: int = 4


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
    """x [batch, seq, heads, head_dim]: of the first rotary_dim places each 2i turns with 2i + 1."""
    cos, sin = (angle.astype(x.dtype) for angle in angles)
    x, rest = x[..., :CONFIG.rotary_dim], x[..., CONFIG.rotary_dim:]
    a, b = x[..., 0::2], x[..., 1::2]
    turned = jnp.stack([a * cos - b * sin, b * cos + a * sin], axis=-1).reshape(x.shape)
    return jnp.concatenate([turned, rest], axis=-1)


def rope_angles(positions, dtype):
    """Cosines and sines of each pair's turn, [batch, seq, 1, pairs]."""
    exponents = np.arange(0, CONFIG.rotary_dim, 2) / CONFIG.rotary_dim
    frequencies = CONFIG.rope_theta**-exponents
    angle = positions[:, :, None, None].astype(dtype) * jnp.asarray(frequencies, dtype)
    return jnp.cos(angle), jnp.sin(angle)


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
        return {} if jax.default_backend() == "tpu" else None
    return {"interpret": True} if CONFIG.kernels == "interpret" else {"chip": CONFIG.kernels}


def visible(at, keys):
    """[batch, 1, 1, seq, keys]: whether a token sees a place of its sequence."""
    place = jnp.arange(keys)
    age = at.positions[:, :, None] - place
    seen = age >= 0
    return seen[:, None, None]


def attend_latents(q, cache, layer, at):
    """[batch, seq, heads, kv_lora]: latents that each query sees, by the softmax of its scores."""
    options = kernel_options()
    if options is not None and q.shape[1] == 1:
        mixed = decode_attention.kernel(
            q[:, 0], cache["latent"], None, at.positions[:, 0] + 1, layer=layer,
            scale=CONFIG.score_scale, value_lanes=(0, CONFIG.kv_lora), **options)
        return mixed[:, None]
    memory = cache["latent"][layer, :, 0]  # [batch, keys, kv_lora + rope_dim]
    scores = wide_dot("bsnr,btr->bnst", q, memory)
    scores = jnp.where(visible(at, scores.shape[-1])[:, :, 0], scores * CONFIG.score_scale, -jnp.inf)
    weights = jax.nn.softmax(scores, axis=-1).astype(q.dtype)
    return dot("btr,bnst->bsnr", memory[..., :CONFIG.kv_lora].astype(q.dtype), weights)


def latent_attention(x, p, cache, layer, at):
    query = rms_norm(dot("bsd,rd->bsr", x, p["q_a"]), p["q_a_norm"], CONFIG.latent_norm_eps)
    q_nope = dot("bsr,nhr->bsnh", query, p["q_nope"])
    q_rope = dot("bsr,nhr->bsnh", query, p["q_rope"])
    latent = rms_norm(dot("bsd,rd->bsr", x, p["kv_a"]), p["kv_a_norm"], CONFIG.latent_norm_eps)
    rope_key = dot("bsd,hd->bsh", x, p["k_rope"])  # one for all heads
    q_rope = rotate(q_rope, at.angles)
    rope_key = rotate(rope_key[:, :, None], at.angles)[:, :, 0]
    memory = jnp.concatenate([latent, rope_key], axis=-1)[:, :, None]  # of one head
    cache = remember(cache, layer, at.positions, latent=memory)
    q_latent = dot("nhr,bsnh->bsnr", p["k_b"].astype(x.dtype), q_nope)  # k_b acts on the query: keys stay latents
    mixed = attend_latents(jnp.concatenate([q_latent, q_rope], axis=-1), cache, layer, at)
    mixed = dot("bsnr,nhr->bsnh", mixed, p["v_b"])
    return dot("bsnh,nhd->bsd", mixed, p["o"]), cache


def silu(x):
    wide = widen(x)
    return (jax.nn.silu(wide)).astype(x.dtype)


def gated(gate, up):
    return silu(gate) * up


def gated_mlp(x, p):
    gate = dot("bsd,df->bsf", x, p["gate"])
    up = dot("bsd,df->bsf", x, p["up"])
    return dot("bsf,fd->bsd", gated(gate, up), p["down"])


def layer_0(x, p, cache, i, at):
    """Layer 0."""
    norm_in = rms_norm(x, p["norm_in"], CONFIG.norm_eps)
    attn_out, cache = latent_attention(norm_in, p["attn"], cache, i, at)
    x = x + attn_out
    norm_mid = rms_norm(x, p["norm_mid"], CONFIG.norm_eps)
    mlp_out = gated_mlp(norm_mid, p["mlp"])
    return x + mlp_out, cache


def route(x, p):
    """[batch, seq, top_k] twice: which experts a token sees, and the weight of each."""
    scores = jax.nn.sigmoid(dot("bsd,de->bse", widen(x), p["router"]))
    choice = scores + p["router_correction"].astype(scores.dtype)
    grouped = choice.reshape(*choice.shape[:-1], CONFIG.router_groups, -1)
    best = jax.lax.top_k(grouped, min(2, grouped.shape[-1]))[0].sum(axis=-1)  # a group is as good as its best two
    kept = jax.nn.one_hot(jax.lax.top_k(best, CONFIG.router_top_groups)[1], CONFIG.router_groups).sum(axis=-2) > 0
    choice = jnp.where(kept[..., None], grouped, -jnp.inf).reshape(choice.shape)
    chosen = jax.lax.top_k(choice, CONFIG.top_k)[1]
    weights = jnp.take_along_axis(scores, chosen, axis=-1)
    weights = weights / (weights.sum(axis=-1, keepdims=True) + 1e-20)
    weights = weights * CONFIG.routed_scale
    return chosen, weights


def every_expert(x, p, chosen, weights):
    """Every expert's output times its weight, summed: what is not chosen has weight 0."""
    gate = dot("bsd,edf->bsef", x, p["gate"])
    up = dot("bsd,edf->bsef", x, p["up"])
    inner = gated(gate, up)
    places = jax.nn.one_hot(chosen, CONFIG.experts, dtype=weights.dtype)
    weights = (places * weights[..., None]).sum(axis=-2).astype(x.dtype).reshape(inner.shape[:-1])
    return dot("bsef,efd->bsd", inner * weights[..., None], p["down"])


def chosen_experts(x, p, chosen, weights, options):
    """The same of the experts that are chosen: a row for each choice, sorted by expert."""
    experts, layer = p.get("stack", (p, None))
    rows = grouped_matmul.sort_rows(chosen, CONFIG.experts, x.dtype, **options)
    product = functools.partial(grouped_matmul.aligned, alignment=rows.alignment, layer=layer, **options)
    tokens = rows.gather(x.reshape(-1, x.shape[-1]))
    gate = product(tokens, experts["gate"])
    up = product(tokens, experts["up"])
    y = product(gated(gate, up), experts["down"])
    return wide_dot("bsk,bskd->bsd", weights, y[rows.place]).astype(x.dtype)


def moe(x, p):
    chosen, weights = route(x, p)
    options = kernel_options()
    if options is None:
        y = every_expert(x, p, chosen, weights)
    else:
        y = chosen_experts(x, p, chosen, weights, options)
    shared = gated(dot("bsd,df->bsf", x, p["shared_gate"]), dot("bsd,df->bsf", x, p["shared_up"]))
    return y + dot("bsf,fd->bsd", shared, p["shared_down"])


def layer_1(x, p, cache, i, at):
    """2 of the 3 layers, the first of them layer 1."""
    norm_in = rms_norm(x, p["norm_in"], CONFIG.norm_eps)
    attn_out, cache = latent_attention(norm_in, p["attn"], cache, i, at)
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


def layer_of(stack, row):
    """The parameters of one layer; the stack too where a kernel reads it, for a layer cut out would be copied first."""
    p = jax.tree.map(lambda of: of[row], stack)
    return p | {name: p[name] | {"stack": (stack[name], row)} for name in ("moe",)}


def trunk(params, cache, tokens, positions):
    """Hidden states [batch, seq, d_model] of tokens at their positions, and the cache with them."""
    x = embed(params["embed"], tokens, positions)
    at = Step(positions, rope_angles(positions, jnp.promote_types(x.dtype, jnp.float32)))
    x, cache = layer_0(x, params["layers"][0], cache, 0, at)

    def step_1(carry, row):
        x, cache = carry
        x, cache = layer_1(x, layer_of(params["layers"][1], row), cache, row + 1, at)
        return (x, cache), None

    (x, cache), _ = jax.lax.scan(step_1, (x, cache), jnp.arange(2))
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
            "q_a": lambda i: read(f"layers.{i}.attn.q_a"),  # q_lora, d_model
            "q_a_norm": lambda i: read(f"layers.{i}.attn.q_a_norm"),  # q_lora
            "q_nope": lambda i: read(f"layers.{i}.attn.q_nope").reshape(6, 5, 7),  # heads, nope_dim, q_lora
            "q_rope": lambda i: read(f"layers.{i}.attn.q_rope").reshape(6, 4, 7),  # heads, rope_dim, q_lora
            "kv_a": lambda i: read(f"layers.{i}.attn.kv_a"),  # kv_lora, d_model
            "k_rope": lambda i: read(f"layers.{i}.attn.k_rope"),  # rope_dim, d_model
            "kv_a_norm": lambda i: read(f"layers.{i}.attn.kv_a_norm"),  # kv_lora
            "k_b": lambda i: read(f"layers.{i}.attn.k_b").reshape(6, 5, 9),  # heads, nope_dim, kv_lora
            "v_b": lambda i: read(f"layers.{i}.attn.v_b").reshape(6, 6, 9),  # heads, v_head_dim, kv_lora
            "o": lambda i: read(f"layers.{i}.attn.o").reshape(6, 6, 12),  # heads, v_head_dim, d_model
        },
        "norm_mid": lambda i: read(f"layers.{i}.norm_mid"),  # d_model
        "mlp": {
            "gate": lambda i: read(f"layers.{i}.mlp.gate_up")[:, 0:14],  # d_model, d_ff
            "up": lambda i: read(f"layers.{i}.mlp.gate_up")[:, 14:28],  # d_model, d_ff
            "down": lambda i: read(f"layers.{i}.mlp.down"),  # d_ff, d_model
        },
    }


def layer_1_stored(read):
    """How each parameter of layer i is read."""
    return {
        "norm_in": lambda i: read(f"layers.{i}.norm_in"),  # d_model
        "attn": {
            "q_a": lambda i: read(f"layers.{i}.attn.q_a"),  # q_lora, d_model
            "q_a_norm": lambda i: read(f"layers.{i}.attn.q_a_norm"),  # q_lora
            "q_nope": lambda i: read(f"layers.{i}.attn.q_nope").reshape(6, 5, 7),  # heads, nope_dim, q_lora
            "q_rope": lambda i: read(f"layers.{i}.attn.q_rope").reshape(6, 4, 7),  # heads, rope_dim, q_lora
            "kv_a": lambda i: read(f"layers.{i}.attn.kv_a"),  # kv_lora, d_model
            "k_rope": lambda i: read(f"layers.{i}.attn.k_rope"),  # rope_dim, d_model
            "kv_a_norm": lambda i: read(f"layers.{i}.attn.kv_a_norm"),  # kv_lora
            "k_b": lambda i: read(f"layers.{i}.attn.k_b").reshape(6, 5, 9),  # heads, nope_dim, kv_lora
            "v_b": lambda i: read(f"layers.{i}.attn.v_b").reshape(6, 6, 9),  # heads, v_head_dim, kv_lora
            "o": lambda i: read(f"layers.{i}.attn.o").reshape(6, 6, 12),  # heads, v_head_dim, d_model
        },
        "norm_mid": lambda i: read(f"layers.{i}.norm_mid"),  # d_model
        "moe": {
            "router": lambda i: read(f"layers.{i}.moe.router"),  # d_model, expert
            "router_correction": lambda i: read(f"layers.{i}.moe.router_correction"),  # expert
            "gate": lambda i: read(f"layers.{i}.moe.gate_up")[:, :, 0:5],  # expert, d_model, d_ff
            "up": lambda i: read(f"layers.{i}.moe.gate_up")[:, :, 5:10],  # expert, d_model, d_ff
            "down": lambda i: read(f"layers.{i}.moe.down"),  # expert, d_ff, d_model
            "shared_gate": lambda i: read(f"layers.{i}.moe.shared_gate_up")[:, 0:10],  # d_model, shared_ff
            "shared_up": lambda i: read(f"layers.{i}.moe.shared_gate_up")[:, 10:20],  # d_model, shared_ff
            "shared_down": lambda i: read(f"layers.{i}.moe.shared_down"),  # shared_ff, d_model
        },
    }


def stored(read):
    """How each parameter is read; layers of one loop are stacked, [layer, ..]."""
    return {
        "embed": lambda: read("embed"),  # vocab (23 and padding), d_model
        "layers": [
            alone(layer_0_stored(read), 0),
            stacked(layer_1_stored(read), range(1, 3)),
        ],
        "norm": lambda: read("norm"),  # d_model
        "lm_head": lambda: read("lm_head"),  # d_model, vocab (23 and padding)
    }


def load(directory=DIRECTORY, dtype=None):
    """The parameters of the twin in `directory`, as they are stored or in `dtype`, read one after another."""

    def place(read):
        return jnp.asarray(read(), dtype=None if dtype is None else jnp.dtype(dtype))

    return jax.tree.map(place, stored(Reader(directory)))


def init_cache(batch, length, dtype):
    """Room for what layers remember of `length` tokens of each sequence."""
    shape = (CONFIG.layers, batch, 1, length, CONFIG.kv_lora + CONFIG.rope_dim)
    return {"latent": jnp.zeros(shape, dtype)}


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
