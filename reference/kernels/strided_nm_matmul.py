"""A product with a weight of which N of every M members of a group are kept, read packed and decompressed in VMEM.

    packed in memory            in VMEM                                       on the matrix unit
    values, codes      ->       one tile of the weight for each member    ->  x @ tiles

Why a kernel. A TPU multiplies no faster for zeros; what pruning can save is the reading. Members of a group lie whole
tiles apart (a stride of 16 or 128), so that decompressing is a choice between whole tiles: no element changes its row
or lane. It pays where reading the weight is what a step waits for: few rows, and a chip that chooses faster than it
reads (docs/kernels.md counts both). The packed form is nm_pack's.
"""
import functools
import math

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from . import blocks
from .nm_pack import members, unpack

CHOOSES_16_BITS = ("v6e", "7x")  # generations that compare and select two 16-bit numbers where others do one of 32
PIECE = 1 << 16                  # elements


def piece_of(high, wide):
    """Rows and lanes of a tile that are decompressed at a time: few registers, but enough work for a turn of the loop."""
    lanes = next(part for part in (512, 256, 128) if wide % part == 0)
    return next(part for part in (512, 256, 128, 64, 32, 16, 8) if high % part == 0 and part * lanes <= PIECE), lanes


def _body(layer, left, values, codes, out, dense, total, *, pattern, k, chosen_in):
    """`chosen_in`: the types of codes and values between which tiles are chosen."""
    step, along_in = pl.program_id(2), pattern.along == "in"
    deep = left.shape[1]

    @pl.when(step == 0)
    def _():
        total[...] = jnp.zeros_like(total)

    _, high, wide = codes.shape
    rows, lanes = piece_of(high, wide)
    per_word = high // rows * (wide // lanes)

    @pl.loop(0, codes.shape[0] * per_word)
    def _(turn):
        word, piece = jax.lax.div(turn, per_word), jax.lax.rem(turn, per_word)
        row = pl.multiple_of(jax.lax.div(piece, wide // lanes) * rows, rows)
        lane = pl.multiple_of(jax.lax.rem(piece, wide // lanes) * lanes, lanes)
        here = pl.ds(row, rows), pl.ds(lane, lanes)
        words = codes[word, *here].astype(jnp.int32).astype(chosen_in[0])
        for part in range(pattern.shared):
            block = word * pattern.shared + part
            kept = [values[block, j, *here].astype(chosen_in[1]) for j in range(pattern.keep)]
            for m, tile in enumerate(members(words, kept, pattern, part * pattern.bits)):
                first = (block * pattern.of + m) * pattern.stride
                at = ((pl.ds(pl.multiple_of(first + row, rows), rows), here[1]) if along_in else
                      (here[0], pl.ds(pl.multiple_of(first + lane, lanes), lanes)))
                dense[at] = tile.astype(dense.dtype)

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


def block_of(generation, rows, pattern, shape, itemsize):
    """The blocks of `kernel`: along the pattern whole words of codes, and whole tiles of x."""
    unit = math.lcm(pattern.shared * pattern.of * pattern.stride, blocks.LANES)
    units = (unit, blocks.LANES) if pattern.along == "in" else (blocks.LANES, unit)
    height = min(blocks.up(rows, blocks.sublanes(itemsize)), 2 * blocks.LANES)
    return blocks.sparse(generation, height, *shape, *units, pattern.keep / pattern.of, itemsize)


def kernel(x, packed, *, layer=None, chip=None, interpret=False):
    """The same as `reference`, as one kernel.

    Raises ValueError where members of a group are not whole tiles apart.
    """
    pattern, (k, n), rows = packed.pattern, packed.shape, _check(x, packed, layer)
    along_in = pattern.along == "in"
    least = blocks.sublanes(x.dtype.itemsize) if along_in else blocks.LANES
    if pattern.stride % least:
        raise ValueError(f"a stride of {pattern.stride} along {pattern.along} is no multiple of {least}, a tile of {x.dtype}; "
                         f"prune with stride {least} or 128, or use the reference")
    generation = blocks.chip(chip)
    block = block_of(generation, rows, pattern, packed.shape, x.dtype.itemsize)
    height = block.rows
    narrow = generation in CHOOSES_16_BITS and x.dtype.itemsize == 2 and pattern.bits <= 16
    if along_in:
        deep, wide, several = block.k, block.n, block.k // (pattern.of * pattern.stride)
        tile = (pattern.stride, wide)
        at = lambda row, column, step: (step, 0, column)
    else:
        deep, wide, several = block.k, block.n, block.n // (pattern.of * pattern.stride)
        tile = (deep, pattern.stride)
        at = lambda row, column, step: (column, step, 0)

    def values_at(row, column, step, layer):
        first, *rest = at(row, column, step)
        return (layer[0], first, 0, *rest)

    x = jnp.pad(x, ((0, max(0, height - rows)), (0, 0)))  # less than a tile of rows is more work, not less
    values, codes = (of[None] if layer is None else of for of in (packed.values, packed.codes))
    product = pl.pallas_call(
        functools.partial(_body, pattern=pattern, k=k, chosen_in=(jnp.int16, x.dtype) if narrow else (jnp.int32, jnp.float32)),
        out_shape=jax.ShapeDtypeStruct((x.shape[0], n), x.dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(pl.cdiv(x.shape[0], height), pl.cdiv(n, wide), pl.cdiv(k, deep)),
            in_specs=[pl.BlockSpec((height, deep), lambda row, column, step, layer: (row, step)),
                      pl.BlockSpec((None, several, pattern.keep) + tile, values_at),
                      pl.BlockSpec((None, several // pattern.shared) + tile,
                                   lambda row, column, step, layer: (layer[0],) + at(row, column, step))],
            out_specs=pl.BlockSpec((height, wide), lambda row, column, step, layer: (row, column)),
            scratch_shapes=[pltpu.VMEM((deep, wide), x.dtype), pltpu.VMEM((height, wide), jnp.float32)]),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary"),
                                             vmem_limit_bytes=blocks.vmem_limit(generation)),
        interpret=interpret, name="strided_nm_matmul")(jnp.reshape(jnp.int32(0 if layer is None else layer), 1), x, values, codes)
    return product[:rows]


def reference(x, packed, *, layer=None):
    """x [rows, in] times a Packed [in, out] -> [rows, out], summed in float32, in x's type.

    With `layer` (a whole number, traced or not) values and codes are [layers, ...]: a kernel that is given those of one
    layer inside a scan has them copied first.
    """
    _check(x, packed, layer)
    packed = packed if layer is None else jax.tree.map(lambda of: of[layer], packed)
    return _dot(x, unpack(packed)).astype(x.dtype)


def strided_nm_matmul(x, packed, *, layer=None, chip=None, implementation=None):
    """`kernel` on a TPU, `reference` elsewhere, or what `implementation` names (blocks.implementation)."""
    chosen = blocks.implementation(implementation)
    if chosen == "reference":
        return reference(x, packed, layer=layer)
    return kernel(x, packed, layer=layer, chip=chip, interpret=chosen == "interpret")


def _check(x, packed, layer):
    """The rows of operands that fit; ValueError otherwise."""
    if packed.values.ndim != (4 if layer is None else 5):
        raise ValueError(f"packed values {packed.values.shape}: pass layer= for a stack of layers, and for nothing else")
    if x.ndim != 2 or x.shape[1] != packed.shape[0] or not x.shape[0]:
        raise ValueError(f"x {x.shape} must be [rows, {packed.shape[0]}] for a packed weight {packed.shape}; merge batch and "
                         "tokens into rows")
    if x.dtype != packed.values.dtype or not jnp.issubdtype(x.dtype, jnp.floating):
        raise ValueError(f"x is {x.dtype}, the weight {packed.values.dtype}; convert x to the weight's floating type")
    return x.shape[0]
