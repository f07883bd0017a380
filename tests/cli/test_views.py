"""Other views of score's ladder: intervals of estimates, the removal view, mapping gaps; as JSON and in text."""
import re

import pytest
from tool import ROOT

STEP = ["--chip", "v6e", "--batch", 16, "--context", 2048]


@pytest.fixture
def llama(configs):
    return ["--from-config", configs / "llama-3.1-8b" / "config.json"]


def test_every_estimate_has_its_interval(tool, llama):
    said = tool.json("score", *llama, *STEP)
    for rung in said["ladder"]:
        assert ("low" in rung) == (rung["class"] == "E"), rung
    estimates = [rung for rung in said["ladder"] if rung["class"] == "E"]
    for rung in estimates:
        assert said["seconds"]["bound"] <= rung["low"] <= rung["mid"] == rung["seconds"] <= rung["high"]
        assert rung["envelope"]["low"] <= rung["mid"] <= rung["envelope"]["high"]
        assert rung["doubts"] and isinstance(rung["certifiable"], bool)
    last = estimates[-1]
    assert [last["low"], last["mid"], last["high"]] == [said["seconds"][end] for end in ("low", "mid", "high")]
    assert last["certifiable"] == said["certifiable"] and last["envelope"] == said["envelope"]
    # Before R6 no constant of the host can be in doubt.
    assert not {"step", "request", "launch"} & {doubt["constant"] for doubt in estimates[0]["doubts"]}


def test_assumed_constants_make_a_rung_not_certifiable(tool, llama):
    """No row speaks for v4 in int8: its ladder says so at every rung that such constants move, in text too."""
    said = tool.json("score", *llama, "--chip", "v5p", "--batch", 16, "--context", 2048, "--stack", "jax", "--dtype", "int8")
    flags = [rung["certifiable"] for rung in said["ladder"] if rung["class"] == "E"]
    assert False in flags
    text = tool("score", *llama, "--chip", "v5p", "--batch", 16, "--context", 2048, "--stack", "jax", "--dtype", "int8").out
    assert text.count("; not certifiable\n") == flags.count(False)


def test_removals_are_no_gaps_of_the_ladder(tool, llama):
    said = tool.json("score", *llama, *STEP)
    last = said["ladder"][-1]["seconds"]
    rows = {row["without"]: row for row in said["removal"]}
    assert list(rows) == [f"R{i}" for i in range(1, 9)]
    for row in rows.values():
        assert 0 <= row["seconds"] <= last and row["saves"] == last - row["seconds"]
    # What memory hides: R3 adds most, and without it the step is far shorter than R2's share says.
    assert rows["R3"]["saves"] == max(row["saves"] for row in rows.values())
    assert rows["R2"]["saves"] < said["ladder"][2]["seconds"] - said["ladder"][1]["seconds"]


def test_mapping_gaps_add_up(tool, llama):
    said = tool.json("score", *llama, *STEP)
    *kinds, step = said["mapping_gap"]
    assert step["op"] == "step" and {"attention", "gated_mlp", "lm_head"} <= {row["op"] for row in kinds}
    for rung in ("R0", "R1", "R5"):
        assert sum(row["seconds"][rung] for row in kinds) == step["seconds"][rung] == said["ladder"][int(rung[1])]["seconds"]
    for row in said["mapping_gap"]:
        at = row["seconds"]
        assert row["intrinsic"] == (at["R1"] / at["R0"] if at["R0"] else None)
        assert row["mapping"] == (at["R5"] / at["R1"] if at["R1"] else None)
    assert [row["seconds"]["R5"] for row in kinds] == sorted((row["seconds"]["R5"] for row in kinds), reverse=True)
    assert "R9" not in str(said), "no rung of service is scored, and nothing is said of it"


def test_a_twin_has_views_of_its_own(tool, llama):
    said = tool.json("score", *llama, *STEP, "--recipe", "tpu-exact-portable")
    assert said["removal"] and said["twin"]["removal"] and said["twin"]["mapping_gap"]
    out = tool("score", *llama, *STEP, "--recipe", "tpu-exact-portable").out
    assert out.count("the last rung without one constraint") == 2


def test_what_does_not_fit_has_none(tool, llama):
    said = tool.json("score", *llama, "--chip", "v6e", "--batch", 100000)
    assert said["feasible"] is False and "removal" not in said and "mapping_gap" not in said


def test_the_example_of_the_docs(tool, llama):
    """docs/cost.md prints what the program says, line for line."""
    text = (ROOT / "docs" / "cost.md").read_text()
    shown = re.search(r"## Other views of the ladder.*?```\n(.*?)```", text, re.S).group(1).splitlines()
    out = tool("score", *llama, *STEP).out.splitlines()
    start = next(i for i, line in enumerate(out) if "each estimate's rung" in line)
    assert out[start:start + len(shown)] == shown
