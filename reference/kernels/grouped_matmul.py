"""Rows sorted by expert, each row times its own expert's matrix, reading no expert that has no row.

    rows   a a a b c c c c c .      three of expert a, one of b, five of c, one of none; a tile holds four rows
    tiles  a a a 0|b 0 0 0|c c c c|c 0 0 0        every tile belongs to one expert

Why a kernel. A plain product over experts reads every expert's weights; at decode most have no row. Here a table of
experts by tile is known before the weights are fetched, so a step fetches exactly its own expert's block, and none
where the step before had the same one. Aligning costs nothing where rows are gathered by expert anyway: `sort_rows` gives
what a router chose as aligned rows, `aligned` multiplies them, and gate, up and down stay aligned until the end.
"""
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from . import blocks


class Alignment(NamedTuple):
    """Where sorted rows lie once every expert's share begins at a tile. All int32."""
    source: jax.Array  # [tiles * tile] the sorted row at each aligned place; `rows` where there is none
    place: jax.Array   # [rows] the aligned place of each sorted row; tiles * tile for rows of no expert
    expert: jax.Array  # [tiles] whose rows a tile holds; of tiles without rows, that of the last with rows
    used: jax.Array    # [1] how many tiles hold rows


def most_tiles(rows, groups, tile):
    """How many tiles any split of `rows` rows over `groups` experts can need."""
    return max(1, (rows + min(rows, groups) * (tile - 1)) // tile)


def align(group_sizes, rows, tile):
    """The Alignment of `rows` rows of which the first sum(group_sizes) belong to experts, in order."""
    groups, tiles = group_sizes.shape[0], most_tiles(rows, group_sizes.shape[0], tile)
    sizes = group_sizes.astype(jnp.int32)
    ends, tile_ends = jnp.cumsum(sizes), jnp.cumsum(-(-sizes // tile))
    starts, tile_starts = ends - sizes, tile_ends + sizes // -tile
    used = tile_ends[-1:]
    expert_of = lambda ends, at: jnp.minimum(jnp.sum(at[:, None] >= ends, -1, dtype=jnp.int32), groups - 1)

    row = jnp.arange(rows, dtype=jnp.int32)
    group = expert_of(ends, row)
    place = jnp.where(row < ends[-1], tile_starts[group] * tile + row - starts[group], tiles * tile)

    expert = expert_of(tile_ends, jnp.minimum(jnp.arange(tiles, dtype=jnp.int32), jnp.maximum(used - 1, 0)))
    aligned = jnp.arange(tiles * tile, dtype=jnp.int32)
    group = jnp.repeat(expert, tile)
    within = aligned - tile_starts[group] * tile
    source = jnp.where((within < sizes[group]) & (aligned < used * tile), starts[group] + within, rows)
    return Alignment(source, place, expert, used)


class Rows(NamedTuple):
    """Choices of experts as aligned rows, one row for each choice. All int32."""
    alignment: Alignment
    token: jax.Array   # [tiles * tile] whose row stands at each aligned place; `tokens` where there is none
    expert: jax.Array  # [tiles * tile] that of the tile
    place: jax.Array   # [..., k] the aligned place of each choice

    def gather(self, x):
        """[tokens, ...] -> [tiles * tile, ...], zeros where there is no row."""
        return x.at[self.token].get(mode="fill", fill_value=0)


def sort_rows(chosen, groups, dtype, *, chip=None, interpret=False):
    """The Rows of `chosen` [..., k], the experts of each token, for rows in `dtype`."""
    flat, each = chosen.reshape(-1).astype(jnp.int32), chosen.shape[-1]
    order = jnp.argsort(flat).astype(jnp.int32)
    sizes = jnp.sum(flat[:, None] == jnp.arange(groups), 0, dtype=jnp.int32)
    tile = blocks.grouped_height(blocks.chip(chip), flat.size, groups, jnp.dtype(dtype).itemsize)
    alignment = align(sizes, flat.size, tile)
    choice = order.at[alignment.source].get(mode="fill", fill_value=flat.size)
    place = jnp.zeros_like(order).at[order].set(alignment.place)
    return Rows(alignment, choice // each, jnp.repeat(alignment.expert, tile), place.reshape(chosen.shape))


def _body(expert, used, left, right, out, total, *, k, out_in):
    tile, step = pl.program_id(1), pl.program_id(2)
    deep = left.shape[1]

    @pl.when(step == 0)
    def _():
        total[...] = jnp.zeros_like(total)

    @pl.when(tile < used[0])
    def _():
        x, w = left[...], right[...].astype(left.dtype)
        if k % deep:  # the last step reads beyond both operands, and what lies there may be anything
            inside = lambda of, axis: jax.lax.broadcasted_iota(jnp.int32, of.shape, axis) < k - step * deep
            x = jnp.where(inside(x, 1), x, 0)
            w = jnp.where(inside(w, 1 if out_in else 0), w, 0)
        total[...] += jax.lax.dot_general(x, w, (((1,), (1 if out_in else 0,)), ((), ())), precision=_precision(x.dtype),
                                          preferred_element_type=jnp.float32)

    @pl.when(step == pl.num_programs(2) - 1)
    def _():
        out[...] = total[...].astype(out.dtype)


def _precision(dtype):
    return jax.lax.Precision.HIGHEST if dtype == jnp.float32 else None


def aligned(lhs, rhs, alignment, *, block=None, out_in=False, layer=None, chip=None, interpret=False):
    """lhs [tiles * tile, k], aligned, times rhs [groups, k, n] (or [groups, n, k] if out_in) -> [tiles * tile, n].

    Places without a row come out as what stands in them times some expert: nobody reads them, so let it be finite. With
    `layer` rhs is [layers, ...], as in `reference`. `block` is blocks.grouped_of_height's choice unless it is given.
    """
    tiles = alignment.expert.shape[0]
    expert = alignment.expert
    if layer is not None:  # its experts are some of all layers'
        expert = expert + jnp.int32(layer) * rhs.shape[1]
        rhs = rhs.reshape((-1,) + rhs.shape[2:])
    if blocks.lies_turned(rhs.shape):
        rhs, out_in = rhs.swapaxes(1, 2), not out_in
    k, n = (rhs.shape[2], rhs.shape[1]) if out_in else rhs.shape[1:]
    if lhs.shape[0] % tiles or lhs.shape[1] != k:
        raise ValueError(f"aligned rows {lhs.shape} must be [{tiles} tiles of equal height, {k}]")
    generation = blocks.chip(chip)
    block = block or blocks.grouped_of_height(generation, lhs.shape[0] // tiles, k, n, lhs.dtype.itemsize, rhs.dtype.itemsize)
    steps = pl.cdiv(k, block.k)

    # A tile without rows asks for the blocks that the last tile with rows left behind: nothing is fetched for it.
    at = lambda tile, step, used: (jnp.minimum(tile, jnp.maximum(used[0] - 1, 0)), jnp.where(tile < used[0], step, steps - 1))

    def left_at(column, tile, step, expert, used):
        return at(tile, step, used)

    def right_at(column, tile, step, expert, used):
        step = at(tile, step, used)[1]
        return (expert[tile], column, step) if out_in else (expert[tile], step, column)

    return pl.pallas_call(
        functools.partial(_body, k=k, out_in=out_in),
        out_shape=jax.ShapeDtypeStruct((lhs.shape[0], n), lhs.dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=2,
            grid=(pl.cdiv(n, block.n), tiles, steps),
            in_specs=[pl.BlockSpec((block.rows, block.k), left_at),
                      pl.BlockSpec((None, block.n, block.k) if out_in else (None, block.k, block.n), right_at)],
            out_specs=pl.BlockSpec((block.rows, block.n), lambda column, tile, step, expert, used: (tile, column)),
            scratch_shapes=[pltpu.VMEM((block.rows, block.n), jnp.float32)]),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary", "arbitrary"),
                                             vmem_limit_bytes=blocks.vmem_limit(generation)),
        interpret=interpret, name="grouped_matmul")(expert, alignment.used, lhs, rhs)


def kernel(lhs, rhs, group_sizes, *, out_in=False, layer=None, chip=None, interpret=False):
    """The same as `reference`, as one kernel: rows are aligned, multiplied, and put back."""
    _check(lhs, rhs, group_sizes, out_in, layer)
    rows, groups = lhs.shape[0], group_sizes.shape[0]
    alignment = align(group_sizes, rows, blocks.grouped_height(blocks.chip(chip), rows, groups, lhs.dtype.itemsize))
    spread = lhs.at[alignment.source].get(mode="fill", fill_value=0)
    product = aligned(spread, rhs, alignment, out_in=out_in, layer=layer, chip=chip, interpret=interpret)
    return product.at[alignment.place].get(mode="fill", fill_value=0)


def reference(lhs, rhs, group_sizes, *, out_in=False, layer=None):
    """lhs [rows, k] sorted by group, rhs [groups, k, n] (or [groups, n, k] if out_in), group_sizes [groups] -> [rows, n].

    Row r of group g is lhs[r] @ rhs[g], summed in float32, in lhs's type. Rows beyond sum(group_sizes) give zero.
    With `layer` (a whole number, traced or not) rhs is [layers, ...]: a kernel that is given rhs[layer] inside a scan has
    it copied first, the stack it reads in place.
    """
    _check(lhs, rhs, group_sizes, out_in, layer)
    rhs = rhs if layer is None else rhs[layer]
    ends = jnp.cumsum(group_sizes)
    row = jnp.arange(lhs.shape[0])

    def add(total, group):
        weight, start, end = group
        mine = (row >= start) & (row < end)
        product = jax.lax.dot_general(lhs, weight.astype(lhs.dtype), (((1,), (1 if out_in else 0,)), ((), ())),
                                      precision=_precision(lhs.dtype), preferred_element_type=jnp.float32)
        return jnp.where(mine[:, None], product, total), None

    n = rhs.shape[1] if out_in else rhs.shape[2]
    total, _ = jax.lax.scan(add, jnp.zeros((lhs.shape[0], n), jnp.float32), (rhs, ends - group_sizes, ends))
    return total.astype(lhs.dtype)


def grouped_matmul(lhs, rhs, group_sizes, *, out_in=False, layer=None, chip=None, implementation=None):
    """`kernel` on a TPU, `reference` elsewhere, or what `implementation` names (blocks.implementation)."""
    chosen = blocks.implementation(implementation)
    if chosen == "reference":
        return reference(lhs, rhs, group_sizes, out_in=out_in, layer=layer)
    return kernel(lhs, rhs, group_sizes, out_in=out_in, layer=layer, chip=chip, interpret=chosen == "interpret")


def _check(lhs, rhs, group_sizes, out_in, layer):
    """(k, n) of operands that fit; ValueError otherwise."""
    form = ("" if layer is None else "[layers] x ") + ("[groups, n, k]" if out_in else "[groups, k, n]")
    if lhs.ndim != 2 or rhs.ndim != (3 if layer is None else 4):
        raise ValueError(f"lhs {lhs.shape} must be [rows, k] and rhs {rhs.shape} {form}; merge batch and tokens into rows")
    groups, *sides = rhs.shape[-3:]
    k, n = sides[::-1] if out_in else sides
    if lhs.shape[1] != k:
        hint = f"; pass out_in={not out_in} if the other side is k" if lhs.shape[1] == n else ""
        raise ValueError(f"lhs {lhs.shape} has k = {lhs.shape[1]}, rhs {rhs.shape} as {form} has {k}{hint}")
    if group_sizes.shape != (groups,) or not jnp.issubdtype(group_sizes.dtype, jnp.integer):
        raise ValueError(f"group_sizes {group_sizes.dtype}{list(group_sizes.shape)} must be whole numbers [{groups}], "
                         "one for each group of rhs")
    if not lhs.shape[0]:
        raise ValueError("lhs has no rows; skip the product")
    for name, operand in (("lhs", lhs), ("rhs", rhs)):
        if not jnp.issubdtype(operand.dtype, jnp.floating):
            raise ValueError(f"{name} is {operand.dtype}; pass bfloat16 or float32")
    return k, n
