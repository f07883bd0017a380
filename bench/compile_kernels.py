#!/usr/bin/env python3
"""Compiles the kernels of reference/kernels for TPUs, without a TPU, and says of each whether it reads its operands in place.

    compile_kernels.py                    the tables of docs/kernels.md, in Markdown
    compile_kernels.py v6e 7x             these generations alone
    compile_kernels.py --quick [v6e ...]  the cases of the tests, one row of JSON each: generation, case, outcome
    compile_kernels.py --sweep 40 [SEED]  random shapes, the outcome of each on every generation, and how many did not compile
    compile_kernels.py --bundles [v6e]    instructions of a step beside the cycles in which its bytes arrive, in Markdown

Needs jax[tpu] (0.10.2 with libtpu 0.0.42.1). Exits with 77 where it is not installed, with 1 where a case does not compile.
"in place": no weight or cache is copied before the kernel; "copied": it compiles, and XLA lays such an operand anew first.
"""
import functools
import json
import math
import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")  # else a metadata query hangs
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v5litepod-4")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))

try:
    import jax
    import libtpu  # noqa: F401
except ImportError:
    print("jax[tpu] is not installed", file=sys.stderr)
    sys.exit(77)
import jax.numpy as jnp
from jax.experimental import topologies

from kernels import blocks, decode_attention, grouped_matmul, nm_pack, strided_nm_matmul

TOPOLOGY = {"v4": "v4:2x2x1", "v5e": "v5e:2x2", "v5p": "v5p:2x2x1", "v6e": "v6e:2x2", "7x": "tpu7x:2x2x1"}
BIG = 1 << 18  # elements from which an operand counts as a weight or a cache
# What the compiler reckons that a device reads from memory in a cycle, median of its matmuls (docs/cost_compiler.md).
BYTES_PER_CYCLE = {"v4": 801, "v5e": 345, "v5p": 838, "v6e": 739, "7x": 1092}


class Case:
    """A call of a kernel: its name, the function of (chip, *operands), the operands as (shape, dtype), and the function of
    the chip that gives (turns of the inner loop of a step, bytes that a step reads, as many without the kernel's packing)."""

    def __init__(self, name, call, operands, step=None):
        self.name, self.call, self.operands, self.step = name, call, operands, step

    def compiled(self, chip):
        sharding = jax.sharding.SingleDeviceSharding(device(chip))
        shapes = [jax.ShapeDtypeStruct(shape, dtype, sharding=sharding) for shape, dtype in self.operands]
        return jax.jit(functools.partial(self.call, chip)).lower(*shapes).compile()

    def outcome(self, chip):
        try:
            text = self.compiled(chip).as_text()
        except Exception as error:  # whatever the compiler says is the finding
            return "no: " + " ".join(str(error).split())[:160]
        big = {sizes(shape[first:]) for shape, _ in self.operands[1:] if math.prod(shape) >= BIG for first in (0, 1)}
        moved = {sizes(int(part) for part in found.split(","))
                 for found in re.findall(r"= \w+\[([\d,]+)\]\S* (?:copy|fusion|transpose|pad|slice|dynamic-slice)\(", text)}
        return "copied" if {part for part in big if math.prod(part) >= BIG} & moved else "in place"


def sizes(shape):
    """Those of a shape, whatever their order; ones do not count."""
    return tuple(sorted(size for size in shape if size > 1))


@functools.cache
def device(chip):
    return topologies.get_topology_desc(platform="tpu", topology_name=TOPOLOGY[chip]).devices[0]


def grouped(rows, groups, k, n, dtype=jnp.bfloat16, out_in=False):
    call = lambda chip, x, w, sizes, **more: grouped_matmul.kernel(x, w, sizes, out_in=out_in, chip=chip, **more)
    weight = (groups, n, k) if out_in else (groups, k, n)
    name = f"{rows} rows, {groups} experts [{'out' if out_in else 'in'}, {'in' if out_in else 'out'}] {weight[1]}×{weight[2]}"

    def step(chip):
        block = blocks.grouped(chip, rows, groups, k, n, dtype.dtype.itemsize, dtype.dtype.itemsize)
        read = block.k * block.n * dtype.dtype.itemsize
        return 1, read, read

    return Case(name, call, [((rows, k), dtype), (weight, dtype), ((groups,), jnp.int32)], step)


def attention(batch, heads, kv_heads, head_dim, tokens, form="apart", lanes=None, value_lanes=None, sinks=False,
              dtype=jnp.bfloat16, **options):
    """form: apart, side by side, or within (values are the first lanes of keys)."""
    lanes = lanes or (2 * head_dim if form == "side by side" else head_dim)
    value_lanes = value_lanes or lanes
    operands = [((batch, heads, head_dim), dtype), ((batch, kv_heads, tokens, lanes), dtype)]
    if form == "apart":
        operands.append(((batch, kv_heads, tokens, value_lanes), dtype))
    operands += [((batch,), jnp.int32)] + ([((heads,), dtype)] if sinks else [])

    def call(chip, q, keys, *rest, **more):
        rest = list(rest)
        values = rest.pop(0) if form == "apart" else None
        within = dict(value_lanes=(0, value_lanes)) if form == "within" else {}
        return decode_attention.kernel(q, keys, values, rest[0], sinks=rest[1] if sinks else None, chip=chip, **within, **options,
                                       **more)

    name = f"{batch}×{heads}/{kv_heads} heads of {head_dim}, {tokens} tokens, {form}, {lanes} lanes"
    if value_lanes != lanes:
        name += f" ({value_lanes} of values)"
    for option in ["sinks"] * sinks + [f"{key} {value:g}" for key, value in options.items()]:
        name += f", {option}"

    def step(chip):
        block = blocks.attention(chip, kv_heads, heads // kv_heads, tokens, lanes, value_lanes, form != "apart",
                                 options.get("window", 0), dtype.dtype.itemsize)
        places = block.heads * block.tokens * dtype.dtype.itemsize
        padded = 2 * blocks.up(head_dim, blocks.LANES) if form != "within" else lanes + value_lanes
        return 1, places * (lanes + (value_lanes if form == "apart" else 0)), places * padded

    return Case(name, call, operands, step)


def sparse(rows, pattern, k, n, dtype=jnp.bfloat16):
    along_in = pattern.along == "in"
    count = (k if along_in else n) // (pattern.of * pattern.stride)
    words = -(-count // pattern.shared)
    tile = (pattern.stride, blocks.up(n, blocks.LANES)) if along_in else (k, pattern.stride)
    call = lambda chip, x, values, codes, **more: strided_nm_matmul.kernel(
        x, nm_pack.Packed(values, codes, pattern, (k, n)), chip=chip, **more)

    def step(chip):
        block = strided_nm_matmul.block_of(blocks.chip(chip), rows, pattern, (k, n), dtype.dtype.itemsize)
        dense = block.k * block.n * dtype.dtype.itemsize
        along = block.k if along_in else block.n
        high, wide = (pattern.stride, block.n) if along_in else (block.k, pattern.stride)
        rows_at_once, lanes_at_once = strided_nm_matmul.piece_of(high, wide)
        turns = along // (pattern.of * pattern.stride * pattern.shared) * (high // rows_at_once) * (wide // lanes_at_once)
        return turns, int(dense * pattern.keep / pattern.of + block.k * block.n * pattern.bits / 8 / pattern.of), dense

    return Case(f"{rows} rows, {pattern.keep} of {pattern.of} along {pattern.along}, stride {pattern.stride}, {k}×{n}", call,
                [((rows, k), dtype), ((words * pattern.shared, pattern.keep) + tile, dtype), ((words,) + tile, pattern.code_dtype)], step)


def in_scan(layers, case):
    """The same over the layers of a stack, by number: the weights or caches are [layers, ...]."""
    shapes = case.operands[:1] + [((layers,) + shape if len(shape) > 2 else shape, dtype) for shape, dtype in case.operands[1:]]

    def call(chip, x, *rest):
        def layer(x, number):
            y = case.call(chip, x, *rest, layer=number)
            return y.astype(x.dtype).reshape(-1)[:1].reshape((1,) * x.ndim) + x, None  # the next one waits for this one
        return jax.lax.scan(layer, x, jnp.arange(layers))[0]

    return Case(f"{layers} layers of {case.name}", call, shapes)


Pattern = nm_pack.Pattern
CASES = {
    "Grouped matmul, bf16": [
        grouped(32, 128, 2048, 768), grouped(32, 32, 2880, 2880), grouped(32, 128, 2880, 2880), grouped(32, 128, 2880, 2944),
        grouped(32, 32, 4096, 2880), grouped(32, 32, 2880, 4096, out_in=True), grouped(9, 256, 1024, 704), grouped(13, 2, 64, 96)],
    "Decode attention, bf16": [
        attention(8, 32, 8, 64, 2048), attention(8, 32, 8, 64, 2048, lanes=128),
        attention(8, 32, 8, 64, 2048, "side by side"), attention(3, 32, 32, 80, 2048), attention(3, 32, 32, 80, 2048, lanes=128),
        attention(8, 32, 32, 96, 2048), attention(8, 32, 8, 112, 2048), attention(8, 32, 8, 120, 2048),
        attention(8, 28, 4, 128, 2048), attention(2, 8, 8, 128, 1000), attention(8, 32, 8, 160, 2048),
        attention(8, 16, 16, 192, 2048, value_lanes=128), attention(8, 16, 8, 256, 2048, softcap=50.0, window=1024),
        attention(7, 64, 8, 64, 4096, "side by side", sinks=True, window=128),
        attention(4, 128, 1, 576, 4096, "within", value_lanes=512)],
    "Strided N:M matmul, bf16": [
        sparse(8, Pattern(2, 4, 128), 4096, 14336), sparse(8, Pattern(2, 4, 16), 2880, 2880),
        sparse(1, Pattern(1, 4, 128), 4096, 4096), sparse(8, Pattern(6, 8, 128), 4096, 4096),
        sparse(8, Pattern(2, 16, 128), 4096, 2880), sparse(8, Pattern(2, 4, 128, "out"), 4096, 4096)],
}
QUICK = [
    in_scan(4, grouped(9, 64, 1024, 1024)), in_scan(4, attention(8, 32, 8, 64, 1024)),
    in_scan(4, sparse(5, Pattern(2, 4, 16), 1024, 2880)), grouped(9, 256, 1024, 704), grouped(13, 2, 2880, 96, jnp.float32, out_in=True),
    attention(7, 64, 8, 64, 1024, "side by side", sinks=True, window=128),
    attention(3, 8, 8, 80, 1024, lanes=128), attention(3, 14, 2, 128, 1000, dtype=jnp.float32, softcap=30.0),
    sparse(8, Pattern(6, 8, 128, "out"), 1000, 2048)]


def random_case(draw):
    """A case with sizes that no rule was made for."""
    dtype = draw.choice([jnp.bfloat16, jnp.float32])
    kind = draw.choice(["grouped", "attention", "sparse"])
    width = lambda: draw.choice([64, 96, 320, 704, 768, 1000, 1408, 2048, 2880, 4096, 6144, 7168])
    if kind == "grouped":
        return grouped(draw.choice([1, 8, 13, 64, 500]), draw.choice([2, 8, 60, 256]), width(), width(), dtype, draw.random() < 0.5)
    if kind == "attention":
        kv_heads = draw.choice([1, 2, 3, 8, 16])
        form = draw.choice(["apart", "side by side"])
        return attention(draw.choice([1, 3, 8]), kv_heads * draw.choice([1, 3, 7, 16]), kv_heads,
                         draw.choice([32, 64, 72, 80, 96, 120, 128, 160, 192, 256]), draw.choice([64, 100, 1000, 1024, 8192]), form,
                         sinks=draw.random() < 0.3, dtype=dtype, window=draw.choice([0, 1, 128, 1000]))
    of = draw.choice([2, 3, 4, 8, 16])
    along = draw.choice(["in", "out"])
    pattern = Pattern(draw.randrange(1, of), of, draw.choice([16, 64, 128] if along == "in" else [128]), along)
    groups = pattern.of * pattern.stride * draw.choice([1, 3, 5])
    k, n = (groups, width()) if along == "in" else (width(), groups)
    return sparse(draw.choice([1, 8, 77]), pattern, k, n, dtype)


def tables(chips):
    failed = False
    for title, cases in CASES.items():
        print(f"\n| {title} | {' | '.join(chips)} |\n| --- |{' --- |' * len(chips)}")
        for case in cases:
            outcomes = [case.outcome(chip) for chip in chips]
            failed |= any(outcome.startswith("no") for outcome in outcomes)
            print(f"| {case.name} | {' | '.join(outcomes)} |", flush=True)
    return failed


BUNDLES = [
    grouped(32, 128, 2048, 768), grouped(32, 32, 2880, 2880), attention(8, 32, 8, 64, 2048),
    attention(8, 32, 8, 64, 2048, "side by side"), attention(8, 32, 8, 128, 2048), attention(8, 32, 32, 128, 2048),
    attention(4, 128, 1, 576, 4096, "within", value_lanes=512),
    sparse(8, Pattern(2, 4, 128), 4096, 4096), sparse(8, Pattern(2, 4, 16), 4096, 4096), sparse(8, Pattern(1, 4, 128), 4096, 4096),
    sparse(8, Pattern(4, 8, 128), 4096, 4096), sparse(8, Pattern(6, 8, 128), 4096, 4096),
    sparse(8, Pattern(2, 16, 128), 4096, 4096), sparse(8, Pattern(2, 4, 128, "out"), 4096, 4096)]


def bundles(chip, index):
    """Instructions of one step of the kernel of a case: those of the loop over steps, and its inner loop's once a turn.

    What a step does only the first or the last time is counted as if it were done every time.
    """
    with tempfile.TemporaryDirectory() as folder:
        flags = f"--xla_jf_dump_to={folder} --xla_jf_dump_llo_text=true --xla_jf_dump_llo_pass_label_regex=final.*"
        subprocess.run([sys.executable, __file__, "--one", chip, str(index)], env={**os.environ, "LIBTPU_INIT_ARGS": flags},
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        names = ("grouped_matmul", "decode_attention", "strided_nm_matmul")
        text = next(file for file in Path(folder).glob("*final_bundles.txt") if "schedule" not in file.name and
                    any(name in file.name for name in names)).read_text()
    depths = [len(depth) for depth in re.findall(r"^\s*0x[0-9a-f]+\s*(?:[A-Z]{2})?\s*: (>*) ?\{", text, re.M)]
    return depths.count(1) + BUNDLES[index].step(chip)[0] * (len(depths) - depths.count(0) - depths.count(1))


def bundle_table(chips):
    for chip in chips:
        print(f"\n| {chip} | bytes a step | cycles to read them | instructions | cycles to read as much padded or dense |\n"
              "| --- | --- | --- | --- | --- |")
        for index, case in enumerate(BUNDLES):
            _, read, plain = case.step(chip)
            arrive, arrive_plain = read // BYTES_PER_CYCLE[chip], plain // BYTES_PER_CYCLE[chip]
            print(f"| {case.name} | {read:,} | {arrive:,} | {bundles(chip, index):,} | {arrive_plain:,} |", flush=True)


def main(arguments):
    chips = [word for word in arguments if word in TOPOLOGY] or list(TOPOLOGY)
    if arguments[:1] == ["--quick"]:
        for chip in chips:
            for case in QUICK:
                print(json.dumps([chip, case.name, case.outcome(chip)], ensure_ascii=False), flush=True)
        return 0
    if arguments[:1] == ["--one"]:
        BUNDLES[int(arguments[2])].compiled(arguments[1])
        return 0
    if arguments[:1] == ["--bundles"]:
        bundle_table(chips)
        return 0
    if arguments[:1] == ["--sweep"]:
        count, seed = int(arguments[1]), int((arguments[2:] + ["7"])[0])
        draw, failures = random.Random(seed), 0
        for _ in range(count):
            case = random_case(draw)
            for chip in chips:
                outcome = case.outcome(chip)
                failures += outcome.startswith("no")
                print(chip, case.operands[0][1].__name__, case.name, outcome, flush=True)
        print(f"{count} shapes on {len(chips)} generations: {failures} did not compile")
        return int(failures > 0)
    return int(tables(chips))


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(status)  # the plugin's own shutdown is slow
