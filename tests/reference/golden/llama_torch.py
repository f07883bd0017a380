"""llama in PyTorch. Written by twinforge from the graph of the twin in whose folder this file lies.

    python reference/model_torch.py --prompt-ids 1,2,3 --steps 16

    model = load()                                   # or load(directory, dtype=torch.float32, device="cuda")
    logits(model, input_ids)                         # [batch, seq, vocab]; model(input_ids) too
    generate(model, input_ids, steps=16)             # [batch, steps]

Sequences of several lengths are padded behind; what stands there changes no token before it.
"""
import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from safetensors import safe_open
from torch import nn

DIRECTORY = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Config:
    norm_eps: float = 1e-06
    rotary_dim: int = 10  # places of a head that turn
    rope_theta: float = 500.0
    score_scale: float = 0.31622776601683794  # softmax(scale * q k)
    vocab: int = 23  # words; places beyond them are padding
    layers: int = 3
    kv_heads: int = 2
    head_dim: int = 10


CONFIG = Config()


class Block(nn.Module):
    """A block and its parameters, by the names of the graph's slots. A parameter that comes in is shared."""

    def __init__(self, **params):
        super().__init__()
        for name, value in params.items():
            shared = isinstance(value, nn.Parameter)
            self.register_parameter(name, value if shared else nn.Parameter(value, requires_grad=False))


def widen(x):
    """x in float32, or in float64 if it is that."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def rms_norm(x, scale, eps):
    """x / sqrt(mean of its squares + eps) along the last axis, in float32; times scale."""
    wide = widen(x)
    mean = wide.square().mean(dim=-1, keepdim=True)
    return (wide * torch.rsqrt(mean + eps)).to(x.dtype) * scale.to(x.dtype)


class RmsNorm(Block):
    def forward(self, x):
        return rms_norm(x, self.scale, CONFIG.norm_eps)


def dot(spec, x, kernel, bias=None):
    """einsum in the dtype of x, plus a bias over the last axes."""
    y = torch.einsum(spec, x, kernel.to(x.dtype))
    return y if bias is None else y + bias.to(x.dtype)


def rotate(x, angles):
    """x [batch, seq, heads, head_dim]: of the first rotary_dim places each i turns with i + rotary_dim / 2."""
    cos, sin = angles[0].to(x.dtype), angles[1].to(x.dtype)
    x, rest = x[..., :CONFIG.rotary_dim], x[..., CONFIG.rotary_dim:]
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], dim=-1)


def rope_angles(positions, dtype):
    """Cosines and sines of each pair's turn, [batch, seq, 1, pairs]."""
    wide = {"dtype": torch.float64, "device": positions.device}
    exponents = torch.arange(0, CONFIG.rotary_dim, 2, **wide) / CONFIG.rotary_dim
    frequencies = CONFIG.rope_theta**-exponents
    angle = positions[:, :, None, None].to(dtype) * frequencies.to(dtype)
    return torch.cos(angle), torch.sin(angle)


def remember(cache, layer, positions, **fresh):
    """Writes `fresh` [batch, seq, ..] at its tokens' positions, and gives all that the layer now remembers.

    Without a cache that is the whole sequence, which is what is fresh.
    """
    if cache is None:
        return tuple(fresh.values())
    rows = torch.arange(positions.shape[0], device=positions.device)[:, None]
    for name, value in fresh.items():
        cache[name][layer, rows, positions] = value
    return tuple(cache[name][layer] for name in fresh)


def wide_dot(spec, x, y):
    """einsum of values in the dtype of x, its products and sums in float32 and left so."""
    return torch.einsum(spec, widen(x), widen(y.to(x.dtype)))


def visible(at, keys):
    """[batch, 1, 1, seq, keys]: whether a token sees a place of its sequence."""
    place = torch.arange(keys, device=at.positions.device)
    age = at.positions[:, :, None] - place
    seen = age >= 0
    return seen[:, None, None]


class Attention(Block):
    def forward(self, x, cache, i, at):
        q = dot("bsd,nhd->bsnh", x, self.q)
        k = dot("bsd,nhd->bsnh", x, self.k)
        v = dot("bsd,nhd->bsnh", x, self.v)
        q, k = rotate(q, at.angles), rotate(k, at.angles)
        k, v = remember(cache, i, at.positions, k=k, v=v)
        groups = q.unflatten(2, (k.shape[2], -1))  # heads that share a key
        scores = wide_dot("bsngh,btnh->bngst", groups, k) * CONFIG.score_scale
        seen = visible(at, scores.shape[-1])
        scores = scores.masked_fill(~seen, float("-inf"))
        weights = torch.softmax(scores, dim=-1).to(x.dtype)
        mixed = dot("bngst,btnh->bsngh", weights, v).flatten(2, 3)
        return dot("bsnh,dnh->bsd", mixed, self.o)


def silu(x):
    wide = widen(x)
    return F.silu(wide).to(x.dtype)


def gated(gate, up):
    return silu(gate) * up


class GatedMlp(Block):
    def forward(self, x):
        gate = dot("bsd,fd->bsf", x, self.gate)
        up = dot("bsd,fd->bsf", x, self.up)
        return dot("bsf,df->bsd", gated(gate, up), self.down)


class Layer(nn.Module):
    """Each of the 3 layers."""

    def __init__(self, read, i):
        super().__init__()
        self.norm_in = RmsNorm(scale=read(f"model.layers.{i}.input_layernorm.weight"))  # d_model
        self.attn = Attention(
            q=read(f"model.layers.{i}.self_attn.q_proj.weight").reshape(6, 10, 12),  # heads, head_dim, d_model
            k=read(f"model.layers.{i}.self_attn.k_proj.weight").reshape(2, 10, 12),  # kv_heads, head_dim, d_model
            v=read(f"model.layers.{i}.self_attn.v_proj.weight").reshape(2, 10, 12),  # kv_heads, head_dim, d_model
            o=read(f"model.layers.{i}.self_attn.o_proj.weight").reshape(12, 6, 10),  # d_model, heads, head_dim
        )
        self.norm_mid = RmsNorm(scale=read(f"model.layers.{i}.post_attention_layernorm.weight"))  # d_model
        self.mlp = GatedMlp(
            gate=read(f"model.layers.{i}.mlp.gate_proj.weight"),  # d_ff, d_model
            up=read(f"model.layers.{i}.mlp.up_proj.weight"),  # d_ff, d_model
            down=read(f"model.layers.{i}.mlp.down_proj.weight"),  # d_model, d_ff
        )

    def forward(self, x, cache, i, at):
        norm_in = self.norm_in(x)
        attn = self.attn(norm_in, cache, i, at)
        x = x + attn
        norm_mid = self.norm_mid(x)
        mlp = self.mlp(norm_mid)
        return x + mlp


class Embedding(Block):
    def forward(self, tokens, positions):
        return F.embedding(tokens, self.table)


class LmHead(Block):
    def forward(self, x):
        return dot("bsd,vd->bsv", x, self.head)


class Step(NamedTuple):
    """What all layers share in one call."""

    positions: torch.Tensor  # of the tokens in their sequences, [batch, seq]
    angles: tuple[torch.Tensor, torch.Tensor]  # of the rotary embedding


class Model(nn.Module):
    """The whole model; `read` gives a stored tensor by its name."""

    def __init__(self, read):
        super().__init__()
        self.embed = Embedding(table=read("model.embed_tokens.weight"))  # vocab, d_model
        self.layers = nn.ModuleList([Layer(read, i) for i in range(3)])
        self.norm = RmsNorm(scale=read("model.norm.weight"))  # d_model
        self.lm_head = LmHead(head=read("lm_head.weight"))  # vocab, d_model

    def trunk(self, tokens, positions, cache=None):
        """Hidden states [batch, seq, d_model] of tokens at their positions, which the cache remembers."""
        x = self.embed(tokens, positions)
        at = Step(positions, rope_angles(positions, torch.promote_types(x.dtype, torch.float32)))
        for i, layer in enumerate(self.layers):
            x = layer(x, cache, i, at)
        return x

    def head(self, x):
        """From hidden states to what the model says of each token."""
        x = self.norm(x)
        return self.lm_head(x)

    def forward(self, input_ids, positions=None, cache=None):
        """Logits [batch, seq, vocab] after each token of input_ids [batch, seq]; with a cache of what came before."""
        if positions is None:
            positions = torch.arange(input_ids.shape[1], device=input_ids.device).expand(input_ids.shape)
        return self.head(self.trunk(input_ids, positions, cache))


class Reader:
    """Stored tensors by name. The safetensors files are mapped into memory: what is not used is never read."""

    def __init__(self, directory):
        self.files = {}
        for path in sorted(Path(directory).glob("model*.safetensors")):
            file = safe_open(path, framework="pt")
            self.files |= dict.fromkeys(file.keys(), file)

    def __call__(self, name):
        return self.files[name].get_tensor(name)


def load(directory=DIRECTORY, dtype=None, device="cpu"):
    """The model of the twin in `directory`, its parameters as they are stored or in `dtype`."""
    dtype = getattr(torch, dtype) if isinstance(dtype, str) else dtype
    return Model(Reader(directory)).to(device=device, dtype=dtype).eval()


def init_cache(batch, length, dtype, device="cpu"):
    """Room for what layers remember of `length` tokens of each sequence."""
    return {
        "k": torch.zeros(CONFIG.layers, batch, length, CONFIG.kv_heads, CONFIG.head_dim, dtype=dtype, device=device),
        "v": torch.zeros(CONFIG.layers, batch, length, CONFIG.kv_heads, CONFIG.head_dim, dtype=dtype, device=device),
    }


def prefill(params, cache, input_ids, lengths):
    """Logits [batch, vocab] after the last token of each prompt, and the cache, which is filled in its place.

    Prompts [batch, seq] have `lengths` tokens each and stand at the beginning of their rows.
    """
    positions = torch.arange(input_ids.shape[1], device=input_ids.device).expand(input_ids.shape)
    x = params.trunk(input_ids, positions, cache)
    rows = torch.arange(input_ids.shape[0], device=input_ids.device)
    return params.head(x[rows, lengths - 1][:, None])[:, 0], cache


def decode_step(params, cache, tokens, positions):
    """Logits [batch, vocab] after one more token of each sequence, at its position, and the cache with it."""
    return params(tokens[:, None], positions[:, None], cache)[:, 0], cache


def checked(input_ids, device, further=0):
    """Tokens [batch, seq] on the device, each a word that has a place, and so have as many `further` ones."""
    input_ids = torch.as_tensor(input_ids, dtype=torch.long, device=device)
    if input_ids.numel() and not 0 <= input_ids.min() <= input_ids.max() < CONFIG.vocab:
        span = f"{int(input_ids.min())} to {int(input_ids.max())}"
        raise ValueError(f"tokens from {span}, and the model has {CONFIG.vocab} words")
    return input_ids


def logits(params, input_ids):
    """Logits [batch, seq, vocab] after each token of input_ids [batch, seq]."""
    return params(checked(input_ids, params.embed.table.device))


def generate(params, input_ids, steps, lengths=None, temperature=0.0, generator=None):
    """`steps` tokens after each prompt, [batch, steps]: the likeliest, or drawn where temperature > 0."""
    table = params.embed.table  # its dtype is that of all activations
    input_ids = checked(input_ids, table.device, steps)
    batch, seq = input_ids.shape
    length = seq + steps
    lengths = [seq] * batch if lengths is None else lengths
    lengths = torch.as_tensor(lengths, dtype=torch.long, device=table.device)
    said = [input_ids[:, :0]]
    row, cache = prefill(params, init_cache(batch, length, table.dtype, table.device), input_ids, lengths)
    for step in range(steps):
        if temperature == 0:
            drawn = row.argmax(dim=-1, keepdim=True)
        else:
            drawn = torch.multinomial(torch.softmax(row.float() / temperature, dim=-1), 1, generator=generator)
        said.append(drawn)
        if step + 1 < steps:
            row, cache = decode_step(params, cache, drawn[:, 0], lengths + step)
    return torch.cat(said, dim=1)


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
    parser.add_argument("--dtype", choices=["bfloat16", "float16", "float32", "float64"], help="else as stored")
    parser.add_argument("--device", default="cpu")
    flags = parser.parse_args()
    words = tokenizer(DIRECTORY)
    if flags.prompt is not None and words is None:
        parser.error("--prompt needs tokenizer.json in the twin's folder and the package tokenizers; or --prompt-ids")
    prompt = words.encode(flags.prompt).ids if flags.prompt else [int(word) for word in flags.prompt_ids.split(",")]
    model = load(DIRECTORY, dtype=flags.dtype, device=flags.device)
    generator = torch.Generator(flags.device).manual_seed(flags.seed)
    said = generate(model, [prompt], flags.steps, temperature=flags.temperature, generator=generator)[0].tolist()
    print("tokens:", *said)
    if words is not None:
        print("text:", words.decode(prompt + said))


if __name__ == "__main__":
    main()
