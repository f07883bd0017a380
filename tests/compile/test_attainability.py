"""docs/attainability.md: its sizes are those of the file that they are from, no table is missing, and the recipe is what the tables say."""
import json
import re
import sys

import pytest
from tool import ROOT, SHARED

sys.path.insert(0, str(ROOT / "bench"))
import attainability  # noqa: E402

PAGE = (ROOT / "docs" / "attainability.md").read_text()


def table(name):
    """Its rows as lists of cells."""
    text = PAGE.split(f"<!-- {name} -->\n")[1].split(f"<!-- /{name} -->")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|") and "---" not in line]


@pytest.mark.skipif(not (SHARED / "data" / "model_configs.json").exists(), reason="the file that the sizes are from is not here")
def test_sizes_are_those_of_their_file():
    data = json.loads((SHARED / "data" / "model_configs.json").read_text())
    known = {kind: {entry["name"]: entry for entry in data[kind]} for kind in ("models", "partial_models")}
    for entry in attainability.models().values():
        there = known[entry["list"]][entry["name"]]
        assert (entry["config"], entry["source"], entry["confidence"]) == (there["config"], there["source"], there["confidence"]), entry["key"]
        sizes = {key for key, value in entry["changed"].items() if isinstance(value, int) and not isinstance(value, bool)}
        assert not sizes or entry["why"], f"{entry['key']} changes {sizes} and does not say why"


@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_each_pair_has_its_row(phase):
    rows = [row[0] for row in table(phase)]
    for model, topology in attainability.PAIRS:
        assert rows.count(f"{model}, {topology.split(':')[0]}") == 2, (model, rows)  # cycles, and memory


def test_memory_is_foreseen_within_five_per_cent():
    for phase in attainability.PHASES:
        off = [float(cell.split()[0]) for row in table(phase) for cell in row[1:] if re.fullmatch(r"[+-]\d+\.\d\d %", cell)]
        assert len(off) >= 4 * len(attainability.PAIRS) and max(map(abs, off)) <= 5


def test_orientation_is_asked_of_all_recorded_layers():
    rows = table("orient")
    assert len(rows) == 1 + 8 and [row[0].split()[0] for row in rows[1:]] == [model for _, model in attainability.RECORDED]
    assert all("%" in cell for row in rows[1:] for cell in row[1:]), rows


def test_the_twin_on_eight_devices_has_two_all_reduces():
    twin, *sources = (row for row in table("split")[1:])
    assert twin[-1] == "2 all-reduce" and len(sources) == 4
    assert all(int(twin[1].replace(",", "")) < int(source[1].replace(",", "")) for source in sources)


@pytest.mark.parametrize("name", ["steps", "steps-prefill"])
def test_no_step_of_the_recipe_is_one_that_the_compiler_punishes(name):
    """A step that loses beyond 1 % on any pair is none of tpu-exact-native."""
    head, *rows = table(name)
    losses = dict(zip(head[1:], next(row for row in rows if row[0] == "beyond +1 %")[1:]))
    recipe = (ROOT / "recipes" / "library" / f"{attainability.NATIVE}.textproto").read_text()
    steps = set(re.findall(r"^step \{ (\w+)", recipe, re.M))
    assert {"orient_weights", "fuse_gate_up"} <= steps
    for step, count in losses.items():
        held = step in steps or step.startswith("orient ")
        assert not held or count == "0", f"{step} loses on {count} pairs"


def test_no_other_table_is_empty():
    for name in attainability.tables():
        assert len(table(name)) > 1, name
