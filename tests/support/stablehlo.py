"""Reads StableHLO text as twinforge writes it, and computes it: a second reader beside MLIR's own, a second evaluator beside XLA.

Products are taken in f64 and rounded once to the result's type. What is not in this file is not read: an op that the writer
should not use fails here.
"""
import math
import re

import ml_dtypes
import numpy as np

DTYPES = {"i1": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "ui8": np.uint8, "ui16": np.uint16,
          "ui32": np.uint32, "ui64": np.uint64, "f16": np.float16, "f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16}

NAME = r"%[A-Za-z0-9_.$#]+"
TENSOR = r"tensor<([0-9x]*?)([a-z][a-z0-9A-Z]*)>"


def tensor_type(text):
    dims, dtype = re.fullmatch(TENSOR, text).groups()
    return tuple(int(d) for d in dims.split("x") if d), DTYPES[dtype]


def names(text):
    return re.findall(NAME, text)


def numbers(text):
    return [int(n) for n in re.findall(r"-?\d+", text)]


def listed(text, key):
    """The list after `key = `, or []."""
    found = re.search(re.escape(key) + r" = \[([-0-9, ]*)\]", text)
    return numbers(found.group(1)) if found else []


class Function:
    def __init__(self, name, arguments, notes, lines):
        self.name, self.arguments, self.notes, self.lines = name, arguments, notes, lines


class Module:
    """`run(*arrays)` gives the results of @main; `composites` counts what was entered through a composite."""

    def __init__(self, text):
        self.functions, self.composites = {}, {}
        self.mesh = re.findall(r'sdy.mesh @mesh = <\[(.*)\]>', text)
        for found in re.finditer(r"  func\.func (public|private) @(\S+?)\((.*?)\) -> (.*?) \{\n(.*?)\n  \}\n", text, re.S):
            _, name, arguments, _, body = found.groups()
            pieces = re.findall(rf"({NAME}): (tensor<[^>]*>)( \{{.*?\}}(?=,\n|$|, %))?", arguments)
            assert name not in self.functions
            self.functions[name] = Function(name, [(p[0], tensor_type(p[1])) for p in pieces], [p[2].strip() for p in pieces],
                                            body.split("\n"))
        assert "main" in self.functions and text.count("func.func") == len(self.functions)

    def run(self, *arrays):
        return self.call("main", arrays)

    def call(self, name, arrays):
        function = self.functions[name]
        assert len(arrays) == len(function.arguments), (name, len(arrays), len(function.arguments))
        values = {}
        for (argument, (shape, dtype)), array in zip(function.arguments, arrays):
            assert array.shape == shape and array.dtype == dtype, (name, argument, array.shape, array.dtype, shape, dtype)
            values[argument] = array
        return self.block(function.lines, values)

    def block(self, lines, values):
        """Runs operations up to the return, whose operands it gives."""
        at = 0
        while at < len(lines):
            line = lines[at].strip()
            at += 1
            if line.startswith(("return ", "stablehlo.return ")):
                return [values[n] for n in names(line.split(" : ")[0])]
            target, written = line.split(" = ", 1)
            if "stablehlo.sort" in written or "stablehlo.while" in written:
                region = []
                indent = len(lines[at - 1]) - len(lines[at - 1].lstrip())
                while not (lines[at].startswith(" " * indent + "}") and "do {" not in lines[at]):
                    region.append(lines[at])
                    at += 1
                region.append(lines[at])
                at += 1
                results = (self.sort if "stablehlo.sort" in written else self.loop)(written, region, values)
            else:
                results = self.operation(written, values)
            if ":" in target:
                target, count = target.split(":")
                assert len(results) == int(count)
                values.update({f"{target}#{i}": r for i, r in enumerate(results)})
            else:
                assert len(results) == 1
                values[target] = results[0]
        raise AssertionError("a block without a return")

    def operation(self, written, values):
        """Results, each checked against the types that the text states."""
        types = written.rsplit(" : ", 1)[1]
        stated = [tensor_type(t) for t in re.findall(r"tensor<[^>]*>", types.split(" -> ")[-1])]
        called = re.match(r'call @(\S+?)\((.*?)\) : ', written)
        composite = re.match(r'stablehlo\.composite "(\S+)" (.*?) \{composite_attributes = .*decomposition = @(\S+), version = 1 : i32\}', written)
        if called:
            results = self.call(called.group(1), [values[n] for n in names(called.group(2))])
        elif composite:
            self.composites[composite.group(1)] = self.composites.get(composite.group(1), 0) + 1
            results = self.call(composite.group(3), [values[n] for n in names(composite.group(2))])
        else:
            op = re.match(r'"?(stablehlo|chlo)\.(\w+)', written).group(2)
            head = written.rsplit(" : ", 1)[0]
            x = [values[n] for n in names(head)]
            result = OPS[op](head, x, stated[-1])
            result = np.asarray(result)
            if op in ELEMENTWISE or op in ("select", "reverse"):
                stated = stated[-1:]
            results = [result.astype(stated[0][1]) if op in PRODUCTS or op in ELEMENTWISE else result]
        for result, (shape, dtype) in zip(results, stated, strict=True):
            assert result.shape == shape and result.dtype == dtype, (written, result.shape, result.dtype)
        return results

    def sort(self, written, region, values):
        assert "is_stable = true" in written and any("compare GT, %left$, %right$" in line for line in region)
        axis = int(re.search(r"dimension = (\d+)", written).group(1))
        x, places = (values[n] for n in names(written.split(") <{")[0]))
        assert axis == x.ndim - 1
        order = np.argsort(-x.astype(np.float64), axis=axis, kind="stable")
        return [np.take_along_axis(x, order, axis), np.take_along_axis(places, order, axis)]

    def loop(self, written, region, values):
        carried = re.findall(rf"({NAME}) = ({NAME})", written)
        state = [values[start] for _, start in carried]
        split = next(i for i, line in enumerate(region) if "do {" in line)
        while True:
            inner = dict(values, **{name: value for (name, _), value in zip(carried, state)})
            if not self.block(region[1:split], dict(inner))[0]:
                return state
            state = self.block(region[split + 1:-1], inner)


# ---- operations: (what is written before the types, operands, (shape, dtype) of the result) -> array

def wide(x):
    return x.astype(np.float64) if x.dtype in (np.float16, np.float32, np.float64, ml_dtypes.bfloat16) else x


def binary(f):
    return lambda head, x, stated: f(wide(x[0]), wide(x[1]))


def unary(f):
    return lambda head, x, stated: f(wide(x[0]))


def divide(head, x, stated):
    if x[0].dtype.kind in "iu":
        return np.trunc(x[0].astype(np.float64) / x[1]).astype(x[0].dtype)
    return wide(x[0]) / wide(x[1])


def literal(word, dtype):
    if word in ("true", "false"):
        return word == "true"
    if word.startswith("0x"):
        size = np.dtype(dtype).itemsize
        return np.frombuffer(int(word, 16).to_bytes(size, "little"), dtype)[0]
    return float(word) if "." in word or "e" in word else int(word)


def constant(head, x, stated):
    shape, dtype = stated
    words = re.findall(r"true|false|0x[0-9A-F]+|-?\d+(?:\.\d*)?(?:e[-+]?\d+)?", re.search(r"dense<(.*)>", head).group(1))
    values = np.array([literal(w, dtype) for w in words], dtype=np.float64 if np.dtype(dtype).kind not in "iub" else None).astype(dtype)
    return np.full(shape, values[0], dtype) if len(words) == 1 else values.reshape(shape)


def compare(head, x, stated):
    direction = re.search(r"compare (\w+),", head).group(1)
    return {"EQ": np.equal, "NE": np.not_equal, "LT": np.less, "LE": np.less_equal, "GT": np.greater, "GE": np.greater_equal}[direction](*x)


def iota(head, x, stated):
    shape, dtype = stated
    axis = int(re.search(r"dim = (\d+)", head).group(1))
    places = np.arange(shape[axis]).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return np.broadcast_to(places, shape).astype(dtype)


def broadcast(head, x, stated):
    dims = listed(head, "dims")
    view = [1] * len(stated[0])
    for i, d in enumerate(dims):
        view[d] = x[0].shape[i]
    return np.broadcast_to(x[0].reshape(view), stated[0])


def slice_(head, x, stated):
    ranges = re.search(r"\[([0-9:, ]*)\]$", head).group(1).split(", ")
    return x[0][tuple(slice(*map(int, r.split(":"))) for r in ranges)]


def pad(head, x, stated):
    out = np.full(stated[0], x[1], x[0].dtype)
    places = []
    for low, interior, size in zip(listed(head, "low"), listed(head, "interior"), x[0].shape):
        places.append(slice(low, low + max(size - 1, 0) * (interior + 1) + (1 if size else 0), interior + 1))
    out[tuple(places)] = x[0]
    return out


def reduce_(head, x, stated):
    axes = tuple(listed(head, "across dimensions"))
    op = re.search(r"applies stablehlo\.(\w+)", head).group(1)
    return {"add": np.sum, "maximum": np.max, "minimum": np.min}[op](wide(x[0]), axis=axes, initial=wide(x[1])[()]).astype(x[0].dtype)


def dot(head, x, stated):
    def pair(key):
        found = re.search(key + r" = \[([0-9, ]*)\] x \[([0-9, ]*)\]", head)
        return [numbers(g) for g in found.groups()] if found else [[], []]
    batch, contract = pair("batching_dims"), pair("contracting_dims")
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    sides = [[None] * x[0].ndim, [None] * x[1].ndim]
    for left, right in list(zip(*batch)) + list(zip(*contract)):
        sides[0][left] = sides[1][right] = next(letters)
    for side in sides:
        for i, letter in enumerate(side):
            side[i] = letter or next(letters)
    free = [[l for i, l in enumerate(side) if i not in batch[k] + contract[k]] for k, side in enumerate(sides)]
    out = [sides[0][i] for i in batch[0]] + free[0] + free[1]
    return np.einsum(f"{''.join(sides[0])},{''.join(sides[1])}->{''.join(out)}", wide(x[0]), wide(x[1]), optimize=True)


def gather(head, x, stated):
    table, index = x
    (axis,) = listed(head, "start_index_map")
    assert listed(head, "collapsed_slice_dims") == [axis]
    assert listed(head, "operand_batching_dims") == listed(head, "start_indices_batching_dims") == list(range(axis))
    assert int(re.search(r"index_vector_dim = (\d+)", head).group(1)) == index.ndim
    assert listed(head, "offset_dims") == list(range(index.ndim, index.ndim + table.ndim - axis - 1))
    sizes = numbers(re.search(r"array<i64: ([0-9, ]*)>", head).group(1))
    assert sizes == [1] * (axis + 1) + list(table.shape[axis + 1:])
    shared, extent = math.prod(table.shape[:axis]), table.shape[axis]
    rows = table.reshape(shared, extent, -1)
    places = np.clip(index.reshape(shared, -1), 0, extent - 1)
    return np.take_along_axis(rows, places[:, :, None], axis=1).reshape(stated[0])


def dynamic_slice(head, x, stated):
    at = [min(max(int(p), 0), n - s) for p, n, s in zip(x[1:], x[0].shape, stated[0])]
    return x[0][tuple(slice(p, p + s) for p, s in zip(at, stated[0]))]


def dynamic_update_slice(head, x, stated):
    out = x[0].copy()
    at = [min(max(int(p), 0), n - s) for p, n, s in zip(x[2:], x[0].shape, x[1].shape)]
    out[tuple(slice(p, p + s) for p, s in zip(at, x[1].shape))] = x[1]
    return out


def convolution(head, x, stated):
    strides = listed(head, "stride")
    pads = re.search(r"pad = \[(.*?)\]\]", head).group(1)
    pads = np.array(numbers(pads)).reshape(-1, 2)
    groups = int(re.search(r"feature_group_count = (\d+)", head).group(1))
    image, kernel = wide(x[0]), wide(x[1])
    spatial = image.ndim - 2
    image = np.pad(image, [(0, 0), *map(tuple, pads), (0, 0)])
    out = np.zeros(stated[0])
    part, each = kernel.shape[-2], kernel.shape[-1] // groups
    for tap in np.ndindex(kernel.shape[:spatial]):
        window = tuple(slice(t, t + s * (n - 1) + 1, s) for t, s, n in zip(tap, strides, stated[0][1:-1]))
        seen = image[(slice(None), *window)]
        for g in range(groups):
            out[..., g * each:(g + 1) * each] += seen[..., g * part:(g + 1) * part] @ kernel[tap][:, g * each:(g + 1) * each]
    return out


def convert(head, x, stated):
    return x[0] != 0 if stated[1] == np.bool_ else x[0].astype(stated[1])


ELEMENTWISE = {
    "add": binary(np.add), "subtract": binary(np.subtract), "multiply": binary(np.multiply), "divide": divide,
    "maximum": binary(np.maximum), "minimum": binary(np.minimum), "power": binary(np.power), "negate": unary(np.negative),
    "abs": unary(np.abs), "exponential": unary(np.exp), "log": unary(np.log), "sqrt": unary(np.sqrt),
    "rsqrt": unary(lambda x: 1 / np.sqrt(x)), "tanh": unary(np.tanh), "sine": unary(np.sin), "cosine": unary(np.cos),
    "logistic": unary(lambda x: 1 / (1 + np.exp(-x))), "floor": unary(np.floor), "sign": unary(np.sign),
    "round_nearest_even": unary(np.round), "erf": unary(np.vectorize(math.erf)),
}
PRODUCTS = {"dot_general", "convolution"}
OPS = {
    **ELEMENTWISE, "constant": constant, "compare": compare, "iota": iota, "broadcast_in_dim": broadcast, "slice": slice_, "pad": pad,
    "reduce": reduce_, "dot_general": dot, "gather": gather, "dynamic_slice": dynamic_slice,
    "dynamic_update_slice": dynamic_update_slice, "convolution": convolution, "convert": convert,
    "select": lambda head, x, stated: np.where(*x),
    "reshape": lambda head, x, stated: x[0].reshape(stated[0]),
    "transpose": lambda head, x, stated: x[0].transpose(listed(head, "dims")),
    "concatenate": lambda head, x, stated: np.concatenate(x, axis=int(re.search(r"dim = (\d+)", head).group(1))),
    "reverse": lambda head, x, stated: np.flip(x[0], listed(head, "dims")),
}
