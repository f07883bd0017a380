#!/usr/bin/env python3
"""Writes checkpoints of any size with the standard library alone, random or sparse.

  big_checkpoint.py OUT llama  --hidden 4096 --layers 8 --ffn 11008 --vocab 32000 [--shards 4] [--sparse]
  big_checkpoint.py OUT qwen3_moe --hidden 64 --layers 260 --experts 128 --ffn 32 --shards 200 --sparse

Sparse files have their full length and occupy almost no disk; their tensors read as zeros.
"""
import argparse
import json
import os
import random
import struct
from pathlib import Path


def llama(a):
    h, f, kv = a.hidden, a.ffn, a.kv_heads * a.head_dim
    q = a.heads * a.head_dim
    yield "model.embed_tokens.weight", [a.vocab, h]
    for i in range(a.layers):
        p = f"model.layers.{i}."
        yield p + "input_layernorm.weight", [h]
        yield from ((p + f"self_attn.{n}_proj.weight", s) for n, s in (("q", [q, h]), ("k", [kv, h]), ("v", [kv, h]), ("o", [h, q])))
        yield p + "post_attention_layernorm.weight", [h]
        if a.family == "llama":
            yield from ((p + f"mlp.{n}_proj.weight", s) for n, s in (("gate", [f, h]), ("up", [f, h]), ("down", [h, f])))
            continue
        yield p + "self_attn.q_norm.weight", [a.head_dim]
        yield p + "self_attn.k_norm.weight", [a.head_dim]
        yield p + "mlp.gate.weight", [a.experts, h]
        for e in range(a.experts):
            yield from ((p + f"mlp.experts.{e}.{n}_proj.weight", s) for n, s in (("gate", [f, h]), ("up", [f, h]), ("down", [h, f])))
    yield "model.norm.weight", [h]
    yield "lm_head.weight", [a.vocab, h]


def config(a):
    out = dict(model_type=a.family, hidden_size=a.hidden, num_hidden_layers=a.layers, num_attention_heads=a.heads, num_key_value_heads=a.kv_heads,
               head_dim=a.head_dim, intermediate_size=a.ffn, vocab_size=a.vocab, rms_norm_eps=1e-5, rope_theta=10000.0, hidden_act="silu",
               max_position_embeddings=4096, tie_word_embeddings=False, torch_dtype="bfloat16", attention_bias=False)
    if a.family == "llama":
        out |= dict(architectures=["LlamaForCausalLM"], mlp_bias=False)
    else:
        out |= dict(architectures=["Qwen3MoeForCausalLM"], num_experts=a.experts, num_experts_per_tok=8, moe_intermediate_size=a.ffn,
                    norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[])
    return out


def write(path, tensors, sparse, seed):
    header, at = {}, 0
    for name, shape in tensors:
        size = 2
        for extent in shape:
            size *= extent
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        if sparse:
            file.truncate(8 + len(text) + at)
            return at
        draw = random.Random(seed)
        left = at
        while left > 0:                       # bytes 0x3c?? and 0xbc??: bf16 values of magnitude about 0.01
            words = min(left // 2, 1 << 20)
            block = bytearray(draw.randbytes(2 * words))
            block[1::2] = bytes(0x3C | (b & 0x80) for b in block[1::2])
            file.write(block)
            left -= 2 * words
    return at


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("family", choices=["llama", "qwen3_moe"])
    for name, default in (("hidden", 512), ("layers", 4), ("heads", 8), ("kv-heads", 2), ("head-dim", 64), ("ffn", 1376), ("vocab", 32000),
                          ("experts", 8), ("shards", 1)):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--sparse", action="store_true")
    a = parser.parse_args()
    a.out.mkdir(parents=True)
    (a.out / "config.json").write_text(json.dumps(config(a), indent=2))
    tensors = list(llama(a))
    per = -(-len(tensors) // a.shards)
    weight_map, total = {}, 0
    for i in range(a.shards):
        name = "model.safetensors" if a.shards == 1 else f"model-{i + 1:05d}-of-{a.shards:05d}.safetensors"
        mine = tensors[i * per:(i + 1) * per]
        total += write(a.out / name, mine, a.sparse, i)
        weight_map.update({tensor: name for tensor, _ in mine})
    if a.shards > 1:
        (a.out / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}))
    print(f"{len(tensors)} tensors, {total / 2**30:.3f} GiB, {a.shards} files")


if __name__ == "__main__":
    main()
