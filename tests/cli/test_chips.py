"""The chip files as the command line shows, checks and refuses them."""
import csv

import pytest
from tool import ROOT, SHARED

TABLE = ROOT / "cost" / "chips" / "chips.csv"
SERVED = ["v5e", "v5p", "v6e", "tpu7x", "h100_sxm", "h200_sxm", "b200_sxm", "gb200", "b300_sxm", "gb300"]


def rows():
    with open(TABLE, newline="") as file:
        return list(csv.DictReader(file))


def number(text):
    try:
        return float(text)
    except ValueError:
        return None


@pytest.fixture
def mine(tool, tmp_path):
    """A function that writes a chip file: v6e's own text, changed."""
    text = tool.json("chip", "show", "v6e")["text"]

    def write(old="", new="", name="mine.textproto"):
        assert old in text
        path = tmp_path / name
        path.write_text(text.replace(old, new, 1) if old else text)
        return path

    return write


@pytest.mark.skipif(not (SHARED / "data" / "chips.csv").exists(), reason="no shared data here")
def test_the_table_is_the_shared_one():
    assert TABLE.read_bytes() == (SHARED / "data" / "chips.csv").read_bytes()


def test_list_has_every_chip_of_the_table(tool):
    said = tool.json("chip", "list")["chips"]
    assert {chip["name"] for chip in said} == {row["name"] for row in rows()} and len(said) == 27
    assert set(SERVED) <= {chip["id"] for chip in said}
    by_name = {row["name"]: row for row in rows()}
    for chip in said:
        row = by_name[chip["name"]]
        assert (chip.get("hbm_gib"), chip.get("hbm_gbps")) == (number(row["hbm_gib"]), number(row["hbm_gbps"])), chip
        assert chip.get("peak_tops", {}).get("bf16") == number(row["tflops_bf16"]), chip
    text = tool("chip", "list").out
    for word in ("id", "also", "vendor", "HBM GiB", "GB/s", "bf16 TFLOP/s", "fp8", "interconnect"):
        assert word in text.splitlines()[0]
    for line in text.splitlines():
        if line.split()[0] == "v6e":
            assert "trillium" in line and "1638" in line and "918 e5m2" in line and "2D torus of 256, 800 GB/s" in line
        if line.split()[0] in ("tpu8t", "tpu8i"):
            assert line.endswith("not scored (TF1709)")
        if line.split()[0] in ("mi325x", "mi350x", "mi355x"):
            assert line.endswith("not scored (TF1706)")
    assert text.count("not scored") == 5 == len([chip for chip in said if "refusal" in chip])
    assert tool("chip", "show", "mi325x").out.splitlines()[1] == "not scored (TF1706): no source gives its on-chip memory"


@pytest.mark.parametrize("row", rows(), ids=lambda row: row["name"])
def test_show_has_every_number_with_its_source(tool, row):
    """By the table's own name, for people who come from it."""
    said = tool.json("chip", "show", row["name"])
    numbers = list(said["numbers"].values()) + [peak["rate"] for peak in said["peaks"] if peak["rate"]]
    shown = {}
    for entry in numbers:
        assert entry["source"] and entry["confidence"] in ("high", "medium", "low"), entry
        if "column" in entry:
            shown.setdefault(entry["column"], set()).add(entry["value"])
    for column, cell in row.items():
        if column != "year" and number(cell) is not None:
            assert shown.pop(column) == {number(cell)}, column
    assert set(shown) <= {"measured_chip_power_w"}, shown
    assert said["sources"] == row["sources"] and said["notes"] == row["conflicts_notes"]
    human = tool("chip", "show", said["id"]).out
    for name in said["numbers"]:
        assert name in human
    for alias in said["aliases"]:
        assert tool("chip", "show", alias.upper()).out == human, alias


def test_show_says_what_multiplies_and_who_disagrees(tool):
    said = tool.json("chip", "show", "v6e")
    assert {"dtype": "f8_e4m3", "as": "bf16"}.items() <= next(c for c in said["conversions"] if c["dtype"] == "f8_e4m3").items()
    assert ["bf16", "f8_e5m2"] in said["mixes"]
    assert said["missing"]["clock_mhz"] == "unpublished"
    assert [rival["value"] for rival in tool.json("chip", "show", "v5p")["numbers"]["hbm_bandwidth"]["rivals"]] == [2800, 2460]
    price = tool.json("chip", "show", "h100")["numbers"]["price"]
    assert price["value"] == 10.8 and price["date"] == "2025-02" and "scaling-book" in price["source"]
    power = tool.json("chip", "show", "v4")["numbers"]["measured_power"]
    assert (power["value"], power["range"]) == (170, [90, 192])


def test_lint_is_clean(tool):
    done = tool("chip", "lint")
    assert (done.code, done.out, done.err) == (0, "27 chips, nothing to report\n", "")


@pytest.mark.parametrize("word, near", [("v6", "v6e"), ("h100_pcie", "h100_sxm"), ("mi30x", "mi300x"), ("tpu_v6", "v6e"), ("gb100", "gb200")])
def test_unknown_chips_name_the_nearest(tool, tiny, word, near):
    for words in (["chip", "show", word], ["score", tiny, "--chip", word], ["plan", tiny, "--recipe", "tpu-exact-native", "--chip", word]):
        done = tool(*words)
        assert done.code == 3 and done.codes == ["TF1701"] and near in done.err and done.out == "", done


@pytest.mark.parametrize("chip, code, why", [("mi350x", "TF1706", "peak"), ("mi325x", "TF1706", "on-chip memory"), ("tpu8t", "TF1709", "announcements"), ("8i", "TF1709", "announcements")])
def test_no_score_without_its_numbers(tool, tiny, chip, code, why):
    done = tool("score", tiny, "--chip", chip)
    assert done.code == 3 and done.codes == [code] and why in done.err and done.out == "", done


def test_every_served_chip_scores(tool, configs):
    for chip in SERVED:
        said = tool.json("score", "--from-config", configs / "llama-3.1-8b" / "config.json", "--chip", chip, "--batch", 8)
        assert said["ladder"][3]["seconds"] > 0, chip


def test_a_file_of_ones_own(tool, mine):
    path = mine('id: "v6e"', 'id: "v6e"')
    assert tool("chip", "lint", "--chip-file", path).out == "1 chip, nothing to report\n"
    path = mine("value: 1638", "value: 1700")
    assert tool.json("chip", "show", "--chip-file", path)["numbers"]["hbm_bandwidth"]["value"] == 1700
    assert tool.json("chip", "show", "h100", "--chip-file", path)["id"] == "h100_sxm"
    assert len(tool.json("chip", "list", "--chip-file", path)["chips"]) == 27, "it stands in the place of ours"
    other = mine('id: "v6e"', 'id: "v9z"')
    assert len(tool.json("chip", "list", "--chip-file", other)["chips"]) == 28
    done = tool("chip", "lint", "--chip-file", other)
    assert done.code == 1 and "trillium: also a name of v6e" in done.out, done


@pytest.mark.parametrize("old, new, finding", [
    ("value: 1638", "value: 1.638", "hbm_bandwidth: 1.638 is out of range"), ('unit: "GiB"', 'unit: "GiBB"', "unknown unit GiBB"),
    ("value: 1836", "value: 4000", "4.36 times bf16's"), ("value: 1638", "value: nan", "hbm_bandwidth: not a positive number"),
    ("value: 1638", "value: 1e999", "out of range"),
])
def test_findings_of_ones_own_file(tool, mine, old, new, finding):
    done = tool("chip", "lint", "--chip-file", mine(old, new))
    assert done.code == 1 and finding in done.out and done.err == "", done
    assert tool.json("chip", "lint", "--chip-file", mine(old, new), code=1)["findings"]
    assert tool("chip", "show", "--chip-file", mine(old, new), "--format", "json").json["id"] == "v6e"


@pytest.mark.parametrize("text, place, hint", [
    ('id: "x"\nclock {\n  valeu: 3\n}\n', "3:3", "value"), ('id: "x"\nclock { value: fast }\n', "2:16", ""), ('id: "x', "1:7", ""), ("", "1:1", "id"),
    ('id: "x"\nid: "y"\n', "2:1", ""), ('id: "x"\nkind: CPU\n', "2:7", ""), ("}", "1:1", ""), ("{" * 100000, "1:1", ""),
    ("\x00", "1:1", ""), ("<!DOCTYPE html>", "1:", ""),
])
@pytest.mark.parametrize("what", ["list", "show", "lint"])
def test_malformed_files_are_placed(tool, tmp_path, what, text, place, hint):
    path = tmp_path / "bad.textproto"
    path.write_text(text)
    done = tool("chip", what, "--chip-file", path)
    assert done.code == 2 and done.codes == ["TF1708"] and done.out == "", done
    assert f"bad.textproto:{place}" in done.err and hint in done.err, done


def test_what_is_no_file(tool, tmp_path):
    assert tool("chip", "lint", "--chip-file", tmp_path / "absent").code == 2
    assert tool("chip", "lint", "--chip-file", tmp_path).code in (2, 4)
    binary = tmp_path / "binary"
    binary.write_bytes(bytes(range(256)) * 4)
    done = tool("chip", "lint", "--chip-file", binary)
    assert done.code == 2 and done.codes == ["TF1708"] and "\x1b" not in done.err, done
    escape = tmp_path / "escape"
    escape.write_text('id: "x"\nname: "\\033[31m\\377"\n')
    for words in (["list"], ["show"], ["lint"]):
        for form in ("human", "json"):
            done = tool("chip", *words, "--chip-file", escape, "--format", form)
            assert done.code == 2 and done.codes == ["TF1708"] and "escape:2:1: " in done.err and "\x1b" not in done.out + done.err, done
    escape.write_text('id: "x"\nname: "\\033[31m\\n"\nalias: "\\r"\n')
    for what in ("list", "show", "lint"):
        for form in ("human", "json"):
            done = tool("chip", what, "--chip-file", escape, "--format", form)
            assert done.code == (1 if what == "lint" else 0) and not {"\x1b", "\r"} & set(done.out + done.err), done


def test_arguments(tool):
    for words in (["chip", "show"], ["chip", "list", "v6e"], ["chip", "lint", "v6e"]):
        assert tool(*words).code == 2, words
