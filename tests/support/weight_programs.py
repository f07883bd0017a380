"""Computes weight programs (docs/weights.md) over stored tensors: what an argument's `program` says, by code of its own."""
import json
import re

import ml_dtypes
import numpy as np

DTYPES = {"bool": np.bool_, "u8": np.uint8, "i8": np.int8, "i16": np.int16, "u16": np.uint16, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
          "i32": np.int32, "u32": np.uint32, "f32": np.float32, "f64": np.float64, "i64": np.int64, "u64": np.uint64}


class Reader:
    def __init__(self, text, tensors):
        self.text, self.at, self.tensors = text, 0, tensors

    def take(self, pattern):
        found = re.compile(r"\s*(?:" + pattern + ")").match(self.text, self.at)
        assert found, (pattern, self.text[self.at:self.at + 40])
        self.at = found.end()
        return found.group(0).strip()

    def sees(self, pattern):
        return re.compile(r"\s*(?:" + pattern + ")").match(self.text, self.at) is not None

    def string(self):
        return json.loads(self.take(r'"(?:[^"\\]|\\.)*"'))

    def numbers(self):
        return [int(n) for n in re.findall(r"-?\d+", self.take(r"\[[-0-9, ]*\]"))]

    def typed(self):
        """`: bf16[300, 64]`"""
        self.take(":")
        return DTYPES[self.take(r"\w+")], self.numbers()

    def number(self):
        return float(self.take(r"[-+]?(?:inf|nan|[0-9.]+(?:e[-+]?\d+)?)"))

    # ---- index maps: places of the operand, -1 for fill

    def index_map(self):
        self.take(r"\[")
        places = self.pieces(r"\]")
        return self.copies(places)

    def pieces(self, end):
        places = []
        while not self.sees(end):
            if self.sees(r"\("):
                self.take(r"\(")
                places += self.copies(self.pieces(r"\)"))
            elif self.sees("fill:"):
                places += [-1] * int(self.take(r"fill:\d+")[5:])
            elif self.sees(r"\d+:"):
                places += list(range(*map(int, self.take(r"\d+:-?\d+(?::-?\d+)?").split(":"))))
            else:
                value, *times = self.take(r"\d+(?:\*\d+)?").split("*")
                places += [int(value)] * int(times[0] if times else 1)
        self.take(end)
        return places

    def copies(self, places):
        if not self.sees(r"x \d"):
            return places
        count = int(self.take(r"x \d+")[2:])
        step = int(self.take(r"by \d+")[3:]) if self.sees(r"by \d") else sum(p >= 0 for p in places)
        return [p + i * step if p >= 0 else -1 for i in range(count) for p in places]

    # ---- verbs

    def program(self):
        verb = self.take(r"\w+")
        self.take(r"\(")
        value = getattr(self, "do_" + verb)()
        self.take(r"\)")
        return value

    def do_source(self):
        name = self.string()
        dtype, shape = self.typed()
        value = self.tensors[name]
        assert value.dtype == dtype and list(value.shape) == shape, (name, value.dtype, value.shape, dtype, shape)
        return value

    def do_stack(self):
        before = self.string()
        self.take(",")
        first, end = map(int, self.take(r"\d+:\d+").split(":"))
        self.take(",")
        after = self.string()
        self.typed()
        return np.stack([self.tensors[f"{before}{i}{after}"] for i in range(first, end)])

    def do_fill(self):
        value = self.number()
        dtype, shape = self.typed()
        return np.full(shape, value).astype(dtype)

    def do_take(self):
        x = self.program()
        self.take(",")
        axis = int(self.take(r"\d+"))
        self.take(",")
        places = np.array(self.index_map())
        fill = 0.0
        if self.sees(","):
            self.take(",")
            fill = self.number()
        result = np.take(x, np.maximum(places, 0), axis)
        result[(slice(None),) * axis + (places < 0,)] = fill
        return result

    def do_transpose(self):
        x = self.program()
        self.take(",")
        return x.transpose(self.numbers())

    def do_reshape(self):
        x = self.program()
        self.take(",")
        return x.reshape(self.numbers())

    def do_concat(self):
        axis = int(self.take(r"\d+"))
        parts = []
        while self.sees(","):
            self.take(",")
            parts.append(self.program())
        return np.concatenate(parts, axis)

    def do_cast(self):
        x = self.program()
        self.take(",")
        return x.astype(DTYPES[self.take(r"\w+")])

    def elementwise(self, f):
        x = self.program()
        self.take(",")
        return f(x.astype(np.float64), self.program().astype(np.float64)).astype(x.dtype)

    def do_add(self):
        return self.elementwise(np.add)

    def do_sub(self):
        return self.elementwise(np.subtract)

    def do_mul(self):
        return self.elementwise(np.multiply)

    def do_div(self):
        return self.elementwise(np.divide)


def computed(text, tensors):
    """`tensors`: name -> array, what the files hold."""
    reader = Reader(text, tensors)
    value = reader.program()
    assert reader.at == len(text), text[reader.at:]
    return np.ascontiguousarray(value)
