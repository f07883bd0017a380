"""A third opinion on a certificate: its bounds from docs/certificates.md alone, on Python's whole numbers.

python3 recompute_certificate.py FILE prints the four rungs and the bytes of a device; an assertion fails where a
line does not follow.
"""
import hashlib
import itertools
import re
import sys
from fractions import Fraction

UNIT = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "GB/s": 10**9, "TFLOP/s": 10**12, "TOP/s": 10**12}


def ceil(a, b):
    return -(-a // b)


def up(a, b):
    return ceil(a, b) * b


def zepto(count, rate):
    return int(Fraction(count) * 10**21 / rate)


def seconds(text):
    return int(text.replace(".", ""))


def rows_of(bits, rows):
    """Of a memory tile: a word's elements at least, else the power of two that holds `rows`, at most 8."""
    return max(t for t in (1, 2, 4, 8) if t == 1 or t * bits <= 32 or t < 2 * min(rows, 8))


def recompute(text):
    body, seal = text.rsplit("seal sha256 ", 1)
    assert hashlib.sha256(body.encode()).hexdigest() == seal.strip()
    lines = [re.findall(r'"(?:[^"\\]|\\.)*"|\S+', line) for line in body.splitlines()]
    number = {w[1]: Fraction(w[2]) * UNIT[w[3].strip('"')] for w in lines if w[0] == "number"}
    tile = next(({w[i]: int(w[i + 1]) for i in (1, 3, 5)} for w in lines if w[0] == "tile"), None)
    rate = {w[1]: Fraction(w[4]) * UNIT[w[5].strip('"')] for w in lines if w[0] == "peak" and w[3] == "rate"}
    best = max(rate[w[1]] for w in lines if w[0] == "peak" and w[2] == "alone" and w[1] in rate)
    fact = {w[1]: w[2] for w in lines if w[0] == "workload"}
    devices = int(fact["tp"]) * int(fact.get("dp", 1))
    tpu = next(w for w in lines if w[0] == "chip" and w[1] != "sha256")[2] == "tpu"
    shared = number.get("shared_size") or number.get("shared_size_per_core", 0) * number.get("cores", 0)
    on_chip = sum(int(number.get(k, 0)) for k in ("vmem_size", "cmem_size", "l2_size", "last_level_size")) + int(shared)

    def stored(words):  # dtype bits B shape AxB bytes N
        bits, shape = int(words[2]), [] if words[4] == "scalar" else [int(n) for n in words[4].split("x")]
        count = 1
        for n in shape:
            count *= n
        linear = ceil(count * bits, 8)
        if not tpu:
            expected = linear
        elif len(shape) < 2:
            expected = up(count, 128 * rows_of(bits, ceil(count, 128))) * bits // 8
        else:
            tiled = []
            for i, j in itertools.permutations(range(len(shape)), 2):
                rows = up(shape[j], rows_of(bits, shape[j]))
                tiled.append(count // (shape[i] * shape[j]) * up(shape[i], 128) * rows * bits // 8)
            expected = min(tiled)
        assert int(words[6]) == expected, words
        return expected

    def macs(p, bits):  # the closed forms
        m, k, n, count, pairs = (int(p.get(key, 0)) for key in ("m", "k", "n", "count", "pairs"))
        if tile:
            assert tile["k_bits"] <= bits or tile["k_bits"] % bits == 0
            a, b, c = tile["m"], tile["n"], max(1, tile["k_bits"] // bits)
            return count * {"dense": min(up(m, a) * up(n, b), up(n, a) * up(m, b)) * up(k, c),
                            "scores": up(pairs, a * b) * up(k, c),
                            "mix": min(up(pairs, a * c) * up(n, b), up(pairs, b * c) * up(n, a))}[p["product"]]
        r, units, s = (int(number[key]) for key in ("matrix_edge", "matrix_units", "sublanes"))
        rows = {"dense": ceil(k, r) * min(ceil(n, r) * up(m, s), ceil(m, r) * up(n, s)),
                "scores": ceil(k, r) * ceil(pairs, r),
                "mix": min(ceil(n, r) * ceil(pairs, r), up(n, s) * ceil(pairs, r * r))}[p["product"]]
        return up(rows * count, s * units) * r * r

    def pairs_of(words):
        return dict(zip(words[::2], words[1::2]))

    def computed(p):  # multiply-adds of one device without an idle place
        m, k, n, count, pairs = (int(p.get(key, 0)) for key in ("m", "k", "n", "count", "pairs"))
        return count * {"dense": m * k * n, "scores": pairs * k, "mix": pairs * n}[p["product"]]

    width = {"f4": 4, "f6": 6, "f8": 8, "i8": 8, "u8": 8, "bf16": 16, "f16": 16, "f32": 32, "f64": 64}
    held = {kind: sum(int(w[1]) * stored(w[2:]) for w in lines if w[0] == kind) for kind in ("parameter", "kept")}
    resident = sum(held.values()) <= on_chip
    memory = pairs_of(next(w for w in lines if w[0] == "memory")[1:])
    usable = int(number.get("hbm_usable") or number["hbm_size"])
    assert [int(memory[k]) for k in ("parameters", "cache", "usable", "on_chip")] == [*held.values(), usable, on_chip]
    assert memory["resident"] == ("yes" if resident else "no")
    assert memory["feasible"] == ("yes" if sum(held.values()) <= usable else "no")
    told = "".join(line + "\n" for line in body.splitlines() if line.startswith("workload ") and not line.startswith("workload sha256"))
    assert fact["sha256"] == hashlib.sha256(told.encode()).hexdigest()
    twin = len({w[2] for w in lines if w[0] in ("model", "twin")}) == 2
    read = {"weight": 0, "cache": 0}
    ladder, op, product, least, estimate = [0, 0, 0, 0], None, None, 0, None
    for w in lines:
        if w[0] == "op":
            op = {"nodes": int(w[1]), "op": w[2], "times": [zepto(2 * int(w[5]), devices * best), 0, 0, 0], "bytes": 0}
            op |= {"useful": int(w[5]), "products": 0, "spilled": 0}
        elif w[0] == "product":
            before, product = product, pairs_of(w)
            if product["product"] == "mix":
                assert [before[k] for k in ("product", "m", "n", "pairs")] == ["scores", *[product[k] for k in ("m", "k", "pairs")]], w
        elif w[0] == "as":
            a = pairs_of(w)
            speed = min(rate[t] for t in a["as"].strip('"').split(" x ") if t in rate)
            spent = macs(product, max(width[product[side].split("_")[0]] for side in ("left", "right")))
            assert int(a["tile"]) == spent, w
            assert int(a["useful"]) + int(a["idle"]) == devices * computed(product), w
            assert twin or devices > 1 or op["op"] == '"moe"' or a["idle"] == "0", w
            op["products"] += int(a["useful"])
            op["times"][1] += zepto(2 * int(a["useful"]), devices * speed)
            assert [seconds(a["dtype"]), seconds(a["shape"])] == [zepto(2 * int(a["useful"]), devices * speed), zepto(2 * spent, speed)], w
            op["times"][2] += zepto(2 * spent, speed)
        elif w[0] == "converts" and "vector_rate" in number:
            op["times"][1] = max(op["times"][1], zepto(int(w[1]), number["vector_rate"]))
        elif w[0] in ("weight", "cache"):
            op["bytes"] += 0 if resident else stored(w[1:])
            read[w[0]] += op["nodes"] * stored(w[1:])
        elif w[0] in ("gathered", "written"):
            op["bytes"] += 0 if resident else int(w[1])
        elif w[0] in ("operand", "result"):
            op["bytes"] += max(0, int(w[1]) - on_chip)
            op["spilled"] += max(0, int(w[1]) - on_chip)
        elif w[0] == "bytes":
            assert (int(w[1]), seconds(w[3])) == (op["bytes"], zepto(op["bytes"], number["hbm_bandwidth"])), w
        elif w[0] == "rungs":
            op["times"][3] = zepto(op["bytes"], number["hbm_bandwidth"])
            op["times"] = list(itertools.accumulate(op["times"], max))
            assert [seconds(t) for t in w[1:]] == op["times"], w
            assert twin or op["useful"] == op["products"], w
            least += op["nodes"] * max(op["times"][2], zepto(op["spilled"], number["hbm_bandwidth"]))
            ladder = [sum_ + op["nodes"] * t for sum_, t in zip(ladder, op["times"])]
        elif w[0] == "spared":
            spared = zepto(on_chip, number["hbm_bandwidth"]) + 1
            assert (int(w[1]), seconds(w[3])) == (on_chip, spared), w
            ladder[3] = max(least, ladder[3] - spared)
        elif w[0] == "rung" and w[4] == "B":
            assert seconds(w[6]) == ladder[int(w[1][1])], w
            estimate = [ladder[3]] * 3
        elif w[0] == "estimates":
            assert w[2] == ("expected" if fact["routing"] == "same" else fact["routing"]), w
        elif w[0] in ("adds", "rung"):
            told = [seconds(part) for part in (w[4::2] if w[0] == "adds" else w[6::2])]
            assert told == sorted(told), w
            estimate = [a + b for a, b in zip(estimate, told)] if w[0] == "adds" else estimate
            assert w[0] == "adds" or estimate == told, w
    assert read["weight"] <= held["parameter"] and read["cache"] <= held["kept"]
    return ladder, held["parameter"], held["kept"]


if __name__ == "__main__":
    print(*recompute(open(sys.argv[1]).read()))
