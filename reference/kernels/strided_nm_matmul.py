"""A product with a weight of which N of every M members of a group are kept, read packed and decompressed in VMEM.

    2 of 4, along in, stride 2: a column of one block        values (in order of place)    positions
    member 0  a .                                            a c                           0 1
    member 1  . c                                            b d                           2 3
    member 2  b .
    member 3  . d                          rows 2m and 2m + 1 of the block are member m; a group is one offset of each

Why a kernel. A TPU multiplies no faster for zeros; what pruning can save is the reading. Members of a group lie whole
tiles apart (a stride of 16 or 128), so that decompressing is a choice between whole tiles: no element changes its row
or lane. It pays where reading the weight is what a step waits for (few rows), never for many rows.

The packed form. Values keep their bits. Where a group has fewer than N members that are not zero, zeros fill it up.
Positions are written as N numbers or as a mask of M bits, whichever is shorter; codes of up to 8 bits share a byte with
those of the next blocks, in the same row and lane. Bytes a place: itemsize * N / M + bits / (8 * M), bits rounded up to
a power of two.
"""
import functools
import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

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
        return self.of < self.keep * self.index_bits

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
    code = jnp.repeat(packed.codes.astype(jnp.int32), pattern.shared, axis=0)
    turn = jnp.arange(len(code)) % pattern.shared * pattern.bits
    code = jax.lax.shift_right_logical(code, jnp.broadcast_to(turn[:, None, None], code.shape))
    dense = jnp.stack(members(code, [packed.values[:, j] for j in range(pattern.keep)], pattern), 1)
    if pattern.along == "in":
        return dense.reshape(-1, dense.shape[-1])[:deep, :wide]
    return dense[..., :pattern.stride].transpose(2, 0, 1, 3).reshape(deep, -1)[:, :wide]


def members(code, kept, pattern):
    """The pattern.of tiles of a block, from its code tile (int32, its bits lowest) and its pattern.keep value tiles."""
    zero, tiles = jnp.zeros_like(kept[0]), []
    if not pattern.masked:
        low = (1 << pattern.index_bits) - 1
        at = [jax.lax.shift_right_logical(code, jnp.int32(j * pattern.index_bits)) & low for j in range(pattern.keep)]
        for m in range(pattern.of):
            tile = zero
            for j in range(max(0, pattern.keep - pattern.of + m), min(m, pattern.keep - 1) + 1):
                tile = jnp.where(at[j] == m, kept[j], tile)
            tiles.append(tile)
        return tiles
    rank = jnp.zeros_like(code)
    for m in range(pattern.of):
        bit = jax.lax.shift_right_logical(code, jnp.int32(m)) & 1
        mine, tile = jnp.where(bit == 1, rank, -1), zero
        for j in range(max(0, pattern.keep - pattern.of + m), min(m, pattern.keep - 1) + 1):
            tile = jnp.where(mine == j, kept[j], tile)
        tiles.append(tile)
        rank += bit
    return tiles


def _body(left, values, codes, out, dense, total, *, pattern, k):
    step, along_in = pl.program_id(2), pattern.along == "in"
    deep = left.shape[1]

    @pl.when(step == 0)
    def _():
        total[...] = jnp.zeros_like(total)

    @pl.loop(0, codes.shape[0])
    def _(word):
        for turn in range(pattern.shared):
            block = word * pattern.shared + turn
            code = jax.lax.shift_right_logical(codes[word].astype(jnp.int32), jnp.int32(turn * pattern.bits))
            kept = [values[block, j].astype(jnp.float32) for j in range(pattern.keep)]  # a choice between 32-bit tiles
            for m, tile in enumerate(members(code, kept, pattern)):
                first = pl.multiple_of((block * pattern.of + m) * pattern.stride, pattern.stride)
                at = pl.ds(first, pattern.stride)
                dense[(at, slice(None)) if along_in else (slice(None), at)] = tile.astype(dense.dtype)

    x, w = left[...], dense[...]
    if k % deep:  # the last step reads beyond its operands, and what lies there may be anything
        inside = lambda of, axis: jax.lax.broadcasted_iota(jnp.int32, of.shape, axis) < k - step * deep
        x, w = jnp.where(inside(x, 1), x, 0), jnp.where(inside(w, 0), w, 0)
    total[...] += _dot(x, w)

    @pl.when(step == pl.num_programs(2) - 1)
    def _():
        out[...] = total[...].astype(out.dtype)


def _dot(x, w):
    precision = jax.lax.Precision.HIGHEST if x.dtype == jnp.float32 else None
    return jnp.dot(x, w, precision=precision, preferred_element_type=jnp.float32)


def kernel(x, packed, *, chip=None, interpret=False):
    """The same as `reference`, as one kernel.

    Raises ValueError where members of a group are not whole tiles apart.
    """
    pattern, (k, n), rows = packed.pattern, packed.shape, _check(x, packed)
    along_in = pattern.along == "in"
    least = blocks.sublanes(x.dtype.itemsize) if along_in else blocks.LANES
    if pattern.stride % least:
        raise ValueError(f"a stride of {pattern.stride} along {pattern.along} is no multiple of {least}, a tile of {x.dtype}; "
                         f"prune with stride {least} or 128, or use the reference")
    generation = blocks.chip(chip)
    unit = math.lcm(pattern.shared * pattern.of * pattern.stride, blocks.LANES)  # places of whole words, and of whole tiles of x
    height = rows if rows <= 2 * blocks.LANES else 2 * blocks.LANES
    block = blocks.sparse(generation, height, k, n, unit if along_in else blocks.LANES,
                          blocks.LANES if along_in else unit, pattern.keep / pattern.of, x.dtype.itemsize)
    if along_in:
        wide, several = min(block.n, n), block.k // (pattern.of * pattern.stride)
        deep, tile = block.k, (pattern.stride, wide)
        at = lambda row, column, step: (step, 0, column)
    else:
        deep, several = min(block.k, k), block.n // (pattern.of * pattern.stride)
        wide, tile = block.n, (deep, pattern.stride)
        at = lambda row, column, step: (column, step, 0)
    return pl.pallas_call(
        functools.partial(_body, pattern=pattern, k=k),
        out_shape=jax.ShapeDtypeStruct((rows, n), x.dtype),
        grid=(pl.cdiv(rows, height), pl.cdiv(n, wide), pl.cdiv(k, deep)),
        in_specs=[pl.BlockSpec((height, deep), lambda row, column, step: (row, step)),
                  pl.BlockSpec((several, pattern.keep) + tile, lambda *place: at(*place)[:1] + (0,) + at(*place)[1:]),
                  pl.BlockSpec((several // pattern.shared,) + tile, at)],
        out_specs=pl.BlockSpec((height, wide), lambda row, column, step: (row, column)),
        scratch_shapes=[pltpu.VMEM((deep, wide), x.dtype), pltpu.VMEM((height, wide), jnp.float32)],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary"),
                                             vmem_limit_bytes=blocks.vmem_limit(generation)),
        interpret=interpret, name="strided_nm_matmul")(x, packed.values, packed.codes)


def reference(x, packed):
    """x [rows, in] times a Packed [in, out] -> [rows, out], summed in float32, in x's type."""
    _check(x, packed)
    return _dot(x, unpack(packed)).astype(x.dtype)


def strided_nm_matmul(x, packed, *, chip=None, implementation=None):
    """`kernel` on a TPU, `reference` elsewhere, or what `implementation` names (blocks.implementation)."""
    chosen = blocks.implementation(implementation)
    return reference(x, packed) if chosen == "reference" else kernel(x, packed, chip=chip, interpret=chosen == "interpret")


def _check(x, packed):
    """The rows of operands that fit; ValueError otherwise."""
    if x.ndim != 2 or x.shape[1] != packed.shape[0] or not x.shape[0]:
        raise ValueError(f"x {x.shape} must be [rows, {packed.shape[0]}] for a packed weight {packed.shape}; merge batch and "
                         "tokens into rows")
    if x.dtype != packed.values.dtype or not jnp.issubdtype(x.dtype, jnp.floating):
        raise ValueError(f"x is {x.dtype}, the weight {packed.values.dtype}; convert x to the weight's floating type")
    return x.shape[0]
