"""Weights of which N of every M members of a group are kept, packed without loss: values, and where they were.

    2 of 4, along in, stride 2: a column of one block        values (in order of place)    positions
    member 0  a .                                            a c                           0 1
    member 1  . c                                            b d                           2 3
    member 2  b .
    member 3  . d                          rows 2m and 2m + 1 of the block are member m; a group is one offset of each

Values keep their bits. Where a group has fewer than N members that are not zero, zeros fill it up.
Positions are written as N numbers or as a mask of M bits, whichever is shorter; codes of up to 8 bits share a byte with
those of the next blocks, in the same row and lane. Bytes a place: itemsize * N / M + bits / (8 * M), bits rounded up to
a power of two.

The pattern is that of the transform keep_n_of_m (docs/transforms.md), which writes its zeros densely.
"""
import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from . import blocks


@dataclass(frozen=True)
class Pattern:
    """Member m of the group at offset o of block b is place b * of * stride + m * stride + o along "in" or "out"."""
    keep: int
    of: int
    stride: int
    along: str = "in"

    def __post_init__(self):
        if not 1 <= self.keep < self.of or self.stride < 1 or self.along not in ("in", "out"):
            raise ValueError(f"{self} needs 1 <= keep < of, a stride and along in or out")
        if self.bits > 32:
            raise ValueError(f"{self.keep} of {self.of} needs {self.bits} bits a group, more than 32; take smaller groups")

    @property
    def index_bits(self):
        return (self.of - 1).bit_length()

    @property
    def masked(self):
        return self.of <= self.keep * self.index_bits

    @property
    def bits(self):
        """Bits of a group's code, a power of two."""
        return 1 << (min(self.of, self.keep * self.index_bits) - 1).bit_length()

    @property
    def shared(self):
        """How many blocks' codes share one word."""
        return max(1, 8 // self.bits)

    @property
    def code_dtype(self):
        return {8: jnp.int8, 16: jnp.int16, 32: jnp.int32}[max(8, self.bits)]


@functools.partial(jax.tree_util.register_dataclass, data_fields=["values", "codes"], meta_fields=["pattern", "shape"])
@dataclass(frozen=True)
class Packed:
    """A weight [in, out] = `shape`, packed. Blocks are padded to whole words of codes, out to whole lanes."""
    values: jax.Array  # [blocks, keep, stride, out] along in, [blocks, keep, in, stride] along out
    codes: jax.Array   # [words, stride, out] or [words, in, stride], int8, int16 or int32
    pattern: Pattern
    shape: tuple

    @property
    def nbytes(self):
        return self.values.nbytes + self.codes.nbytes


def pack(weight, pattern):
    """The Packed form of a pruned matrix [in, out] (numpy), without loss.

    Raises ValueError where a group has more than keep members that are not zero, or the axis does not divide.
    """
    weight = np.asarray(weight)
    along = weight.shape[0 if pattern.along == "in" else 1] if weight.ndim == 2 else 0
    if not along or along % (pattern.of * pattern.stride):
        raise ValueError(f"a weight {weight.shape} does not divide along {pattern.along} into groups of {pattern.of} with "
                         f"stride {pattern.stride}; prune it with a stride that divides")
    shape = (-1, pattern.of, pattern.stride) if pattern.along == "in" else (weight.shape[0], -1, pattern.of, pattern.stride)
    members = weight.reshape(shape + weight.shape[1:] if pattern.along == "in" else shape)
    if pattern.along == "out":
        members = members.transpose(1, 2, 0, 3)
    members = np.pad(members, ((0, -len(members) % pattern.shared), (0, 0), (0, 0), (0, -members.shape[3] % blocks.LANES)))
    present = members.view(f"u{weight.dtype.itemsize}") != 0  # -0.0 is a value of its own
    if (present.sum(1) > pattern.keep).any():
        raise ValueError(f"a group of {pattern.of} with stride {pattern.stride} along {pattern.along} has more than "
                         f"{pattern.keep} members; prune with keep_n_of_m of the same pattern first")
    kept = np.sort(np.argsort(~present, axis=1, kind="stable")[:, :pattern.keep], axis=1)
    values = np.take_along_axis(members, kept, axis=1)
    code = np.zeros((len(members),) + members.shape[2:], np.uint32)
    for j in range(pattern.keep):
        at = kept[:, j].astype(np.uint32)
        code |= np.uint32(1) << at if pattern.masked else at << np.uint32(j * pattern.index_bits)
    words = np.zeros((len(code) // pattern.shared,) + code.shape[1:], np.uint32)
    for j in range(pattern.shared):
        words |= code[j::pattern.shared] << np.uint32(j * pattern.bits)
    codes = words.astype(f"u{np.dtype(pattern.code_dtype).itemsize}").view(pattern.code_dtype)
    return Packed(jnp.asarray(values), jnp.asarray(codes), pattern, weight.shape)


def unpack(packed):
    """The dense matrix [in, out] of a Packed, bit for bit what was packed."""
    pattern, (deep, wide) = packed.pattern, packed.shape
    words, blocks_at = packed.codes.astype(jnp.int32), lambda part: packed.values[part::pattern.shared]
    parts = [members(words, [blocks_at(part)[:, j] for j in range(pattern.keep)], pattern, part * pattern.bits)
             for part in range(pattern.shared)]
    dense = jnp.stack([jnp.stack(part, 1) for part in parts], 1)  # [words, shared, of, ...]
    dense = dense.reshape((-1,) + dense.shape[2:])
    if pattern.along == "in":
        return dense.reshape(-1, dense.shape[-1])[:deep, :wide]
    return dense[..., :pattern.stride].transpose(2, 0, 1, 3).reshape(deep, -1)[:, :wide]


def members(words, kept, pattern, first=0):
    """The pattern.of tiles of a block, from its tile of codes, which begin at bit `first`, and its pattern.keep value tiles.

    Tests the bits where they are: a choice is one comparison and one selection, in the width of words and values.
    """
    bits = lambda value: words.dtype.type(np.uint32(value << first).astype(f"u{words.dtype.itemsize}").view(words.dtype))
    zero, tiles = jnp.zeros_like(kept[0]), []
    if not pattern.masked:
        low, width = (1 << pattern.index_bits) - 1, pattern.index_bits
        at = [words & bits(low << j * width) for j in range(pattern.keep)]
        for m in range(pattern.of):
            tile = zero
            for j in range(max(0, pattern.keep - pattern.of + m), min(m, pattern.keep - 1) + 1):  # positions rise
                tile = jnp.where(at[j] == bits(m << j * width), kept[j], tile)
            tiles.append(tile)
        return tiles
    waiting = list(kept)  # values not yet placed, the next one first
    for m in range(pattern.of):
        here = (words & bits(1 << m)) != 0
        tiles.append(jnp.where(here, waiting[0], zero))
        left = min(pattern.keep, pattern.of - m - 1)  # more cannot be to come
        waiting = [jnp.where(here, after, before) for before, after in zip(waiting, waiting[1:] + [zero])][:left]
    return tiles
