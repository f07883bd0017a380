#!/usr/bin/env python3
"""Makes cost/chips/<id>.textproto from the tables beside this script.

    make_chips.py            writes the files
    make_chips.py --check    exit 1 where a file differs from what would be written

    chips.csv      what data sheets say, a row per chip; a blank or a word in a numeric column is no number
    ids.csv        what people type, and the generation that says which types multiply
    types.csv      per generation or chip: types that multiply, meet, or are converted
    facts.csv      numbers that chips.csv has no column for, values of other sources (rival), better sources (say)
    sources.csv    sources that several rows cite, and their dates

A scope is a chip's id, its generation, its vendor or its kind; where several of them have rows for one field, the
narrowest counts. Nothing in this script knows a chip.
"""
import csv
import json
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent

# field of chip.proto -> (column, unit, words that a segment of `sources` names it by)
NUMBERS = {
    "cores": ("cores", "", ["MXU", "data sheet"]),
    "matrix_units": ("mxu_per_chip", "", ["MXU", "data sheet"]),
    "matrix_edge": ("mxu_dim", "", ["MXU"]),
    "clock": ("clock_mhz", "MHz", ["clock", "data sheet"]),
    "vector_rate": ("vpu_tflops_f32", "TFLOP/s", ["VPU"]),
    "fp32_rate": ("tflops_fp32", "TFLOP/s", ["peak", "data sheet"]),
    "hbm_size": ("hbm_gib", "GiB", ["HBM", "data sheet"]),
    "hbm_bandwidth": ("hbm_gbps", "GB/s", ["HBM", "data sheet"]),
    "vmem_size": ("vmem_mib", "MiB", ["VMEM", "VMEM per core"]),
    "vmem_bandwidth": ("vmem_gbps", "GB/s", []),
    "cmem_size": ("cmem_mib", "MiB", ["CMEM"]),
    "l2_size": ("l2_mib", "MiB", ["data sheet"]),
    "shared_size_per_core": ("shared_kib_per_sm", "KiB", ["data sheet"]),
    "other_sram_size": ("other_sram_mib", "MiB", ["data sheet"]),
    "links": ("ici_links", "", ["ICI"]),
    "link_bandwidth_one_way": ("ici_gbps_per_link_oneway", "GB/s", ["ICI per link", "ICI 90", "ICI"]),
    "network_bandwidth_both_ways": (("ici_gbps_per_chip_bidir", "nvlink_gbps_bidir"), "GB/s",
                                    ["ICI total", "ICI", "data sheet"]),
    "pod_chips": ("max_pod_chips", "", ["topology", "pod", "data sheet"]),
    "chips_per_host": ("chips_per_host", "", ["peak", "data sheet"]),
    "host_bandwidth": ("host_pcie_gbps_per_chip", "GB/s", ["PCIe", "host", "data sheet"]),
    "datacentre_bandwidth_per_host": ("dcn_gbps_per_host", "GB/s", ["NIC", "DCN", "data sheet"]),
    "design_power": ("tdp_w", "W", ["data sheet"]),
    "measured_power": ("measured_chip_power_w", "W", ["power"]),
    "all_in_power": ("allin_power_w_est", "W", ["all-in power", "MW", "InferenceX"]),
    "price": ("price_usd_per_chip_hour", "USD/h", ["price"]),
    "achieved_matmul": ("achieved_bf16_matmul_frac", "", ["fractions"]),
    "achieved_bandwidth": ("achieved_hbm_frac", "", ["fractions"]),
}

# column -> types that share its rate, and whether with 2:4 zeros
PEAKS = {
    "tflops_bf16": (["bf16", "f16"], False),
    "tflops_fp8": (["f8_e4m3", "f8_e5m2", "f8_e4m3fnuz", "f8_e5m2fnuz"], False),
    "tops_int8": (["i8", "u8"], False),
    "tflops_fp4": (["f4"], False),
    "tops_int4": (["int4"], False),
    "tflops_tf32": (["tf32"], False),
    "sparse24_tflops_bf16": (["bf16", "f16"], True),
    "sparse24_tflops_fp8": (["f8_e4m3", "f8_e5m2", "f8_e4m3fnuz", "f8_e5m2fnuz"], True),
    "sparse24_tops_int8": (["i8", "u8"], True),
    "sparse24_tflops_fp4": (["f4"], True),
}

TEXTS = [("core_kind", "core_kind"), ("hbm_kind", "hbm_type"), ("topology", "topology"),
         ("design_power_kind", "tdp_kind"), ("price_kind", "price_kind"), ("price_region", "price_region"),
         ("other_prices", "other_prices"), ("notes", "conflicts_notes"),
         ("sources", "sources")]

FABRICS = [("torus", "TORUS"), ("switch", "SWITCH"), ("full mesh", "FULL_MESH"), ("pcie only", "HOST_BUS")]


def table(name):
    with open(HERE / name, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def quote(text):
    return json.dumps(text, ensure_ascii=True)


def number(text):
    try:
        return float(text)
    except ValueError:
        return None


def segments(text):
    """`a, b: source; c: source` -> [("a, b", "source"), ...]; a segment without a colon keeps all as source. A
    semicolon in brackets parts nothing."""
    out = []
    for segment in re.split(r"; (?![^(]*\))", text):
        head, colon, tail = segment.partition(": ")
        out.append((head, tail) if colon else ("", segment))
    return out


class Chip:
    """One row of chips.csv and what the other tables add to it."""

    def __init__(self, row, ids, facts, types, sources):
        self.row, self.ids, self.id = row, ids, ids["id"]
        self.scopes = [self.id, ids["generation"], row["vendor"], ids["kind"]]
        self.facts, self.sources = facts, sources
        self.types = [t for t in types if t["scope"] in self.scopes]

    def found(self, field, what):
        """Rows of facts.csv for a field, of the narrowest scope that has any."""
        for scope in self.scopes:
            rows = [f for f in self.facts if (f["scope"], f["field"], f["what"]) == (scope, field, what)]
            if rows:
                return rows
        return []

    def source(self, key):
        """The text of a source, and its date where one is known."""
        if key == "row":
            key = self.row["sources"]
        elif key == "kind":
            key = ", ".join(x for x in (self.row["price_kind"], self.row["price_region"]) if x)
        for row in self.sources:
            if row["key"] == key:
                return row["text"], row["date"]
        return key, max((row["date"] for row in self.sources if row["text"] in key), default="")

    def named_source(self, words):
        """The segment of the row's sources that one of the words names; without one, all of them."""
        for word in words:
            for head, tail in segments(self.row["sources"]):
                if word.lower() in (head or tail).lower():
                    return tail
        return self.row["sources"]

    def note(self, column):
        return "; ".join(tail for head, tail in segments(self.row["conflicts_notes"]) if head == column)

    def said(self, label, key):
        """What facts.csv says better than the table about one number."""
        return next((f[key] for f in self.found(label, "say") if f[key]), "")

    def confidence(self, label, note, source):
        """Second hand where the note says so, and where none of several sources is named for the number."""
        said = self.said(label, "confidence")
        if said:
            return said
        weak = "derived" in note or "estimate" in note or "secondary" in note
        weak = weak or (source == self.row["sources"] and len(segments(source)) > 1)
        return "MEDIUM" if weak and self.row["confidence"] == "high" else self.row["confidence"].upper()

    def number(self, label, column, value, unit, words, span=None):
        """The lines of one number of chips.csv."""
        price = label == "price"
        note = "; ".join(x for x in [self.note(column), self.said(label, "note")] if x)
        source, date = self.source(self.said(label, "source") or self.named_source(words))
        date = self.row["price_date"] if price else date
        lines = [f"value: {value:.15g}"]
        lines += [f"unit: {quote(unit)}"] if unit else []
        lines += [f"source: {quote(source)}"]
        lines += [f"date: {quote(date)}"] if date else []
        lines += [f"confidence: {self.confidence(label, note, source)}"]
        lines += [f"note: {quote(note)}"] if note else []
        for rival in (f for f in self.facts if (f["scope"], f["field"], f["what"]) == (self.id, label, "rival")):
            text = "; ".join(x for x in (self.source(rival["source"])[0], rival["note"]) if x)
            lines.append(f"rival {{ value: {rival['value']} source: {quote(text)} }}")
        lines += [f"column: {quote(column)}"]
        lines += [f"low: {span[0]:.15g}", f"high: {span[1]:.15g}"] if span else []
        return lines

    def fact(self, fact):
        """The lines of one number of facts.csv."""
        source, date = self.source(fact["source"])
        lines = [f"value: {fact['value']}"]
        lines += [f"unit: {quote(fact['unit'])}"] if fact["unit"] else []
        lines += [f"source: {quote(source)}"]
        lines += [f"date: {quote(fact['date'] or date)}"] if fact["date"] or date else []
        lines += [f"confidence: {fact['confidence']}"]
        lines += [f"note: {quote(fact['note'])}"] if fact["note"] else []
        return lines


def block(name, lines):
    return [f"{name} {{"] + ["  " + line for line in lines] + ["}"]


def renamed(chip, field):
    """(field, note) that a number goes by on this chip."""
    for fact in chip.found(field, "rename"):
        return fact["value"], fact["note"]
    return field, ""


def power_lines(chip, text):
    """`90/170/192` is a range of the chip's own power; `769 system W ...` a server's, divided by its chips."""
    span = re.fullmatch(r"(\d+)/(\d+)/(\d+)", text)
    if span:
        low, mean, high = map(float, span.groups())
        return block("measured_power", chip.number("measured_power", "measured_chip_power_w", mean, "W", ["power"],
                                                   (low, high)))
    system = re.fullmatch(r"(\d+) (\D.*)", text)
    if system:
        lines = chip.number("measured_system_power", "measured_chip_power_w", float(system[1]), "W", ["power"])
        return block("measured_system_power", lines + [f"note: {quote(system[2])}"])
    return []


def number_blocks(chip):
    out = []
    for field, (columns, unit, words) in NUMBERS.items():
        for column in (columns,) if isinstance(columns, str) else columns:
            value = number(chip.row[column])
            if value is None:
                continue
            name, note = renamed(chip, field)
            lines = chip.number(name, column, value, unit if "nics" not in name else "", words)
            out += block(name, lines)
            break
    return out + power_lines(chip, chip.row["measured_chip_power_w"])


def fact_blocks(chip):
    out = []
    for field in dict.fromkeys(f["field"] for f in chip.facts if f["what"] == "value"):
        rows, none = chip.found(field, "value"), chip.found(field, "none")
        if rows and not none:
            out += block(field, chip.fact(rows[0]))
    for fact in chip.found("sublane_tile", "tile"):
        if fact["value"]:
            bits, height = fact["value"].split()
            out.append(f"sublane_tile {{ bits: {bits} rows: {height} source: {quote(chip.source(fact['source'])[0])} }}")
    for fact in chip.found("tensor_tile", "tile"):
        m, n, k = fact["value"].split()
        out.append(f"tensor_tile {{ m: {m} n: {n} k_bits: {k} source: {quote(chip.source(fact['source'])[0])} }}")
    return out


def peak_blocks(chip):
    """A peak for every type that multiplies, with its rate where the row has one, then those with 2:4 zeros."""
    out = []
    uses = {"native": "ALONE", "mixed": "MIXED", "published": "PUBLISHED"}
    for sparse in (False, True):
        for kind in (t for t in chip.types if t["what"] in uses):
            dtype = kind["dtype"]
            column = next((c for c, (dtypes, s) in PEAKS.items() if dtype in dtypes and s == sparse), None)
            value = number(chip.row[column]) if column else None
            if value is None and (sparse or kind["what"] == "published"):
                continue
            lines = [f"dtype: {quote(dtype)}"]
            if value is not None:
                unit = "TOP/s" if "tops" in column else "TFLOP/s"
                words = ["int4"] if dtype == "int4" else []
                label = f"peak {dtype}" if not sparse else f"sparse peak {dtype}"
                lines += block("rate", chip.number(label, column, value, unit, words + ["peak", "data sheet"]))
            lines += ["sparse24: true"] if sparse else []
            lines += [f"use: {uses[kind['what']]}"] if kind["what"] != "native" else []
            lines += [f"source: {quote(chip.source(kind['source'])[0])}"]
            lines += [f"note: {quote(kind['note'])}"] if kind["note"] else []
            out += block("peak", lines)
    return out


def legality_lines(chip):
    out = []
    for kind in (t for t in chip.types if t["what"] == "converts"):
        out.append(f"conversion {{ dtype: {quote(kind['dtype'])} as: {quote(kind['as'])} "
                   f"source: {quote(chip.source(kind['source'])[0])} note: {quote(kind['note'])} }}")
    for kind in (t for t in chip.types if t["what"] == "mix"):
        dtypes = " ".join(f"dtype: {quote(d)}" for d in kind["dtype"].split())
        out.append(f"mix {{ {dtypes} source: {quote(chip.source(kind['source'])[0])} }}")
    return out


def network_lines(text):
    """What the topology's words say in numbers: `3D torus 16x20x28`."""
    low = text.lower()
    out = [f"fabric: {name}" for words, name in FABRICS if words in low][:1]
    axes = re.match(r"(\d)D torus(?: (\d+(?:x\d+)+))?", text)
    if axes:
        out.append(f"torus_axes: {axes[1]}")
        out += [f"torus_extent: {extent}" for extent in (axes[2] or "").split("x") if extent]
    return out


def missing_lines(chip):
    """Words in columns that hold numbers."""
    columns = [c for spec in NUMBERS.values() for c in ((spec[0],) if isinstance(spec[0], str) else spec[0])]
    out = []
    for column in columns + list(PEAKS):
        text = chip.row[column]
        if text and number(text) is None and not (column == "measured_chip_power_w" and power_lines(chip, text)):
            out.append(f"missing {{ column: {quote(column)} word: {quote(text)} }}")
    return out


def chip_text(chip):
    row, ids = chip.row, chip.ids
    lines = ["# Made by make_chips.py from the tables beside it; edit those.",
             "# proto-file: cost/chip.proto", "# proto-message: twinforge.Chip", "",
             f"id: {quote(chip.id)}", f"name: {quote(row['name'])}"]
    lines += [f"alias: {quote(a)}" for a in ids["aliases"].split()]
    lines += [f"vendor: {quote(row['vendor'])}", f"year: {row['year']}", f"kind: {ids['kind']}",
              f"generation: {quote(ids['generation'])}", f"confidence: {row['confidence'].upper()}"]
    lines += [f"unverified: {quote(fact['value'])}" for fact in chip.found("unverified", "word")]
    lines += peak_blocks(chip) + legality_lines(chip) + number_blocks(chip) + fact_blocks(chip)
    lines += network_lines(row["topology"])
    lines += [f"{field}: {quote(row[column])}" for field, column in TEXTS if row[column]]
    lines += missing_lines(chip)
    for fact in (f for f in chip.facts if f["what"] == "accept" and f["scope"] == chip.id):
        lines.append(f"accepted {{ finding: {quote(fact['field'])} reason: {quote(fact['value'])} }}")
    return "\n".join(lines) + "\n"


def main():
    rows = {row["name"]: row for row in table("chips.csv")}
    facts, types, sources = table("facts.csv"), table("types.csv"), table("sources.csv")
    check, stale = "--check" in sys.argv[1:], []
    made = set()
    for ids in table("ids.csv"):
        path = HERE / f"{ids['id']}.textproto"
        text = chip_text(Chip(rows[ids["name"]], ids, facts, types, sources))
        made.add(path)
        if not check:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(path.name)
    stale += sorted(path.name for path in HERE.glob("*.textproto") if path not in made)
    if stale:
        print("differ from what make_chips.py writes:", *stale)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
