"""One new token of every sequence attends to its cache, and reads no block of the cache beyond its length.

    lengths 5, 2                  blocks of 4 places       read       skipped
    keys [0]  k k k k|k . . .|. . . .                      0, 1       2
    keys [1]  k k . .|. . . .|. . . .                      0          1, 2

Why a kernel. A plain product reads and scores every place that the cache has room for, and writes the scores out. Here
lengths are known before a block is fetched: blocks beyond a sequence's end, or before its window, are not read; scores
stay in VMEM (one pass, with the largest score so far taken out).

Forms of the cache, all with tokens before lanes:
    keys and values apart    [batch, kv_heads, tokens, head_dim] each; head_dim may be padded, to 128 say: queries of the
                             logical head_dim are given zeros, and the scale stays the logical one's
    side by side             values=None, keys [batch, kv_heads, tokens, 2 * head_dim] as `side_by_side` makes them: for
                             head_dim 64 both fill 128 lanes
    values within keys       values=None and value_lanes=(0, 512): a latent cache, one head for all queries
A cache that the compiler keeps with tokens in the lanes (blocks.lies_turned: head_dim 64, 80, 96 and tokens a multiple
of 128) is read as it lies, without padding. Side by side nothing is moved between lanes: queries are zero where values
lie, so that scores are of keys alone, and the product with the whole block holds the values' part in the values' lanes.
"""
import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from . import blocks

LEAST = -0.7 * float(jnp.finfo(jnp.float32).max)  # a score below every other that is still a number


def side_by_side(keys, values):
    """[..., head_dim] twice -> [..., 2 * head_dim], keys first."""
    return jnp.concatenate([keys, values], -1)


def _precision(dtype):
    return jax.lax.Precision.HIGHEST if dtype == jnp.float32 else None


def _first_block(length, window, places):
    return jax.lax.div(jnp.maximum(length - window, 0), places) if window else 0  # never negative: no rounding down needed


def _last_block(length, places):
    return jax.lax.div(jnp.maximum(length - 1, 0), places)


def _body(lengths, first, queries, keys, *refs, scale, softcap, window, places, has_values, has_sinks, turned):
    """`turned` says of keys and of values whether a block is [heads, lanes, tokens]."""
    refs = list(refs)
    values = refs.pop(0) if has_values else keys
    sinks = refs.pop(0) if has_sinks else None
    out, most, total, mixed = refs
    length, step = lengths[pl.program_id(0)], pl.program_id(2)

    @pl.when(step == 0)
    def _():
        # A sink is a score whose value is zero: it has been seen before any place.
        most[...] = sinks[...] if has_sinks else jnp.full_like(most, LEAST)
        total[...] = jnp.ones_like(total) if has_sinks else jnp.zeros_like(total)
        mixed[...] = jnp.zeros_like(mixed)

    block = _first_block(length, window, places) + step

    @pl.when((block <= _last_block(length, places)) & (length > 0))
    def _():
        q, k, v = queries[...], keys[...].astype(queries.dtype), values[...].astype(queries.dtype)
        precision = _precision(q.dtype)
        tokens_in_keys, tokens_in_values = (2 if turn else 1 for turn in turned)
        scores = scale * jax.lax.dot_general(q, k, (((2,), (3 - tokens_in_keys,)), ((0,), (0,))), precision=precision,
                                             preferred_element_type=jnp.float32)
        if softcap:
            scores = softcap * jnp.tanh(scores / softcap)
        seen = lambda of, axis: _seen(block * places + jax.lax.broadcasted_iota(jnp.int32, of.shape, axis), length, window)
        scores = jnp.where(seen(scores, 2), scores, LEAST)
        highest = jnp.maximum(most[...], jnp.max(scores, -1, keepdims=True))
        weights = jnp.where(seen(scores, 2), jnp.exp(scores - highest), 0)
        v = jnp.where(seen(v, tokens_in_values), v, jnp.zeros_like(v))  # what lies beyond may be NaN, and so is 0 * NaN
        fade = jnp.exp(most[...] - highest)
        most[...] = highest
        total[...] = fade * total[...] + jnp.sum(weights, -1, keepdims=True)
        mixed[...] = fade * mixed[...] + jax.lax.dot_general(
            weights.astype(v.dtype), v, (((2,), (tokens_in_values,)), ((0,), (0,))), precision=precision,
            preferred_element_type=jnp.float32)

    @pl.when(step == pl.num_programs(2) - 1)
    def _():
        out[...] = (mixed[...] / jnp.where(total[...] == 0, 1, total[...])).astype(out.dtype)


def _seen(place, length, window):
    return (place < length) & (place >= length - window) if window else place < length


def kernel(queries, keys, values, lengths, *, scale=None, softcap=0.0, window=0, sinks=None, value_lanes=None, layer=None,
           chip=None, interpret=False):
    """The same as `reference`, as one kernel."""
    scale, value_lanes = _check(queries, keys, values, lengths, scale, softcap, window, sinks, value_lanes, layer)
    if layer is not None:  # its sequences are some of all layers'
        keys, values = (None if of is None else of.reshape((-1,) + of.shape[2:]) for of in (keys, values))
    first = jnp.reshape(jnp.int32(0 if layer is None else layer) * queries.shape[0], 1)
    batch, heads, head_dim = queries.shape
    _, kv_heads, tokens, lanes = keys.shape
    group, out_lanes = heads // kv_heads, lanes if values is None else values.shape[3]
    generation = blocks.chip(chip)
    block = blocks.attention(generation, kv_heads, group, tokens, lanes, out_lanes, values is None, window,
                             max(keys.dtype.itemsize, queries.dtype.itemsize))
    places = block.tokens
    steps = pl.cdiv(tokens, places)
    if window:  # a window touches at most this many blocks, wherever it begins
        steps = min(steps, pl.cdiv(window - 1, places) + 1)

    def cache(of):
        """The cache as it lies, and its blocks."""
        def at(sequence, head, step, lengths, first):
            length, row = lengths[sequence], first[0] + sequence
            place = jnp.minimum(_first_block(length, window, places) + step, _last_block(length, places))
            return (row, head, 0, place) if turned else (row, head, place, 0)

        turned, lanes = blocks.lies_turned(of.shape), of.shape[3]
        shape = (lanes, places) if turned else (places, lanes)
        operands.append(of.swapaxes(2, 3) if turned else of)
        specs.append(pl.BlockSpec((None, block.heads) + shape, at))
        return turned

    per_head = lambda sequence, head, step, lengths, first: (sequence, head, 0, 0)
    spread = jnp.pad(queries, ((0, 0), (0, 0), (0, lanes - head_dim))).reshape(batch, kv_heads, group, lanes)
    operands, specs = [spread], [pl.BlockSpec((None, block.heads, group, lanes), per_head)]
    turned = [cache(of) for of in (keys, values) if of is not None]
    if sinks is not None:
        operands.append(sinks.astype(jnp.float32).reshape(kv_heads, group, 1))
        specs.append(pl.BlockSpec((block.heads, group, 1), lambda sequence, head, step, lengths, first: (head, 0, 0)))
    state = lambda lanes: pltpu.VMEM((block.heads, group, lanes), jnp.float32)
    mixed = pl.pallas_call(
        functools.partial(_body, scale=scale, softcap=softcap, window=window, places=places,
                          has_values=values is not None, has_sinks=sinks is not None, turned=(turned[0], turned[-1])),
        out_shape=jax.ShapeDtypeStruct((batch, kv_heads, group, out_lanes), queries.dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=2, grid=(batch, kv_heads // block.heads, steps), in_specs=specs,
            out_specs=pl.BlockSpec((None, block.heads, group, out_lanes), per_head),
            scratch_shapes=[state(1), state(1), state(out_lanes)]),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary"),
                                             vmem_limit_bytes=blocks.vmem_limit(generation)),
        interpret=interpret, name="decode_attention")(lengths.astype(jnp.int32), first, *operands)
    return mixed.reshape(batch, heads, out_lanes)[..., slice(*value_lanes)]


def reference(queries, keys, values, lengths, *, scale=None, softcap=0.0, window=0, sinks=None, value_lanes=None,
              layer=None):
    """queries [batch, heads, head_dim], a cache in one of the forms above, lengths [batch] -> [batch, heads, value_dim].

    lengths counts a sequence's places, the new one among them; a sequence of length 0 gives zeros. scale defaults to
    head_dim ** -0.5 of the queries. softcap and window of 0 are none; a window of w sees the last w places. sinks
    [heads] are scores that take part in the softmax and add nothing. Lanes of values are value_lanes, all by default,
    side by side the second half. With `layer` (a whole number, traced or not) the cache is [layers, batch, ...]: a kernel
    that is given cache[layer] has it copied first. Scores and sums in float32, the result in the queries' type.
    """
    scale, value_lanes = _check(queries, keys, values, lengths, scale, softcap, window, sinks, value_lanes, layer)
    if layer is not None:
        keys, values = keys[layer], None if values is None else values[layer]
    batch, heads, head_dim = queries.shape
    kv_heads, tokens = keys.shape[1:3]
    precision = _precision(queries.dtype)
    q = queries.reshape(batch, kv_heads, heads // kv_heads, head_dim)
    k = keys[..., :head_dim].astype(queries.dtype)
    v = (keys if values is None else values)[..., slice(*value_lanes)].astype(queries.dtype)
    scores = scale * jnp.einsum("bhgd,bhtd->bhgt", q, k, precision=precision, preferred_element_type=jnp.float32)
    if softcap:
        scores = softcap * jnp.tanh(scores / softcap)
    seen = _seen(jnp.arange(tokens), lengths[:, None], window)
    scores = jnp.where(seen[:, None, None], scores, LEAST)
    highest = jnp.max(scores, -1, keepdims=True)
    if sinks is not None:
        sinks = sinks.astype(jnp.float32).reshape(1, kv_heads, -1, 1)
        highest = jnp.maximum(highest, sinks)
    weights = jnp.where(seen[:, None, None], jnp.exp(scores - highest), 0)
    total = jnp.sum(weights, -1, keepdims=True) + (0 if sinks is None else jnp.exp(sinks - highest))
    weights = (weights / jnp.where(total == 0, 1, total)).astype(v.dtype)
    v = jnp.where(seen[:, None, :, None], v, jnp.zeros_like(v))
    mixed = jnp.einsum("bhgt,bhtd->bhgd", weights, v, precision=precision, preferred_element_type=jnp.float32)
    return mixed.reshape(batch, heads, -1).astype(queries.dtype)


def decode_attention(queries, keys, values, lengths, *, chip=None, implementation=None, **options):
    """`kernel` on a TPU, `reference` elsewhere, or what `implementation` names (blocks.implementation)."""
    chosen = blocks.implementation(implementation)
    if chosen == "reference":
        return reference(queries, keys, values, lengths, **options)
    return kernel(queries, keys, values, lengths, chip=chip, interpret=chosen == "interpret", **options)


def _check(queries, keys, values, lengths, scale, softcap, window, sinks, value_lanes, layer):
    """(scale, value lanes) of operands that fit; ValueError otherwise."""
    if queries.ndim != 3 or keys.ndim != (4 if layer is None else 5):
        raise ValueError(f"queries {queries.shape} must be [batch, heads, head_dim], keys {keys.shape} "
                         f"[{'' if layer is None else 'layers, '}batch, kv_heads, tokens, lanes]; take one token of each sequence")
    batch, heads, head_dim = queries.shape
    lanes = keys.shape[-1]
    if keys.shape[-4] != batch or heads % keys.shape[-3]:
        raise ValueError(f"queries {queries.shape} and keys {keys.shape}: batch must be equal and kv_heads divide heads")
    if head_dim > lanes:
        raise ValueError(f"queries have head_dim {head_dim}, the cache only {lanes} lanes; pad the cache")
    if values is not None and values.shape[:-1] != keys.shape[:-1]:
        raise ValueError(f"values {values.shape} must agree with keys {keys.shape} but for their lanes")
    if lengths.shape != (batch,) or not jnp.issubdtype(lengths.dtype, jnp.integer):
        raise ValueError(f"lengths {lengths.dtype}{list(lengths.shape)} must be whole numbers [{batch}]")
    if sinks is not None and sinks.shape != (heads,):
        raise ValueError(f"sinks {sinks.shape} must be [{heads}], one for each query head")
    if softcap < 0 or window < 0:
        raise ValueError(f"softcap {softcap} and window {window} must not be negative; 0 is none")
    if value_lanes is None:
        if values is None and lanes != 2 * head_dim:
            raise ValueError(f"without values, keys of {lanes} lanes must be twice head_dim {head_dim}, as side_by_side makes "
                             "them; pass value_lanes=(first, end) for values within keys")
        value_lanes = (head_dim, lanes) if values is None else (0, values.shape[-1])
    return head_dim ** -0.5 if scale is None else scale, value_lanes
