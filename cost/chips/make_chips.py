#!/usr/bin/env python3
"""Makes cost/chips/<id>.textproto from chips.csv.

    make_chips.py            writes the files beside this script
    make_chips.py --check    exit 1 where a file differs from what would be written

A blank or a word in a numeric column ("unpublished") means missing, and the number is left out. What the table
has no column for (which types a matrix unit multiplies, tiles, which numbers have rivals) stands below, each
with its source.
"""
import csv
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent

# row of chips.csv -> (id, aliases)
CHIPS = {
    "TPU v5e": ("v5e", ["tpu_v5e", "v5litepod"]),
    "TPU v5p": ("v5p", ["tpu_v5p"]),
    "TPU v6e": ("v6e", ["tpu_v6e", "trillium"]),
    "TPU7x": ("tpu7x", ["7x", "v7x", "ironwood"]),
    "H100-SXM-80GB": ("h100_sxm", ["h100"]),
}

# field of chip.proto -> (column, unit, words that a segment of `sources` or of the notes names it by)
NUMBERS = {
    "cores": ("cores", "", ["MXU", "data sheet"]),
    "matrix_units": ("mxu_per_chip", "", ["MXU", "mxu_per_chip", "data sheet"]),
    "matrix_edge": ("mxu_dim", "", ["MXU"]),
    "clock": ("clock_mhz", "MHz", ["clock", "clock_mhz", "data sheet"]),
    "vector_rate": ("vpu_tflops_f32", "TFLOP/s", ["VPU", "vpu_tflops_f32"]),
    "fp32_rate": ("tflops_fp32", "TFLOP/s", ["peak", "data sheet"]),
    "hbm_size": ("hbm_gib", "GiB", ["HBM", "data sheet"]),
    "hbm_bandwidth": ("hbm_gbps", "GB/s", ["HBM", "hbm_gbps", "data sheet"]),
    "vmem_size": ("vmem_mib", "MiB", ["VMEM", "VMEM per core"]),
    "vmem_bandwidth": ("vmem_gbps", "GB/s", ["vmem_gbps"]),
    "l2_size": ("l2_mib", "MiB", ["data sheet"]),
    "shared_size_per_core": ("shared_kib_per_sm", "KiB", ["data sheet"]),
    "other_sram_size": ("other_sram_mib", "MiB", ["other_sram_mib", "data sheet"]),
    "links": ("ici_links", "", ["ICI"]),
    "link_bandwidth_one_way": ("ici_gbps_per_link_oneway", "GB/s", ["ICI per link", "ICI 90", "ICI 45",
                                                                    "ici_gbps_per_link_oneway"]),
    "network_bandwidth_both_ways": (("ici_gbps_per_chip_bidir", "nvlink_gbps_bidir"), "GB/s",
                                    ["ICI total", "ICI", "data sheet"]),
    "pod_chips": ("max_pod_chips", "", ["topology", "pod", "max_pod_chips", "data sheet"]),
    "chips_per_host": ("chips_per_host", "", ["peak", "data sheet"]),
    "host_bandwidth": ("host_pcie_gbps_per_chip", "GB/s", ["PCIe", "data sheet"]),
    "datacentre_bandwidth_per_host": ("dcn_gbps_per_host", "GB/s", ["NIC", "DCN", "dcn_gbps_per_host"]),
    "design_power": ("tdp_w", "W", ["data sheet"]),
    "measured_power": ("measured_chip_power_w", "W", []),
    "all_in_power": ("allin_power_w_est", "W", ["all-in power", "allin_power_w_est", "MW"]),
    "price": ("price_usd_per_chip_hour", "USD/h", ["price", "owner cost"]),
    "achieved_matmul": ("achieved_bf16_matmul_frac", "", ["measured fractions", "achieved_bf16_matmul_frac"]),
    "achieved_bandwidth": ("achieved_hbm_frac", "", ["measured fractions", "achieved_hbm_frac"]),
}

# dtype of a Peak -> (column, 2:4 sparse). Both 8-bit floats share a column.
PEAKS = [
    ("bf16", "tflops_bf16", False), ("f16", "tflops_bf16", False), ("f8_e4m3", "tflops_fp8", False),
    ("f8_e5m2", "tflops_fp8", False), ("i8", "tops_int8", False), ("int4", "tops_int4", False),
    ("f4", "tflops_fp4", False), ("tf32", "tflops_tf32", False), ("bf16", "sparse24_tflops_bf16", True),
    ("f8_e4m3", "sparse24_tflops_fp8", True), ("i8", "sparse24_tops_int8", True),
]

# Which of those types the matrix unit really multiplies: a published rate alone does not say it (the fp8 rate of
# v5p and v6e holds for e5m2 and e4m3b11fnuz, not for the e4m3 of checkpoints).
JAX = "github.com/jax-ml/jax jax/_src/pallas/mosaic/tpu_info.py is_matmul_supported (commit cec06d11)"
NVIDIA = "NVIDIA PTX ISA, mma.sync operand types for sm_90"
ONE_PASS = "XLA's default precision multiplies f32 in one bf16 pass; exact f32 takes three or six, so this is the least"
TPU_CONVERSIONS = [
    ("f32", "bf16", ONE_PASS),
    ("f16", "bf16", "no f16 unit; through f32, one bf16 pass is the least"),
    ("u8", "bf16", "all 256 values are bf16 values"),
]
LEGAL = {
    "v5e": {"native": ["bf16", "i8", "int4"], "mix": [], "source": JAX,
            "conversions": TPU_CONVERSIONS + [
                ("f8_e5m2", "bf16", "accepted by the unit, but no rate above bf16's is published"),
                ("f8_e4m3", "bf16", "the unit takes e4m3b11fnuz, not e4m3; recoding to i8 would be native"),
                ("i8", "bf16", "int8 meets only int8; all values are bf16 values")]},
    "v5p": {"native": ["bf16", "f8_e5m2", "i8", "int4"], "mix": [["bf16", "f8_e5m2"]], "source": JAX,
            "conversions": TPU_CONVERSIONS + [
                ("f8_e5m2", "bf16", "every e5m2 value is a bf16 value"),
                ("f8_e4m3", "bf16", "the unit takes e4m3b11fnuz, not e4m3; recoding to i8 would be native"),
                ("i8", "bf16", "int8 meets only int8; all values are bf16 values")]},
    "tpu7x": {"native": ["bf16", "f8_e4m3", "f8_e5m2"],
              "mix": [["bf16", "f8_e4m3", "f8_e5m2"]], "source": JAX,
              "conversions": TPU_CONVERSIONS + [
                  ("f8_e4m3", "bf16", "every e4m3 value is a bf16 value"),
                  ("f8_e5m2", "bf16", "every e5m2 value is a bf16 value"),
                  ("i8", "bf16", "no integer multiplication on this generation")]},
    "h100_sxm": {"native": ["bf16", "f16", "tf32", "f8_e4m3", "f8_e5m2", "i8"],
                 "mix": [["f8_e4m3", "f8_e5m2"]], "source": NVIDIA,
                 "conversions": [
                     ("f32", "tf32", "ten bits of fraction; exact f32 runs at the vector rate"),
                     ("f8_e4m3", "bf16", "every e4m3 value is a bf16 value"),
                     ("f8_e5m2", "bf16", "every e5m2 value is a bf16 value"),
                     ("f8_e4m3", "f16", "every e4m3 value is an f16 value"),
                     ("f8_e5m2", "f16", "every e5m2 value is an f16 value"),
                     ("f8_e4m3", "tf32", "every e4m3 value is a tf32 value"),
                     ("f8_e5m2", "tf32", "every e5m2 value is a tf32 value"),
                     ("i8", "bf16", "all values are bf16 values"),
                     ("i8", "f16", "all values are f16 values"),
                     ("i8", "tf32", "all values are tf32 values"),
                     ("u8", "bf16", "all values are bf16 values"),
                     ("u8", "tf32", "all values are tf32 values"),
                     ("bf16", "tf32", "every bf16 value is a tf32 value"),
                     ("f16", "tf32", "every normal f16 value is a tf32 value")]},
}
LEGAL["v6e"] = LEGAL["v5p"]

TILES = {"lanes": (128, "vector registers of 8 x 128; jax/_src/pallas/mosaic/tpu_info.py (commit cec06d11)"),
         "sublanes": (8, "vector registers of 8 x 128; jax/_src/pallas/mosaic/tpu_info.py (commit cec06d11)")}
TENSOR_TILE = (16, 8, 256, "NVIDIA PTX ISA: mma.m16n8k16 for 16-bit types, m16n8k32 for 8-bit ones")

# (id, field) -> values of other sources, as chips.csv's notes tell them
RIVALS = {
    ("v5e", "vmem_size"): [(64, "MaxText scoped-VMEM note"), (48, "an MLPerf system file")],
    ("v5e", "link_bandwidth_one_way"): [(50, "docs.cloud.google.com, total divided by links and directions")],
    ("v5e", "peak i8"): [(393, "docs.cloud.google.com")],
    ("v5e", "hbm_bandwidth"): [(859, "docs.cloud.google.com, read as 800 GiB/s")],
    ("v5p", "hbm_bandwidth"): [(2800, "github.com/jax-ml/scaling-book"), (2460, "JAX tpu_info.py")],
    ("v5p", "link_bandwidth_one_way"): [(100, "docs.cloud.google.com")],
    ("tpu7x", "hbm_bandwidth"): [(7400, "JAX tpu_info.py")],
    ("tpu7x", "link_bandwidth_one_way"): [(100, "docs.cloud.google.com")],
    ("tpu7x", "peak bf16"): [(2310, "JAX tpu_info.py")],
    ("tpu7x", "peak f8_e4m3"): [(4600, "JAX tpu_info.py")],
    ("h100_sxm", "clock"): [(1755, "data sheets, lower figure"), (1980, "data sheets, upper figure")],
}


def number_of(row, columns):
    """(column, value) of the first column that holds a number, or None."""
    for column in (columns,) if isinstance(columns, str) else columns:
        try:
            return column, float(row[column])
        except ValueError:
            continue
    return None


def segments(text):
    """`a, b: source; c: source` -> [("a, b", "source"), ...]; a segment without a colon keeps all as source."""
    out = []
    for segment in text.split("; "):
        head, colon, tail = segment.partition(": ")
        out.append((head, tail) if colon else ("", segment))
    return out


def source_of(row, words):
    for word in words:
        for head, tail in segments(row["sources"]):
            if word.lower() in head.lower() or (not head and word.lower() in tail.lower()):
                return tail
    return row["sources"]


def note_of(row, column):
    return "; ".join(tail for head, tail in segments(row["conflicts_notes"]) if head == column)


def quote(text):
    return json.dumps(text, ensure_ascii=True)


def number_lines(chip, row, field, columns, unit, words, label=None):
    """The lines inside `field { ... }`, or [] where the number is missing."""
    found = number_of(row, columns)
    if not found:
        return []
    column, value = found
    lines = [f"value: {value:.15g}"]
    if unit:
        lines.append(f"unit: {quote(unit)}")
    lines.append(f"source: {quote(source_of(row, words))}")
    if field == "price" and row["price_date"]:
        lines.append(f"date: {quote(row['price_date'])}")
    note = note_of(row, column)
    derived = "derived" in note or "estimate" in note
    lines.append(f"confidence: {'MEDIUM' if derived else row['confidence'].upper()}")
    if field == "price":
        note = "; ".join(x for x in (row["price_kind"], row["price_region"], note) if x)
    if note:
        lines.append(f"note: {quote(note)}")
    for rival, source in RIVALS.get((chip, label or field), []):
        lines.append(f"rival {{ value: {rival} source: {quote(source)} }}")
    return lines


def block(name, lines):
    return [f"{name} {{"] + ["  " + line for line in lines] + ["}"] if lines else []


def peak_lines(chip, row, legal):
    out = []
    for dtype, column, sparse in PEAKS:
        unit = "TOP/s" if column.startswith(("tops", "sparse24_tops")) else "TFLOP/s"
        words = [dtype] if dtype == "int4" else ["peak", "data sheet"]
        rate = number_lines(chip, row, "peak", column, unit, words, f"peak {dtype}")
        if rate and dtype in legal["native"]:
            body = [f"dtype: {quote(dtype)}"] + block("rate", rate) + (["sparse24: true"] if sparse else [])
            out += block("peak", body)
    return out


def legality_lines(legal):
    out = []
    for dtype, becomes, note in legal["conversions"]:
        out.append(f"conversion {{ dtype: {quote(dtype)} as: {quote(becomes)} "
                   f"source: {quote(legal['source'])} note: {quote(note)} }}")
    for mix in legal["mix"]:
        dtypes = " ".join(f"dtype: {quote(d)}" for d in mix)
        out.append(f"mix {{ {dtypes} source: {quote(legal['source'])} }}")
    return out


def text_lines(row, fields):
    return [f"{field}: {quote(row[column])}" for field, column in fields if row[column]]


def chip_text(row, chip, aliases):
    tpu = row["vendor"] == "Google"
    lines = ["# Made by make_chips.py from chips.csv; edit those.",
             "# proto-file: cost/chip.proto", "# proto-message: twinforge.Chip", "",
             f"id: {quote(chip)}", f"name: {quote(row['name'])}"]
    lines += [f"alias: {quote(a)}" for a in aliases]
    lines += [f"vendor: {quote(row['vendor'])}", f"year: {row['year']}", f"kind: {'TPU' if tpu else 'GPU'}"]
    lines += peak_lines(chip, row, LEGAL[chip]) + legality_lines(LEGAL[chip])
    for field, (columns, unit, words) in NUMBERS.items():
        lines += block(field, number_lines(chip, row, field, columns, unit, words))
    if tpu:
        for field, (value, source) in TILES.items():
            lines += block(field, [f"value: {value}", f"source: {quote(source)}", "confidence: HIGH"])
    else:
        m, n, k, source = TENSOR_TILE
        lines.append(f"tensor_tile {{ m: {m} n: {n} k_bits: {k} source: {quote(source)} }}")
    lines += text_lines(row, [("core_kind", "core_kind"), ("hbm_kind", "hbm_type"), ("topology", "topology"),
                              ("other_prices", "other_prices"), ("notes", "conflicts_notes"),
                              ("sources", "sources")])
    return "\n".join(lines) + "\n"


def main():
    with open(HERE / "chips.csv", newline="", encoding="utf-8") as file:
        rows = {row["name"]: row for row in csv.DictReader(file)}
    stale = []
    for name, (chip, aliases) in CHIPS.items():
        path = HERE / f"{chip}.textproto"
        text = chip_text(rows[name], chip, aliases)
        if "--check" not in sys.argv[1:]:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(path.name)
    if stale:
        print("differ from what make_chips.py writes:", *stale)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
