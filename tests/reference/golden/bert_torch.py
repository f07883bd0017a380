"""bert in PyTorch. Written by twinforge from the graph of the twin in whose folder this file lies.

    python reference/model_torch.py --prompt-ids 1,2,3

    model = load()                                   # or load(directory, dtype=torch.float32, device="cuda")
    logits(model, input_ids)                         # [batch, seq, vocab]; model(input_ids) too
    logits(model, input_ids, lengths)                # of sequences that are padded behind

Every token sees the whole sequence, so there is nothing to generate.
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
    score_scale: float = 0.7071067811865476  # softmax(scale * q k)
    norm_eps: float = 1e-12
    vocab: int = 23  # words; places beyond them are padding
    positions: int = 32  # the longest sequence that has a place


CONFIG = Config()


class Block(nn.Module):
    """A block and its parameters, by the names of the graph's slots. A parameter that comes in is shared."""

    def __init__(self, **params):
        super().__init__()
        for name, value in params.items():
            shared = isinstance(value, nn.Parameter)
            self.register_parameter(name, value if shared else nn.Parameter(value, requires_grad=False))


def dot(spec, x, kernel, bias=None):
    """einsum in the dtype of x, plus a bias over the last axes."""
    y = torch.einsum(spec, x, kernel.to(x.dtype))
    return y if bias is None else y + bias.to(x.dtype)


def widen(x):
    """x in float32, or in float64 if it is that."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def wide_dot(spec, x, y):
    """einsum of values in the dtype of x, its products and sums in float32 and left so."""
    return torch.einsum(spec, widen(x), widen(y.to(x.dtype)))


def visible(at, keys):
    """[batch, 1, 1, seq, keys]: whether a token sees a place of its sequence."""
    place = torch.arange(keys, device=at.positions.device)
    seen = (place < at.lengths[:, None, None]).expand(*at.positions.shape, keys)
    return seen[:, None, None]


class Attention(Block):
    def forward(self, x, at):
        q = dot("bsd,nhd->bsnh", x, self.q, self.q_bias)
        k = dot("bsd,nhd->bsnh", x, self.k, self.k_bias)
        v = dot("bsd,nhd->bsnh", x, self.v, self.v_bias)
        groups = q.unflatten(2, (k.shape[2], -1))  # heads that share a key
        scores = wide_dot("bsngh,btnh->bngst", groups, k) * CONFIG.score_scale
        seen = visible(at, scores.shape[-1])
        scores = scores.masked_fill(~seen, float("-inf"))
        weights = torch.softmax(scores, dim=-1).to(x.dtype)
        mixed = dot("bngst,btnh->bsngh", weights, v).flatten(2, 3)
        return dot("bsnh,dnh->bsd", mixed, self.o, self.o_bias)


class LayerNorm(Block):
    """(x - mean) / sqrt(variance + eps) * scale + bias, in float32."""

    def forward(self, x):
        wide = widen(x)
        centred = wide - wide.mean(dim=-1, keepdim=True)
        variance = centred.square().mean(dim=-1, keepdim=True)
        y = centred * torch.rsqrt(variance + CONFIG.norm_eps) * widen(self.scale) + widen(self.bias)
        return y.to(x.dtype)


def gelu(x):
    wide = widen(x)
    return F.gelu(wide).to(x.dtype)


class Mlp(Block):
    def forward(self, x):
        up = dot("bsd,fd->bsf", x, self.up, self.up_bias)
        return dot("bsf,df->bsd", gelu(up), self.down, self.down_bias)


class Layer(nn.Module):
    """Each of the 3 layers."""

    def __init__(self, read, i):
        super().__init__()
        self.attn = Attention(
            q=read(f"bert.encoder.layer.{i}.attention.self.query.weight").reshape(6, 2, 12),  # heads, head_dim, d_model
            # kv_heads, head_dim, d_model
            k=read(f"bert.encoder.layer.{i}.attention.self.key.weight").reshape(6, 2, 12),
            # kv_heads, head_dim, d_model
            v=read(f"bert.encoder.layer.{i}.attention.self.value.weight").reshape(6, 2, 12),
            # d_model, heads, head_dim
            o=read(f"bert.encoder.layer.{i}.attention.output.dense.weight").reshape(12, 6, 2),
            q_bias=read(f"bert.encoder.layer.{i}.attention.self.query.bias").reshape(6, 2),  # heads, head_dim
            k_bias=read(f"bert.encoder.layer.{i}.attention.self.key.bias").reshape(6, 2),  # kv_heads, head_dim
            v_bias=read(f"bert.encoder.layer.{i}.attention.self.value.bias").reshape(6, 2),  # kv_heads, head_dim
            o_bias=read(f"bert.encoder.layer.{i}.attention.output.dense.bias"),  # d_model
        )
        self.norm_attn = LayerNorm(
            scale=read(f"bert.encoder.layer.{i}.attention.output.LayerNorm.weight"),  # d_model
            bias=read(f"bert.encoder.layer.{i}.attention.output.LayerNorm.bias"),  # d_model
        )
        self.mlp = Mlp(
            up=read(f"bert.encoder.layer.{i}.intermediate.dense.weight"),  # d_ff, d_model
            down=read(f"bert.encoder.layer.{i}.output.dense.weight"),  # d_model, d_ff
            up_bias=read(f"bert.encoder.layer.{i}.intermediate.dense.bias"),  # d_ff
            down_bias=read(f"bert.encoder.layer.{i}.output.dense.bias"),  # d_model
        )
        self.norm_mlp = LayerNorm(
            scale=read(f"bert.encoder.layer.{i}.output.LayerNorm.weight"),  # d_model
            bias=read(f"bert.encoder.layer.{i}.output.LayerNorm.bias"),  # d_model
        )

    def forward(self, x, at):
        attn = self.attn(x, at)
        x = x + attn
        x = self.norm_attn(x)
        mlp = self.mlp(x)
        x = x + mlp
        return self.norm_mlp(x)


class Embedding(Block):
    def forward(self, tokens, positions):
        x = F.embedding(tokens, self.table)
        x = x + self.type_table[0].to(x.dtype)  # every token is of type 0
        x = x + F.embedding(positions, self.position_table).to(x.dtype)
        return x


class Linear(Block):
    def forward(self, x):
        return dot("bsd,ad->bsa", x, self.kernel, self.bias)


class LmHead(Block):
    def forward(self, x):
        return dot("bsd,vd->bsv", x, self.head, self.bias)


class Step(NamedTuple):
    """What all layers share in one call."""

    positions: torch.Tensor  # of the tokens in their sequences, [batch, seq]
    lengths: torch.Tensor  # of the sequences, [batch]


class Model(nn.Module):
    """The whole model; `read` gives a stored tensor by its name."""

    def __init__(self, read):
        super().__init__()
        self.embed = Embedding(
            table=read("bert.embeddings.word_embeddings.weight"),  # vocab, d_model
            position_table=read("bert.embeddings.position_embeddings.weight"),  # positions, d_model
            type_table=read("bert.embeddings.token_type_embeddings.weight"),  # types, d_model
        )
        self.embed_norm = LayerNorm(
            scale=read("bert.embeddings.LayerNorm.weight"),  # d_model
            bias=read("bert.embeddings.LayerNorm.bias"),  # d_model
        )
        self.layers = nn.ModuleList([Layer(read, i) for i in range(3)])
        self.head_dense = Linear(
            kernel=read("cls.predictions.transform.dense.weight"),  # d_head, d_model
            bias=read("cls.predictions.transform.dense.bias"),  # d_head
        )
        self.head_norm = LayerNorm(
            scale=read("cls.predictions.transform.LayerNorm.weight"),  # d_model
            bias=read("cls.predictions.transform.LayerNorm.bias"),  # d_model
        )
        self.lm_head = LmHead(
            head=self.embed.table,  # vocab, d_model
            bias=read("cls.predictions.bias"),  # vocab
        )

    def trunk(self, tokens, positions, lengths):
        """Hidden states [batch, seq, d_model] of sequences that are padded behind."""
        x = self.embed(tokens, positions)
        x = self.embed_norm(x)
        at = Step(positions, lengths)
        for layer in self.layers:
            x = layer(x, at)
        return x

    def head(self, x):
        """From hidden states to what the model says of each token."""
        x = self.head_dense(x)
        x = gelu(x)
        x = self.head_norm(x)
        return self.lm_head(x)

    def forward(self, input_ids, lengths=None):
        """What the model says of each token of input_ids [batch, seq]: [batch, seq, vocab]. Rows have `lengths`."""
        batch, seq = input_ids.shape
        if lengths is None:
            lengths = torch.full((batch,), seq, device=input_ids.device)
        positions = torch.arange(seq, device=input_ids.device).expand(batch, seq)
        return self.head(self.trunk(input_ids, positions, lengths))


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


def checked(input_ids, device, further=0):
    """Tokens [batch, seq] on the device, each a word that has a place, and so have as many `further` ones."""
    input_ids = torch.as_tensor(input_ids, dtype=torch.long, device=device)
    if input_ids.numel() and not 0 <= input_ids.min() <= input_ids.max() < CONFIG.vocab:
        span = f"{int(input_ids.min())} to {int(input_ids.max())}"
        raise ValueError(f"tokens from {span}, and the model has {CONFIG.vocab} words")
    length = input_ids.shape[1] + further
    if length > CONFIG.positions:
        raise ValueError(f"{length} tokens, and the model has places for {CONFIG.positions}")
    return input_ids


def logits(params, input_ids, lengths=None):
    """What the model says of each token of input_ids [batch, seq]: [batch, seq, vocab]. Rows have `lengths` tokens."""
    device = params.embed.table.device
    lengths = None if lengths is None else torch.as_tensor(lengths, dtype=torch.long, device=device)
    return params(checked(input_ids, device), lengths)


def main():
    parser = argparse.ArgumentParser(description="says the likeliest word at each place")
    parser.add_argument("--prompt-ids", default="1", help="tokens, by commas")
    parser.add_argument("--dtype", choices=["bfloat16", "float16", "float32", "float64"], help="else as stored")
    parser.add_argument("--device", default="cpu")
    flags = parser.parse_args()
    prompt = [[int(word) for word in flags.prompt_ids.split(",")]]
    model = load(DIRECTORY, dtype=flags.dtype, device=flags.device)
    print("tokens:", *logits(model, prompt).argmax(dim=-1)[0].tolist())


if __name__ == "__main__":
    main()
