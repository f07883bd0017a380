"""bert in JAX. Written by twinforge from the graph of the twin in whose folder this file lies.

    python reference/model.py --prompt-ids 1,2,3

    params = load()                                  # or load(directory, dtype=jnp.float32)
    logits(params, input_ids)                        # [batch, seq, vocab]
    logits(params, input_ids, lengths)               # of sequences that are padded behind

Every token sees the whole sequence, so there is nothing to generate.
"""
import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

DIRECTORY = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Config:
    score_scale: float = 0.7071067811865476  # softmax(scale * q k)
    norm_eps: float = 1e-12
    vocab: int = 23  # words; places beyond them are padding
    positions: int = 32  # the longest sequence that has a place


CONFIG = Config()


def wide_dot(spec, x, y):
    """einsum in the dtype of x, its sums in float32 and left so."""
    wide = jnp.promote_types(x.dtype, jnp.float32)  # "highest": no float32 is cut to bfloat16 on the way
    return jnp.einsum(spec, x, y.astype(x.dtype), precision="highest", preferred_element_type=wide)


def dot(spec, x, kernel, bias=None):
    """einsum, rounded to the dtype of x, plus a bias over the last axes."""
    y = wide_dot(spec, x, kernel).astype(x.dtype)
    return y if bias is None else y + bias.astype(x.dtype)


def visible(at, keys):
    """[batch, 1, 1, seq, keys]: whether a token sees a place of its sequence."""
    place = jnp.arange(keys)
    seen = jnp.broadcast_to(place < at.lengths[:, None, None], (*at.positions.shape, keys))
    return seen[:, None, None]


def attend(q, k, v, at):
    """[batch, seq, heads, head_dim]: values that each query sees, by the softmax of its scores."""
    k, v = k.swapaxes(1, 2), v.swapaxes(1, 2)  # [batch, kv_heads, keys, head_dim]
    groups = q.reshape(*q.shape[:2], k.shape[1], -1, q.shape[3])  # heads that share a key
    scores = wide_dot("bsngh,bnth->bngst", groups, k) * CONFIG.score_scale
    scores = jnp.where(visible(at, scores.shape[-1]), scores, -jnp.inf)
    weights = jax.nn.softmax(scores, axis=-1).astype(q.dtype)
    mixed = dot("bnth,bngst->bsngh", v.astype(q.dtype), weights)
    return mixed.reshape(*q.shape[:3], v.shape[3])


def attention(x, p, at):
    q = dot("bsd,nhd->bsnh", x, p["q"], p["q_bias"])
    k = dot("bsd,nhd->bsnh", x, p["k"], p["k_bias"])
    v = dot("bsd,nhd->bsnh", x, p["v"], p["v_bias"])
    mixed = attend(q, k, v, at)
    return dot("bsnh,dnh->bsd", mixed, p["o"], p["o_bias"])


def widen(x):
    """x in float32, or in float64 if it is that."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def layer_norm(x, scale, bias, eps):
    """(x - mean) / sqrt(variance + eps) * scale + bias, in float32."""
    wide = widen(x)
    centred = wide - jnp.mean(wide, axis=-1, keepdims=True)
    variance = jnp.mean(centred * centred, axis=-1, keepdims=True)
    y = centred * jax.lax.rsqrt(variance + eps) * widen(scale) + widen(bias)
    return y.astype(x.dtype)


def gelu(x):
    wide = widen(x)
    return (jax.nn.gelu(wide, approximate=False)).astype(x.dtype)


def mlp(x, p):
    up = dot("bsd,fd->bsf", x, p["up"], p["up_bias"])
    return dot("bsf,df->bsd", gelu(up), p["down"], p["down_bias"])


def layer(x, p, at):
    """Each of the 3 layers."""
    attn_out = attention(x, p["attn"], at)
    x = x + attn_out
    x = layer_norm(x, p["norm_attn"]["scale"], p["norm_attn"]["bias"], CONFIG.norm_eps)
    mlp_out = mlp(x, p["mlp"])
    x = x + mlp_out
    return layer_norm(x, p["norm_mlp"]["scale"], p["norm_mlp"]["bias"], CONFIG.norm_eps)


def embed(p, tokens, positions):
    x = p["table"][tokens]
    x = x + p["type_table"][0].astype(x.dtype)  # every token is of type 0
    x = x + p["position_table"][positions].astype(x.dtype)
    return x


class Step(NamedTuple):
    """What all layers share in one call."""

    positions: jax.Array  # of the tokens in their sequences, [batch, seq]
    lengths: jax.Array  # of the sequences, [batch]


def trunk(params, tokens, lengths):
    """Hidden states [batch, seq, d_model] of sequences that are padded behind."""
    positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
    x = embed(params["embed"], tokens, positions)
    x = layer_norm(x, params["embed_norm"]["scale"], params["embed_norm"]["bias"], CONFIG.norm_eps)
    at = Step(positions, lengths)

    def step_0(carry, inputs):
        x, p = carry, inputs
        x = layer(x, p, at)
        return x, None

    x, _ = jax.lax.scan(step_0, x, params["layers"][0])
    return x


def linear(x, p):
    return dot("bsd,ad->bsa", x, p["kernel"], p["bias"])


def lm_head(x, p):
    return dot("bsd,vd->bsv", x, p["head"], p["bias"])


def head(params, x):
    """From hidden states to what the model says of each token."""
    x = linear(x, params["head_dense"])
    x = gelu(x)
    x = layer_norm(x, params["head_norm"]["scale"], params["head_norm"]["bias"], CONFIG.norm_eps)
    return lm_head(x, params["lm_head"] | {"head": params["embed"]["table"]})


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


def layer_stored(read):
    """How each parameter of layer i is read."""
    return {
        "attn": {
            # heads, head_dim, d_model
            "q": lambda i: read(f"bert.encoder.layer.{i}.attention.self.query.weight").reshape(6, 2, 12),
            # kv_heads, head_dim, d_model
            "k": lambda i: read(f"bert.encoder.layer.{i}.attention.self.key.weight").reshape(6, 2, 12),
            # kv_heads, head_dim, d_model
            "v": lambda i: read(f"bert.encoder.layer.{i}.attention.self.value.weight").reshape(6, 2, 12),
            # d_model, heads, head_dim
            "o": lambda i: read(f"bert.encoder.layer.{i}.attention.output.dense.weight").reshape(12, 6, 2),
            # heads, head_dim
            "q_bias": lambda i: read(f"bert.encoder.layer.{i}.attention.self.query.bias").reshape(6, 2),
            # kv_heads, head_dim
            "k_bias": lambda i: read(f"bert.encoder.layer.{i}.attention.self.key.bias").reshape(6, 2),
            # kv_heads, head_dim
            "v_bias": lambda i: read(f"bert.encoder.layer.{i}.attention.self.value.bias").reshape(6, 2),
            "o_bias": lambda i: read(f"bert.encoder.layer.{i}.attention.output.dense.bias"),  # d_model
        },
        "norm_attn": {
            "scale": lambda i: read(f"bert.encoder.layer.{i}.attention.output.LayerNorm.weight"),  # d_model
            "bias": lambda i: read(f"bert.encoder.layer.{i}.attention.output.LayerNorm.bias"),  # d_model
        },
        "mlp": {
            "up": lambda i: read(f"bert.encoder.layer.{i}.intermediate.dense.weight"),  # d_ff, d_model
            "down": lambda i: read(f"bert.encoder.layer.{i}.output.dense.weight"),  # d_model, d_ff
            "up_bias": lambda i: read(f"bert.encoder.layer.{i}.intermediate.dense.bias"),  # d_ff
            "down_bias": lambda i: read(f"bert.encoder.layer.{i}.output.dense.bias"),  # d_model
        },
        "norm_mlp": {
            "scale": lambda i: read(f"bert.encoder.layer.{i}.output.LayerNorm.weight"),  # d_model
            "bias": lambda i: read(f"bert.encoder.layer.{i}.output.LayerNorm.bias"),  # d_model
        },
    }


def stored(read):
    """How each parameter is read; layers of one loop are stacked, [layer, ..]."""
    return {
        "embed": {
            "table": lambda: read("bert.embeddings.word_embeddings.weight"),  # vocab, d_model
            "position_table": lambda: read("bert.embeddings.position_embeddings.weight"),  # positions, d_model
            "type_table": lambda: read("bert.embeddings.token_type_embeddings.weight"),  # types, d_model
        },
        "embed_norm": {
            "scale": lambda: read("bert.embeddings.LayerNorm.weight"),  # d_model
            "bias": lambda: read("bert.embeddings.LayerNorm.bias"),  # d_model
        },
        "layers": [
            stacked(layer_stored(read), range(0, 3)),
        ],
        "head_dense": {
            "kernel": lambda: read("cls.predictions.transform.dense.weight"),  # d_head, d_model
            "bias": lambda: read("cls.predictions.transform.dense.bias"),  # d_head
        },
        "head_norm": {
            "scale": lambda: read("cls.predictions.transform.LayerNorm.weight"),  # d_model
            "bias": lambda: read("cls.predictions.transform.LayerNorm.bias"),  # d_model
        },
        "lm_head": {
            "bias": lambda: read("cls.predictions.bias"),  # vocab
        },
    }


def load(directory=DIRECTORY, dtype=None):
    """The parameters of the twin in `directory`, as they are stored or in `dtype`, read one after another."""

    def place(read):
        return jnp.asarray(read(), dtype=None if dtype is None else jnp.dtype(dtype))

    return jax.tree.map(place, stored(Reader(directory)))


def checked(input_ids, further=0):
    """Tokens [batch, seq], each a word that has a place, and so have as many `further` ones.

    XLA would read some other row for one that is not there. Within a jit, where no value is known, nothing is checked.
    """
    if not isinstance(input_ids, jax.core.Tracer):
        input_ids = np.asarray(input_ids)
        if input_ids.size and not 0 <= input_ids.min() <= input_ids.max() < CONFIG.vocab:
            span = f"{input_ids.min()} to {input_ids.max()}"
            raise ValueError(f"tokens from {span}, and the model has {CONFIG.vocab} words")
    length = input_ids.shape[1] + further
    if length > CONFIG.positions:
        raise ValueError(f"{length} tokens, and the model has places for {CONFIG.positions}")
    return jnp.asarray(input_ids, jnp.int32)


@jax.jit
def all_logits(params, input_ids, lengths):
    """What logits() gives, of tokens that were checked."""
    return head(params, trunk(params, input_ids, lengths))


def logits(params, input_ids, lengths=None):
    """What the model says of each token of input_ids [batch, seq]: [batch, seq, vocab]. Rows have `lengths` tokens."""
    input_ids = checked(input_ids)
    lengths = jnp.full(input_ids.shape[0], input_ids.shape[1]) if lengths is None else jnp.asarray(lengths, jnp.int32)
    return all_logits(params, input_ids, lengths)


def main():
    parser = argparse.ArgumentParser(description="says the likeliest word at each place")
    parser.add_argument("--prompt-ids", default="1", help="tokens, by commas")
    parser.add_argument("--dtype", help="float32, bfloat16; as stored where it is left out")
    flags = parser.parse_args()
    prompt = [[int(word) for word in flags.prompt_ids.split(",")]]
    params = load(DIRECTORY, dtype=flags.dtype)
    print("tokens:", *jnp.argmax(logits(params, jnp.asarray(prompt)), axis=-1)[0].tolist())


if __name__ == "__main__":
    main()
