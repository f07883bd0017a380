#!/usr/bin/env python3
"""Distils published tunings of TPU kernels into the table that the emitted kernels read.

    kernel_blocks.py TUNINGS.csv reference/kernels/blocks.csv      writes the table
    kernel_blocks.py TUNINGS.csv reference/kernels/blocks.csv --check      exits 1 where the table is another one

TUNINGS.csv says which block sizes won a search, one row a search, in the columns kernel, chip, chip_as_written, key,
tuned, source_path. Three things of it carry over to kernels that are not the ones tuned there:

    attention     how many cached tokens a step reads, by chip, head_dim, bytes of an element, window and context
    grouped       in and out width of an expert's block, by the expert's shape (its chip is not stated)
    weight_step   bytes of weight that a step of a product with few rows reads, by chip

A row's `won` is how many of the `of` searches with its key chose these sizes, the rest another; of a tie, the smaller.
For weight_step both are the number of searches, and the figure is their median.
"""
import collections
import csv
import io
import statistics
import sys

CHIPS = {"TPU v5e": "v5e", "TPU v6e": "v6e", "TPU7x": "7x", "not stated": "any"}
ELEMENT_BYTES = {"bfloat16": 2, "float8_e4m3fn": 1, "int8": 1, "float4_e2m1fn": 0.5}
FEW_ROWS = 64
COLUMNS = ("kernel", "chip", "key", "tuned", "won", "of", "source")


def fields(text):
    return dict(part.split("=") for part in text.split())


def winner(counts):
    """The sizes that most searches chose."""
    return min(counts.items(), key=lambda item: (-item[1], item[0]))


def attention(rows):
    searches, sources = collections.defaultdict(collections.Counter), {}
    for row in rows:
        if not row["kernel"].startswith("ragged_paged_attention_v3"):
            continue
        key, tuned = fields(row["key"]), fields(row["tuned"])
        window = 0 if key["sliding_window"] == "None" else int(key["sliding_window"])
        at = (CHIPS[row["chip"]], int(key["head_dim"]), ELEMENT_BYTES[key["kv_dtype"]], window, int(key["max_model_len"]))
        searches[at][int(key["page_size"]) * int(tuned["kv_pages_per_block"])] += 1
        sources[at] = row["source_path"]
    for at in sorted(searches):
        tokens, won = winner(searches[at])
        key = "head_dim={} bytes={} window={} context={}".format(*at[1:])
        yield "attention", at[0], key, f"tokens={tokens}", won, sum(searches[at].values()), sources[at]


def grouped(rows):
    searches, sources = collections.defaultdict(collections.Counter), {}
    for row in rows:
        if row["kernel"] != "grouped_matmul":
            continue
        key, tuned = fields(row["key"]), fields(row["tuned"])
        at = (CHIPS[row["chip"]], int(key["k"]), int(key["n"]))
        block = (min(int(tuned["tk"]), at[1]), min(int(tuned["tn"]), at[2]))  # some rows name more than there is
        searches[at][block] += 1
        sources[at] = row["source_path"]
    for at in sorted(searches):
        (tk, tn), won = winner(searches[at])
        yield "grouped", at[0], f"k={at[1]} n={at[2]}", f"tk={tk} tn={tn}", won, sum(searches[at].values()), sources[at]


def weight_step(rows):
    read, sources = collections.defaultdict(list), {}
    for row in rows:
        key, tuned = fields(row["key"]), fields(row["tuned"])
        if row["kernel"] != "quantized_matmul" or int(key["n_batch"]) > FEW_ROWS:
            continue
        chip = CHIPS[row["chip"]]
        read[chip].append(int(int(tuned["out_block"]) * int(tuned["in_block"]) * ELEMENT_BYTES[key["w_dtype"]]))
        sources[chip] = row["source_path"]
    for chip in sorted(read):
        count = len(read[chip])
        yield "weight_step", chip, f"rows={FEW_ROWS}", f"bytes={int(statistics.median(read[chip]))}", count, count, sources[chip]


def table(path):
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for part in (attention, grouped, weight_step):
        writer.writerows(part(rows))
    return out.getvalue()


def main():
    if len(sys.argv) not in (3, 4) or sys.argv[3:] not in ([], ["--check"]):
        sys.exit(__doc__)
    made = table(sys.argv[1])
    if sys.argv[3:]:
        with open(sys.argv[2]) as file:
            sys.exit(0 if file.read() == made else f"{sys.argv[2]} is not what {sys.argv[1]} gives")
    with open(sys.argv[2], "w") as file:
        file.write(made)


if __name__ == "__main__":
    main()
