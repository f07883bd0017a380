"""What ml_dtypes and numpy say about small floats, as one digest per type and direction.

    python tests/weights/make_dtype_digests.py > tests/weights/dtype_digests.txt

`values`: every code of the type as a double. `rounds`: floats as codes of the type, over
pseudo-random floats of all sizes, pseudo-random floats near 1, every value of the type,
every midpoint between two neighbours, and the floats next to those. dtype_test.cc makes
the same lists with our conversions; test_dtype_digests.py keeps the committed file honest.
"""

import hashlib

import ml_dtypes
import numpy as np

# name, type, bits, has NaN
TYPES = [
    ("f4", ml_dtypes.float4_e2m1fn, 4, False),
    ("f6_e2m3", ml_dtypes.float6_e2m3fn, 6, False),
    ("f6_e3m2", ml_dtypes.float6_e3m2fn, 6, False),
    ("f8_e5m2", ml_dtypes.float8_e5m2, 8, True),
    ("f8_e4m3", ml_dtypes.float8_e4m3fn, 8, True),
    ("f8_e8m0", ml_dtypes.float8_e8m0fnu, 8, True),
    ("f8_e4m3fnuz", ml_dtypes.float8_e4m3fnuz, 8, True),
    ("f8_e5m2fnuz", ml_dtypes.float8_e5m2fnuz, 8, True),
    ("f16", np.float16, 16, True),
    ("bf16", ml_dtypes.bfloat16, 16, True),
]
RANDOM_FLOATS = 100_000


def unsigned(bits):
    return np.uint16 if bits == 16 else np.uint8


def all_values(dtype, bits):
    codes = np.arange(2**bits, dtype=np.uint32).astype(unsigned(bits))
    with np.errstate(invalid="ignore"):  # NaNs are among them
        return codes.view(dtype).astype(np.float64)


def splitmix(count):
    """The generator of Steele, Lea and Flood (2014), seed 0: as easy to write in C++."""
    with np.errstate(over="ignore"):
        z = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def floats_to_round(name, dtype, bits, has_nan):
    random = splitmix(2 * RANDOM_FLOATS)
    anywhere = (random[:RANDOM_FLOATS] >> np.uint64(32)).astype(np.uint32)
    near = (random[RANDOM_FLOATS:] >> np.uint64(32)).astype(np.uint32)
    exponent = np.uint32(107) + ((near >> np.uint32(23)) & np.uint32(0xFF)) % np.uint32(41)
    near = (near & np.uint32(0x807FFFFF)) | (exponent << np.uint32(23))
    values = all_values(dtype, bits)
    values = np.unique(values[np.isfinite(values)] + 0.0)  # ascending, one zero
    middles = (values[:-1] + values[1:]) / 2
    exact = np.concatenate([values, middles]).astype(np.float32).view(np.uint32)
    patterns = np.concatenate([anywhere, near, exact, exact + np.uint32(1), exact - np.uint32(1)])
    floats = patterns.view(np.float32)
    keep = np.ones(len(floats), bool)
    if not has_nan:
        keep &= ~np.isnan(floats)  # what a NaN becomes where there is none is anyone's choice
    if name == "f8_e8m0":
        subnormal = (patterns & np.uint32(0x7F800000)) == 0
        keep &= ~subnormal | (floats == 0)  # ml_dtypes 0.6 does not round these to the nearest
    return floats[keep]


def digest_of_values(dtype, bits):
    values = all_values(dtype, bits).view(np.uint64)
    values[np.isnan(values.view(np.float64))] = 0x7FF8000000000000
    return hashlib.sha256(values.astype("<u8").tobytes()).hexdigest()


def digest_of_rounding(name, dtype, bits, has_nan):
    with np.errstate(all="ignore"):
        rounded = floats_to_round(name, dtype, bits, has_nan).astype(dtype)
    codes = rounded.view(unsigned(bits)).copy()
    codes[np.isnan(rounded.astype(np.float32))] = (2**bits) - 1  # one NaN for all
    return len(codes), hashlib.sha256(codes.astype("<u2" if bits == 16 else "u1").tobytes()).hexdigest()


def lines():
    for name, dtype, bits, has_nan in TYPES:
        yield f"values {name} {2**bits} {digest_of_values(dtype, bits)}"
        count, digest = digest_of_rounding(name, dtype, bits, has_nan)
        yield f"rounds {name} {count} {digest}"


if __name__ == "__main__":
    print("\n".join(lines()))
