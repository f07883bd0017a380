"""Kernels of emitted JAX code: the same numbers as a plain loop, nothing read that need not be, every generation compiles."""
import json
import os
import random
import subprocess
import sys
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "reference"), str(ROOT / "tests" / "support")]

from kernels import blocks, decode_attention, grouped_matmul, nm_pack, strided_nm_matmul  # noqa: E402
from kernels.nm_pack import Pattern  # noqa: E402
from tool import SHARED, Tool  # noqa: E402

TYPES = [jnp.float32, jnp.bfloat16]
CHIPS = sorted(blocks.VMEM)
UNIT = 2.0 ** -24  # of float32, in which kernels and references sum


def rounding(dtype):
    """By how much of its magnitude a result in `dtype` may be off for being stored."""
    return float(jnp.finfo(dtype).eps) / 2


def drawn(rng, shape, dtype):
    return jnp.asarray(rng.standard_normal(shape), dtype)


def run(function, *operands):
    """One compilation of the whole, quick rather than fast; None stays None."""
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True})(*operands)


def exact(x):
    return np.asarray(x).astype(np.float64)


def product_bound(x, w, y, dtype):
    """How far a sum of k products in float32 may be off in any order, and then stored."""
    return 2 * x.shape[-1] * UNIT * (np.abs(x) @ np.abs(w)) + rounding(dtype) * np.abs(y) * 1.01


# --- grouped matmul


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("rows, k, n, out_in, sizes", [
    (13, 40, 72, False, [3, 0, 6, 1, 2]),           # a row of no expert, an expert of no row
    (50, 2880, 96, True, [0, 50]),
    (9, 64, 256, False, [0, 0, 0]),                 # nothing to do
    (7, 256, 96, False, {3: 2, 70: 4, 255: 1}),     # 256 experts, lies turned
])
def test_grouped_matmul_is_a_loop_over_experts(dtype, rows, k, n, out_in, sizes):
    if isinstance(sizes, dict):
        sizes = [sizes.get(expert, 0) for expert in range(256)]
    rng = np.random.default_rng(rows)
    x, w = drawn(rng, (rows, k), dtype), drawn(rng, (len(sizes), k, n), dtype)
    want, bound, first = np.zeros((rows, n)), np.zeros((rows, n)), 0
    for expert, size in enumerate(sizes):
        mine, weight = slice(first, first + size), exact(w[expert])
        want[mine] = exact(x[mine]) @ weight
        bound[mine] = product_bound(exact(x[mine]), weight, want[mine], dtype)
        first += size
    stored = w.swapaxes(1, 2) if out_in else w
    # Nothing of an expert without rows may reach the result, so its weights may be anything.
    stored = jnp.where(jnp.asarray(sizes)[:, None, None] > 0, stored, jnp.nan)
    for implementation in ("interpret", "reference"):
        got = run(lambda *operands: grouped_matmul.grouped_matmul(*operands, out_in=out_in, chip="v6e",
                                                                  implementation=implementation),
                  x, stored, jnp.asarray(sizes, jnp.int32))
        assert got.dtype == dtype and got.shape == want.shape
        assert (np.abs(exact(got) - want) <= bound).all(), implementation


def test_choices_become_rows_of_their_experts():
    """Each choice's row is its token's, in a tile of its expert's; where there is no row there are zeros."""
    rng = np.random.default_rng(11)
    x = np.float32(rng.standard_normal((15, 4)) + 9)
    for groups in (1, 7, 300):
        chosen = np.stack([rng.permutation(max(groups, 2))[:2] % groups for _ in range(15)]).reshape(3, 5, 2)
        rows = jax.jit(lambda chosen: grouped_matmul.sort_rows(chosen, groups, jnp.float32))(chosen)
        assert rows.place.shape == chosen.shape and (np.asarray(rows.expert)[rows.place] == chosen).all()
        spread = np.asarray(rows.gather(jnp.asarray(x)))
        assert (spread[rows.place] == x.reshape(3, 5, 1, 4)).all()
        assert (np.abs(spread).sum(1) > 0).sum() == chosen.size == len(np.unique(rows.place))


def test_grouped_matmul_by_more_steps_than_divide():
    """k and n in blocks that leave a rest, the rows of one expert in several tiles."""
    rng = np.random.default_rng(5)
    x, w, sizes = drawn(rng, (40, 300), jnp.float32), drawn(rng, (3, 300, 200), jnp.float32), jnp.asarray([21, 0, 19])
    block = blocks.Product(8, 128, 128, "here")

    def multiplied(x, w, sizes):
        alignment = grouped_matmul.align(sizes, 40, block.rows)
        spread = x.at[alignment.source].get(mode="fill", fill_value=0)
        return grouped_matmul.aligned(spread, w, alignment, block=block, chip="v5e", interpret=True)[alignment.place]

    got = run(multiplied, x, w, sizes)
    weight = exact(w)[[0] * 21 + [2] * 19]
    want = np.einsum("rk,rkn->rn", exact(x), weight)
    assert (np.abs(exact(got) - want) <= 2 * 300 * UNIT * np.einsum("rk,rkn->rn", np.abs(exact(x)), np.abs(weight))).all()


def test_a_layer_of_a_stack_is_read_where_it_lies():
    """Inside a scan over layers, by its number: the same as the layer itself."""
    rng = np.random.default_rng(2)
    x, w = drawn(rng, (5, 48), jnp.float32), drawn(rng, (3, 2, 48, 48), jnp.float32)
    sizes, layers = jnp.asarray([2, 3]), jnp.arange(3)
    product = lambda layer: grouped_matmul.kernel(x, w, sizes, layer=layer, chip="v5e", interpret=True)
    got = run(lambda: jax.lax.scan(lambda _, layer: (None, product(layer)), None, layers)[1])
    weight = exact(w)[:, [0, 0, 1, 1, 1]]  # of each layer, by row
    want, most = np.einsum("rk,lrkn->lrn", exact(x), weight), np.einsum("rk,lrkn->lrn", np.abs(exact(x)), np.abs(weight))
    assert (np.abs(exact(got) - want) <= 2 * 48 * UNIT * most).all()
    assert (np.abs(exact(grouped_matmul.reference(x, w, sizes, layer=1)) - want[1]) <= 2 * 48 * UNIT * most[1]).all()

    q, keys = drawn(rng, (2, 4, 16), jnp.float32), drawn(rng, (3, 2, 2, 24, 16), jnp.float32)
    attended = lambda layer: decode_attention.kernel(q, keys, keys, jnp.asarray([7, 24]), layer=layer, chip="v5e", interpret=True)
    got = run(lambda: jax.lax.scan(lambda _, layer: (None, attended(layer)), None, layers)[1])
    for layer in range(3):
        want = [attend(exact(q[b, h]), *[exact(keys[layer, b, h // 2])] * 2, (7, 24)[b], 0.25, 0, 0, None)
                for b in range(2) for h in range(4)]
        for at, (value, bound) in enumerate(want):
            assert (np.abs(exact(got[layer]).reshape(8, 16)[at] - value) <= bound + rounding(jnp.float32) * np.abs(value) * 1.01).all()

    pattern = Pattern(2, 4, 16)
    weights = [pruned(rng, (64, 128), pattern, jnp.float32) for _ in range(3)]
    x, packed = drawn(rng, (5, 64), jnp.float32), [nm_pack.pack(weight, pattern) for weight in weights]
    stack = jax.tree.map(lambda *layers: jnp.stack(layers), *packed)
    product = lambda layer: strided_nm_matmul.kernel(x, stack, layer=layer, chip="v5e", interpret=True)
    got = run(lambda: jax.lax.scan(lambda _, layer: (None, product(layer)), None, layers)[1])
    for layer, weight in enumerate(weights):
        want = exact(x) @ exact(weight)
        bound = product_bound(exact(x), exact(weight), want, jnp.float32)
        assert (np.abs(exact(got[layer]) - want) <= bound).all()
        assert (np.abs(exact(strided_nm_matmul.reference(x, stack, layer=layer)) - want) <= bound).all()
    with pytest.raises(ValueError, match="pass layer= for a stack"):
        strided_nm_matmul.kernel(x, stack, chip="v5e")


def test_every_tile_belongs_to_one_expert():
    draw = random.Random(3)
    aligned = {tile: jax.jit(lambda sizes, tile=tile: grouped_matmul.align(sizes, 100, tile)) for tile in (1, 8, 16)}
    groups, rows = 7, 100
    for draws in range(60):
        tile, most = draw.choice(list(aligned)), draw.choice([1, 9, 100])
        ends = sorted(min(most, draw.randint(0, most)) for _ in range(groups))
        sizes = [end - start for start, end in zip([0] + ends, ends)] if draws else [0] * groups
        draw.shuffle(sizes)
        at = aligned[tile](jnp.asarray(sizes, jnp.int32))
        source, place, expert = (np.asarray(part) for part in (at.source, at.place, at.expert))
        owner = np.repeat(np.arange(groups), sizes)
        used = sum(-(-size // tile) for size in sizes)
        assert at.used[0] == used <= len(expert) == grouped_matmul.most_tiles(rows, groups, tile)
        for row in range(rows):
            if row < sum(sizes):
                assert source[place[row]] == row and expert[place[row] // tile] == owner[row]
            else:
                assert place[row] == len(source)
        assert sorted(source[source < rows]) == list(range(sum(sizes)))
        assert (expert[max(used - 1, 0):] == expert[max(used - 1, 0)]).all()  # nothing is fetched for tiles without rows


@pytest.mark.parametrize("lhs, rhs, sizes, says", [
    ((4, 8), (2, 16, 8), (2,), "pass out_in=True"),
    ((4, 8), (2, 9, 10), (2,), "k = 8"),
    ((2, 4, 8), (2, 8, 8), (2,), "merge batch and tokens"),
    ((4, 8), (2, 8, 8), (3,), "one for each group"),
    ((0, 8), (2, 8, 8), (2,), "no rows"),
])
def test_grouped_matmul_refuses(lhs, rhs, sizes, says):
    for implementation in ("interpret", "reference"):
        with pytest.raises(ValueError, match=says):
            grouped_matmul.grouped_matmul(jnp.zeros(lhs), jnp.zeros(rhs), jnp.zeros(sizes, jnp.int32), chip="v5e",
                                          implementation=implementation)


def test_whole_numbers_are_refused():
    with pytest.raises(ValueError, match="pass bfloat16 or float32"):
        grouped_matmul.kernel(jnp.zeros((4, 8), jnp.int8), jnp.zeros((2, 8, 8)), jnp.zeros(2, jnp.int32), chip="v5e")


# --- decode attention


def attend(q, keys, values, length, scale, softcap, window, sink):
    """One query head over its cache, in float64: (result, how far off it may be)."""
    first = max(0, length - window) if window else 0
    k, v = keys[first:length], values[first:length]
    if not length:
        return np.zeros(values.shape[1]), np.zeros(values.shape[1])
    scores = scale * k @ q
    off = (len(q) + 8) * UNIT * (abs(scale) * np.abs(k) @ np.abs(q)).max() + 8 * UNIT * np.abs(scores).max()
    if softcap:
        scores, off = softcap * np.tanh(scores / softcap), off + 8 * UNIT * softcap
    highest = max(scores.max(), -np.inf if sink is None else sink)
    weights = np.exp(scores - highest)
    total = weights.sum() + (0 if sink is None else np.exp(sink - highest))
    return weights @ v / total, (3 * off + 4 * (length + 8) * UNIT) * np.abs(v).max(0)


# batch, heads, kv_heads, head_dim, tokens, and what is special
ATTENTION = {
    "plain": (3, 8, 2, 128, 300, {}),
    "64": (3, 8, 4, 64, 384, {}),                                      # tokens lie in the lanes
    "80 in 128": (2, 4, 4, 80, 256, dict(lanes=128, softcap=30.0)),    # queries of the logical size, one head each
    "window": (5, 14, 2, 64, 700, dict(window=100)),
    "side by side": (3, 64, 8, 64, 640, dict(form="side by side", sinks=True, window=128)),
    "latent": (2, 16, 1, 192, 256, dict(form="within", value_lanes=(0, 128), scale=0.1)),
    "values narrower": (2, 4, 2, 96, 256, dict(value_dim=64, sinks=True)),
}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", ATTENTION)
def test_decode_attention_is_a_loop_over_heads(dtype, name, monkeypatch):
    batch, heads, kv_heads, head_dim, tokens, options = ATTENTION[name]
    options = dict(options)
    form, lanes = options.pop("form", "apart"), options.pop("lanes", head_dim)
    value_dim = options.pop("value_dim", lanes)
    monkeypatch.setattr(blocks, "step_bytes", lambda generation: 1)  # the smallest blocks, so that there are several
    rng = np.random.default_rng(tokens)
    lengths = np.array([tokens, 0, 129, 1, 128, 257][:batch]).clip(0, tokens)
    q, keys = drawn(rng, (batch, heads, head_dim), dtype), drawn(rng, (batch, kv_heads, tokens, lanes), dtype)
    keys = keys.at[..., head_dim:].set(0)
    values = drawn(rng, (batch, kv_heads, tokens, value_dim), dtype)
    if form == "within":
        values = keys[..., :options["value_lanes"][1]]
    sinks = drawn(rng, (heads,), dtype) if options.pop("sinks", False) else None
    want, bound = zip(*[attend(exact(q[b, h]), exact(keys[b, h * kv_heads // heads, :, :head_dim]),
                               exact(values[b, h * kv_heads // heads]), lengths[b], options.get("scale", head_dim ** -0.5),
                               options.get("softcap", 0), options.get("window", 0), None if sinks is None else float(sinks[h]))
                        for b in range(batch) for h in range(heads)])
    want, bound = np.stack(want), np.stack(bound)
    largest = np.abs(exact(values)).max()
    bound += rounding(dtype) * (np.abs(want) * 1.01 + (2.1 * largest if dtype == jnp.bfloat16 else 0))  # weights are stored too
    # What lies beyond a sequence's end may be anything.
    beyond = jnp.arange(tokens)[:, None] >= jnp.asarray(lengths)[:, None, None, None]
    keys, values = jnp.where(beyond, jnp.nan, keys), jnp.where(beyond, jnp.nan, values)
    if form == "side by side":
        keys, values = decode_attention.side_by_side(keys, values), None
    elif form == "within":
        values = None
    for implementation in ("interpret", "reference"):
        got = run(lambda q, keys, values, lengths, sinks: decode_attention.decode_attention(
            q, keys, values, lengths, sinks=sinks, chip="v5e", implementation=implementation, **options),
            q, keys, values, jnp.asarray(lengths), sinks)
        assert got.dtype == dtype
        assert (np.abs(exact(got).reshape(want.shape) - want) <= bound).all(), implementation


@pytest.mark.parametrize("change, says", [
    (dict(queries=(2, 1, 4, 64)), "take one token"),
    (dict(keys=(3, 2, 16, 64), values=(3, 2, 16, 64)), "batch must be equal"),
    (dict(keys=(2, 3, 16, 64), values=(2, 3, 16, 64)), "kv_heads divide heads"),
    (dict(keys=(2, 2, 16, 32), values=(2, 2, 16, 32)), "pad the cache"),
    (dict(values=(2, 2, 8, 64)), "agree with keys"),
    (dict(values=None), "as side_by_side makes them"),
    (dict(lengths=(1,)), "lengths"),
    (dict(sinks=(2,)), "one for each query head"),
    (dict(window=-1), "must not be negative"),
])
def test_decode_attention_refuses(change, says):
    shapes = dict(queries=(2, 4, 64), keys=(2, 2, 16, 64), values=(2, 2, 16, 64), sinks=None, lengths=(2,))
    window = change.pop("window", 0)
    zeros = {name: None if shape is None else jnp.zeros(shape, jnp.int32 if name == "lengths" else jnp.float32)
             for name, shape in {**shapes, **change}.items()}
    for call in (decode_attention.reference, lambda **operands: decode_attention.kernel(chip="v5e", **operands)):
        with pytest.raises(ValueError, match=says):
            call(window=window, **zeros)


# --- strided N:M


def pruned(rng, shape, pattern, dtype):
    """A matrix of which keep of each group remain, some of them zero and minus zero."""
    weight = np.asarray(drawn(rng, shape, dtype))
    axis = 0 if pattern.along == "in" else 1
    split = shape[:axis] + (-1, pattern.of, pattern.stride) + shape[axis + 1:]
    members = weight.reshape(split).copy()
    order = np.argsort(rng.random(members.shape), axis=axis + 1).argsort(axis=axis + 1)
    members[order >= pattern.keep] = 0
    members[rng.random(members.shape) < 0.05] = 0
    members[(order < pattern.keep) & (rng.random(members.shape) < 0.05)] = -0.0
    return members.reshape(shape)


PATTERNS = [
    (Pattern(2, 4, 16), (192, 200), jnp.bfloat16),
    (Pattern(2, 4, 128), (1024, 128), jnp.float32),
    (Pattern(1, 4, 8), (320, 130), jnp.float32),
    (Pattern(1, 2, 16), (256, 128), jnp.bfloat16),
    (Pattern(6, 8, 32), (256, 96), jnp.bfloat16),           # a mask
    (Pattern(2, 3, 16), (96, 128), jnp.bfloat16),           # a group of three
    (Pattern(4, 32, 16), (512, 128), jnp.bfloat16),         # 32 bits a group
    (Pattern(2, 4, 128, "out"), (100, 1024), jnp.bfloat16),
    (Pattern(4, 8, 128, "out"), (96, 3072), jnp.float32),
]


@pytest.mark.parametrize("pattern, shape, dtype", PATTERNS)
def test_packing_loses_nothing_and_multiplies_the_same(pattern, shape, dtype):
    rng = np.random.default_rng(shape[0])
    weight = pruned(rng, shape, pattern, dtype)
    packed = nm_pack.pack(weight, pattern)
    assert np.array_equal(np.asarray(nm_pack.unpack(packed)).view(np.uint8), weight.view(np.uint8))
    x = drawn(rng, (5, shape[0]), dtype)
    want = exact(x) @ exact(weight)
    bound = product_bound(exact(x), exact(weight), want, dtype)
    for implementation in ("interpret", "reference"):
        got = run(lambda x, packed: strided_nm_matmul.strided_nm_matmul(x, packed, chip="v5e", implementation=implementation),
                  x, packed)
        assert got.dtype == dtype and (np.abs(exact(got) - want) <= bound).all(), implementation


def test_packed_bytes_are_what_the_formula_says():
    for pattern in (Pattern(1, 4, 128), Pattern(2, 4, 128), Pattern(4, 8, 128), Pattern(6, 8, 128), Pattern(2, 16, 128)):
        whole = pattern.of * pattern.stride * pattern.shared
        packed = nm_pack.pack(np.zeros((whole, 256), ml_dtypes.bfloat16), pattern)
        assert packed.nbytes == whole * 256 * (2 * pattern.keep / pattern.of + pattern.bits / (8 * pattern.of)), pattern


def test_a_mask_of_32_bits_uses_all_of_them():
    pattern = Pattern(8, 32, 1)
    weight = pruned(np.random.default_rng(4), (32, 3), pattern, jnp.float32)
    weight[31] = 1
    weight[:24] = 0
    assert pattern.masked and pattern.bits == 32
    assert np.array_equal(np.asarray(nm_pack.unpack(nm_pack.pack(weight, pattern))).view(np.uint8), weight.view(np.uint8))


def test_steps_that_leave_a_rest(monkeypatch):
    """Several blocks of in and out, and the last of each not full."""
    monkeypatch.setattr(blocks, "step_bytes", lambda generation: 1)
    rng = np.random.default_rng(1)
    for pattern, shape in ((Pattern(2, 4, 16), (448, 300)), (Pattern(2, 4, 128, "out"), (200, 1536))):
        weight = pruned(rng, shape, pattern, jnp.float32)
        x = drawn(rng, (300, shape[0]), jnp.float32)
        got = run(lambda x, packed: strided_nm_matmul.kernel(x, packed, chip="v4", interpret=True), x,
                  nm_pack.pack(weight, pattern))
        want = exact(x) @ exact(weight)
        assert (np.abs(exact(got) - want) <= product_bound(exact(x), exact(weight), want, jnp.float32)).all(), pattern


def test_what_keep_n_of_m_writes_packs(tmp_path):
    """The pattern of the packed form is that of the transform: a forged twin packs and comes back bit for bit."""
    recipe = 'name: "s" require: RETRAIN step { keep_n_of_m { keep: 1 of: 2 along: "in" stride: 4 } where { path: ".*mlp.*" } }'
    done = Tool().forge(ROOT / "samples" / "tiny-llama", recipe, tmp_path / "twin", "--to", "hf")
    assert done.code == 0, done
    data = (tmp_path / "twin" / "model.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    packed = 0
    for name, entry in json.loads(data[8:8 + size]).items():
        if ".mlp." in name:
            first, end = (8 + size + offset for offset in entry["data_offsets"])
            weight = np.frombuffer(data[first:end], ml_dtypes.bfloat16).reshape(entry["shape"]).T.copy()  # stored [out, in]
            form = nm_pack.pack(weight, Pattern(1, 2, 4))
            assert np.array_equal(np.asarray(nm_pack.unpack(form)).view(np.uint8), weight.view(np.uint8)), name
            with pytest.raises(ValueError, match="more than 1 members"):
                nm_pack.pack(weight, Pattern(1, 2, 1))
            packed += 1
    assert packed == 6


@pytest.mark.parametrize("make, says", [
    (lambda: Pattern(4, 4, 16), "1 <= keep < of"),
    (lambda: Pattern(20, 40, 16), "take smaller groups"),
    (lambda: nm_pack.pack(np.zeros((100, 8), np.float32), Pattern(2, 4, 16)), "prune it with a stride that divides"),
    (lambda: nm_pack.pack(np.ones((64, 8), np.float32), Pattern(2, 4, 16)), "more than 2 members"),
    (lambda: apply((4, 32), np.zeros((64, 8), np.float32), Pattern(2, 4, 16)), "merge batch and tokens"),
    (lambda: apply((4, 64), np.zeros((64, 8), ml_dtypes.bfloat16), Pattern(2, 4, 16)), "convert x"),
    (lambda: apply((4, 64), np.zeros((64, 8), np.float32), Pattern(2, 4, 2)), "prune with stride 8 or 128"),
    (lambda: apply((4, 8), np.zeros((8, 512), np.float32), Pattern(2, 4, 64, "out")), "no multiple of 128"),
])
def test_strided_nm_matmul_refuses(make, says):
    with pytest.raises(ValueError, match=says):
        make()


def apply(shape, weight, pattern):
    return strided_nm_matmul.kernel(jnp.zeros(shape), nm_pack.pack(weight, pattern), chip="v5e")


# --- blocks


def test_the_table_is_distilled_from_the_published_one():
    made = subprocess.run([sys.executable, ROOT / "bench" / "kernel_blocks.py", SHARED / "data" / "tpu_kernel_tunings.csv",
                           ROOT / "reference" / "kernels" / "blocks.csv", "--check"], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr


def test_blocks_are_legal_and_fit():
    """Last two sizes of every block are multiples of a tile or whole, and three quarters of VMEM hold what a step needs."""
    draw = random.Random(11)
    for _ in range(4000):
        chip, size = draw.choice(CHIPS), draw.choice([2, 4])
        k, n = (draw.choice([draw.randint(1, 20000), 128 * draw.randint(1, 200), 2880, 7168]) for _ in range(2))
        block = blocks.grouped(chip, draw.choice([1, 7, 64, 5000]), draw.choice([2, 32, 256]), k, n, size, draw.choice([2, 4]))
        assert block.k == k or block.k % 128 == 0 and block.k < k, (chip, k, n, block)
        assert block.n == n or block.n % 128 == 0 and block.n < n, (chip, k, n, block)
        assert block.rows % blocks.sublanes(size) == 0
        assert blocks.product_bytes(block, size, 2) <= blocks.VMEM[chip] * 3 // 4

        heads, group, tokens = draw.choice([1, 2, 3, 8, 32]), draw.choice([1, 2, 7, 16, 128]), draw.choice([1, 100, 2048, 131072])
        lanes, shared = draw.choice([16, 64, 80, 128, 256, 576]), draw.random() < 0.5
        block = blocks.attention(chip, heads, group, tokens, lanes, lanes, shared, draw.choice([0, 128]), size)
        assert block.tokens == tokens or block.tokens % 128 == 0 and block.tokens < tokens
        assert heads % block.heads == 0
        assert blocks.attention_bytes(block, group, lanes, lanes, shared, size) <= blocks.VMEM[chip] * 3 // 4

        unit = 16 * draw.randint(1, 8) * draw.choice([8, 16])
        block = blocks.sparse(chip, draw.choice([1, 8, 256]), k, n, unit, 128, draw.choice([0.25, 0.5, 0.75]), size)
        assert block.k % unit == 0 and block.n % 128 == 0 and block.k < k + unit and block.n < n + 128


def test_what_cannot_fit_is_refused():
    with pytest.raises(ValueError, match="prune with a smaller stride"):
        blocks.sparse("v4", 8, 1 << 16, 4096, 1 << 16, 128, 0.5, 2)
    with pytest.raises(ValueError, match="does not fit"):
        blocks.attention("v4", 1, 1 << 16, 4096, 128, 128, False, 0, 2)


def test_published_tunings_are_used_where_they_fit():
    assert blocks.grouped("v6e", 512, 160, 2560, 5120, 2, 1)[1:] == (2560, 5120, "table")
    assert blocks.grouped("v4", 512, 160, 2560, 5120, 2, 1).source == "rule"  # 16 MiB do not hold it
    assert blocks.attention("v6e", 8, 4, 256, 128, 128, False, 0, 2).source == "table"
    assert blocks.attention("v4", 8, 4, 256, 128, 128, False, 0, 2).source == "rule"  # no row for this chip
    assert blocks.step_bytes("v6e") != blocks.step_bytes("7x")


def test_a_chip_and_an_implementation_are_named_or_found():
    assert blocks.chip("7x") == "7x" and blocks.chip() == "v5e" and blocks.implementation() == "reference"
    with pytest.raises(ValueError, match="pass one of v4"):
        blocks.chip("v99")
    with pytest.raises(ValueError, match="pass kernel, interpret or reference"):
        blocks.implementation("fast")


def test_chips_are_known_by_their_device_kind(monkeypatch):
    import jax
    kinds = {"TPU v4": "v4", "TPU v5 lite": "v5e", "TPU v5e": "v5e", "TPU v5": "v5p", "TPU v5p": "v5p", "TPU v6 lite": "v6e",
             "TPU7x": "7x", "TPU v7x": "7x"}
    for kind, generation in kinds.items():
        monkeypatch.setattr(jax, "devices", lambda: [type("Device", (), {"device_kind": kind})])
        assert blocks.chip() == generation, kind
    monkeypatch.setattr(jax, "devices", lambda: [type("Device", (), {"device_kind": "TPU v99"})])
    with pytest.raises(ValueError, match="pass chip="):
        blocks.chip()


# --- the TPU compiler


def test_every_kernel_compiles_for_every_generation_and_reads_in_place():
    command = [sys.executable, ROOT / "bench" / "compile_kernels.py", "--quick"]
    halves = [subprocess.Popen(command + chips, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
              for chips in (CHIPS[:2], CHIPS[2:])]
    rows = []
    for half in halves:
        out, err = half.communicate()
        assert half.returncode == 0, err[-2000:]
        rows += [json.loads(line) for line in out.splitlines()]
    assert {chip for chip, _, _ in rows} == set(CHIPS) and len(rows) == len({name for _, name, _ in rows}) * len(CHIPS)
    assert [row for row in rows if row[2] != "in place"] == []
