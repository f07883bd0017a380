"""How large the blocks of a kernel are: a rule that keeps them within VMEM, and a table of published tunings.

Every block shape that comes from here is legal on a TPU: its last two sizes are multiples of (8, 128) or the whole
dimension (16 and 32 in place of 8 for elements of two bytes and one). Every choice fits: blocks in flight, sums and
values between them take at most three quarters of the chip's VMEM, padded to tiles as the chip pads them.

The rule. A step of a kernel should read enough bytes to hide what a step costs, and no more than it needs; within that
it takes the split that pads least, the larger of two equal ones. How many bytes are enough comes from the table, as do
widths of expert products and tokens a step for chips that were tuned. Units: bytes, elements.

Sources. VMEM: what the compiler refuses to exceed (libtpu 0.0.42.1). Table: blocks.csv, each row with its own.
"""
import csv
import functools
import math
from pathlib import Path
from typing import NamedTuple

LANES = 128
MIB = 1 << 20
VMEM = {"v4": 16 * MIB, "v5e": 128 * MIB, "v5p": 64 * MIB, "v6e": int(127.94 * MIB), "7x": 64 * MIB}
MXU_EDGE = {"v4": 128, "v5e": 128, "v5p": 128, "v6e": 256, "7x": 256}
KINDS = (("v4", "TPU v4"), ("v5e", "TPU v5 lite"), ("v5e", "TPU v5e"), ("v5p", "TPU v5"),  # v5p after v5e: a prefix of it
         ("v6e", "TPU v6"), ("7x", "TPU7"), ("7x", "TPU v7"))
FEW_BYTES = 4 * MIB  # a step of a chip that the table does not know
MEMORY_ROWS = 8      # of a tile in the chip's memory, of two and four bytes alike
F32_PASSES = 6       # float32 is multiplied in so many passes: a step has enough to do with so many times fewer bytes
OVERHANG = 2         # a split may be this many times smaller than the largest if it pads less


def chip(name=None):
    """The generation to choose for: `name`, else that of the first device, else v5e (for interpret mode).

    Raises ValueError for a name whose VMEM is not known here.
    """
    if name is None:
        import jax
        kind = jax.devices()[0].device_kind
        name = next((generation for generation, prefix in KINDS if kind.startswith(prefix)), None)
        if name is None and kind.startswith("TPU"):
            raise ValueError(f"no VMEM size is known for {kind!r}; pass chip= one of {', '.join(VMEM)}")
        return name or "v5e"
    if name not in VMEM:
        raise ValueError(f"chip {name!r} is not known; pass one of {', '.join(VMEM)}")
    return name


def implementation(name=None):
    """"kernel", "interpret" or "reference": `name`, else the kernel on a TPU and the reference elsewhere."""
    if name is None:
        import jax
        return "kernel" if jax.default_backend() == "tpu" else "reference"
    if name not in ("kernel", "interpret", "reference"):
        raise ValueError(f"implementation {name!r}; pass kernel, interpret or reference")
    return name


def vmem_limit(generation):
    """Bytes of VMEM that a kernel may ask the compiler for."""
    return VMEM[generation] * 7 // 8


def sublanes(itemsize):
    """Rows of a tile: 8 of four bytes, 16 of two, 32 of one."""
    return 8 * max(1, 4 // itemsize)


def lies_turned(shape):
    """Whether the compiler keeps an array of this shape with its last two dimensions swapped, to pad less.

    A kernel reads row-major operands, so XLA would copy such a one, whole, before every call. Swapped by name it is
    read where it lies, and the swap moves nothing.
    """
    *_, rows, lanes = shape
    return up(lanes, MEMORY_ROWS) * up(rows, LANES) < up(rows, MEMORY_ROWS) * up(lanes, LANES)


def up(size, unit):
    return -(-size // unit) * unit


def tile_bytes(shape, itemsize):
    """Bytes that a block takes in VMEM, its last two sizes rounded up to tiles."""
    *lead, rows, lanes = (1,) * (2 - len(shape)) + tuple(shape)
    return math.prod(lead) * up(rows, sublanes(itemsize)) * up(lanes, LANES) * itemsize


def split(size, most, unit):
    """The multiple of `unit` up to `most` that covers `size` with the least overhang; `size` itself where it fits."""
    if size <= most:
        return size
    most = max(unit, most // unit * unit)
    return min(range(most, max(unit, most // OVERHANG) - 1, -unit), key=lambda part: (up(size, part), -part))


@functools.cache
def table():
    """Rows of blocks.csv as (kernel, chip, key, tuned), the last two as dicts of numbers."""
    numbers = lambda text: {name: int(value) for name, value in (part.split("=") for part in text.split())}
    with open(Path(__file__).with_name("blocks.csv"), newline="") as file:
        return [(row["kernel"], row["chip"], numbers(row["key"]), numbers(row["tuned"])) for row in csv.DictReader(file)]


def step_bytes(generation):
    """Bytes that a step should read: the table's median for this chip, else a share of its VMEM."""
    for kernel, name, _, tuned in table():
        if kernel == "weight_step" and name == generation:
            return tuned["bytes"]
    return min(FEW_BYTES, VMEM[generation] // 8)


class Product(NamedTuple):
    """Blocks of x[rows, k] @ w[k, n]. `source` says where they come from."""
    rows: int
    k: int
    n: int
    source: str


def product_bytes(block, itemsize, weight_itemsize):
    """VMEM of one: operands and result twice (one block is in flight while one is used), the sum, a product."""
    moving = (tile_bytes((block.rows, block.k), itemsize) + tile_bytes((block.k, block.n), weight_itemsize) +
              tile_bytes((block.rows, block.n), itemsize))
    converted = tile_bytes((block.k, block.n), itemsize) if weight_itemsize != itemsize else 0
    return 2 * moving + 2 * tile_bytes((block.rows, block.n), 4) + converted


def grouped_height(generation, rows, groups, itemsize):
    """Rows of a row block for `rows` rows spread over `groups` experts.

    A row block holds rows of one expert only, so it is as high as an expert's share, up to the matrix unit's edge.
    """
    share = -(-rows // max(1, min(rows, groups)))
    return min(max(sublanes(itemsize), 1 << (share - 1).bit_length()), MXU_EDGE[generation])


def grouped_of_height(generation, height, k, n, itemsize, weight_itemsize):
    """Product blocks for row blocks of `height` rows times experts of [k, n]."""
    for kernel, _, key, tuned in table():
        if kernel == "grouped" and (key["k"], key["n"]) == (k, n):
            block = Product(height, tuned["tk"], tuned["tn"], "table")
            if product_bytes(block, itemsize, weight_itemsize) <= VMEM[generation] * 3 // 4:
                return block
    return product(generation, height, k, n, itemsize, weight_itemsize)


def grouped(generation, rows, groups, k, n, itemsize, weight_itemsize):
    """Product blocks for `rows` rows spread over `groups` experts of [k, n]."""
    return grouped_of_height(generation, grouped_height(generation, rows, groups, itemsize), k, n, itemsize, weight_itemsize)


def product(generation, height, k, n, itemsize, weight_itemsize):
    """Product blocks of a given height by the rule: k whole if a step of 256 columns may read it, then as many columns."""
    target = step_bytes(generation) // (F32_PASSES if itemsize == 4 else 1)
    while True:
        deep = split(k, max(LANES, target // (min(n, 2 * LANES) * weight_itemsize)), LANES)
        block = Product(height, deep, split(n, max(LANES, target // (deep * weight_itemsize)), LANES), "rule")
        if product_bytes(block, itemsize, weight_itemsize) <= VMEM[generation] * 3 // 4:
            return block
        target //= 2


class Attention(NamedTuple):
    """Blocks of one step of decode attention: `heads` key heads and `tokens` cached places of one sequence."""
    heads: int
    tokens: int
    source: str


def attention_bytes(block, group, lanes, value_lanes, shared, itemsize):
    """VMEM of one: keys and values twice, values once more where they are masked, queries, sums, scores four times."""
    keys = tile_bytes((block.heads, block.tokens, lanes), itemsize)
    values = tile_bytes((block.heads, block.tokens, value_lanes), itemsize)
    small = 2 * tile_bytes((block.heads, group, lanes), 4) + 3 * tile_bytes((block.heads, group, value_lanes), 4)
    scores = tile_bytes((block.heads, group, block.tokens), 4)
    return 2 * keys + (1 if shared else 3) * values + 2 * small + 4 * scores


def attention(generation, kv_heads, group, tokens, lanes, value_lanes, shared, window, itemsize):
    """Attention blocks for a cache of `tokens` places and `kv_heads` heads, each read by `group` query heads.

    A block is read whole, whatever a sequence's length: a step takes no more tokens than the winner of the table
    (whose kernels read pages), nor more than give it enough bytes.
    """
    width = next((known for known in (64, 128, 256) if lanes <= known), 256)
    rows = [(key["context"], tuned["tokens"]) for kernel, name, key, tuned in table()
            if (kernel, name) == ("attention", generation) and key["head_dim"] == width and
            key["bytes"] == itemsize and bool(key["window"]) == bool(window)]
    tuned = next((most for context, most in sorted(rows) if context >= tokens), max(rows)[1] if rows else None)
    token_bytes = kv_heads * (up(lanes, LANES) + (0 if shared else up(value_lanes, LANES))) * itemsize
    most = max(LANES, step_bytes(generation) // token_bytes // LANES * LANES)
    if window:
        most = min(most, up(window, LANES))
    source = "rule"
    if tuned is not None and tuned <= most:
        most, source = tuned, "table"
    block = Attention(kv_heads, split(tokens, most, LANES), source)
    while attention_bytes(block, group, lanes, value_lanes, shared, itemsize) > VMEM[generation] * 3 // 4:
        if block.tokens > 2 * LANES:
            block = Attention(block.heads, split(tokens, block.tokens // 2, LANES), "rule")
        elif block.heads > 1:
            fewer = next(part for part in range(block.heads - 1, 0, -1) if kv_heads % part == 0)
            block = Attention(fewer, block.tokens, "rule")
        else:
            raise ValueError(f"one head of {lanes} lanes with {group} query heads does not fit into {generation}'s VMEM")
    return block


def sparse(generation, height, deep, wide, deep_unit, wide_unit, density, itemsize):
    """Product blocks for a weight [deep, wide] of which `density` is read: multiples of the units, all of it decompressed.

    Raises ValueError where one unit does not fit.
    """
    target = int(step_bytes(generation) / density)
    while True:
        k = split(deep, max(deep_unit, target // (max(wide_unit, 2 * LANES) * itemsize)), deep_unit)
        n = split(wide, max(wide_unit, target // (k * itemsize)), wide_unit)
        block = Product(height, up(k, deep_unit), up(n, wide_unit), "rule")
        if (product_bytes(block, itemsize, itemsize) + 5 * tile_bytes((block.k, block.n), itemsize)
                <= VMEM[generation] * 3 // 4):
            return block
        if block.k <= deep_unit and block.n <= wide_unit:
            raise ValueError(f"a unit of {deep_unit} x {wide_unit} does not fit into {generation}'s VMEM; "
                             "prune with a smaller stride")
        target //= 2
