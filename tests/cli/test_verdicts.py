"""What prove says: four verdicts, the place of a fault, the smallest failing case."""
import re
import shutil
import struct
import hashlib
import json

import pytest
from manifests import NAME, replace, reseal

STEPS = ('name: "steps" require: BOUNDED step { pad_heads { multiple_of_chip: SHARDS } } step { pad_head_dim { form: PORTABLE multiple: 16 } } '
         'step { pad_ffn { multiple: 128 } }')


@pytest.fixture(scope="module")
def forged(tool, tiny, tmp_path_factory):
    twin = tmp_path_factory.mktemp("forged") / "twin"
    done = tool.forge(tiny, STEPS, twin, "--shards", 4)
    assert done.code == 0, done
    return twin


@pytest.fixture
def twin(forged, tmp_path):
    shutil.copytree(forged, tmp_path / "twin")
    return tmp_path / "twin"


def in_graph(edit):
    """Edits the twin's graph alone, one line of the manifest."""
    return lambda body: "\n".join(edit(line) if line.startswith("graph:") else line for line in body.split("\n"))


def test_an_honest_twin_is_proven_four_ways(tool, tiny, twin):
    said = tool.json("prove", tiny, twin)
    assert [said[part]["verdict"] for part in ("structure", "bytes", "algebra", "claims")] == ["PROVEN"] * 4, said
    assert said["verdict"] == "PROVEN" and said["fault"] is None
    assert said["algebra"]["on"] == "the graphs themselves" and said["algebra"]["outputs"] > 1000
    assert said["algebra"]["largest_difference"] <= said["algebra"]["tolerance"]
    ways = said["claims"]["three_way"]
    assert 0 < ways["twin_error"] <= ways["multiple"] * ways["source_error"]


def test_rounded_tensors_are_measured(tool, tiny, tmp_path):
    """A head padded by a factor whose root is no power of two: W_q is stored anew."""
    twin = tmp_path / "twin"
    assert tool.forge(tiny, 'name: "odd" require: BOUNDED step { pad_head_dim { form: PORTABLE multiple: 128 } }', twin).code == 0
    said = tool.json("prove", tiny, twin)
    rounded = said["claims"]["rounded"]
    assert rounded and all(row["within"] and row["mean"] <= row["largest"] <= said["claims"]["bound"] for row in rounded), rounded
    assert all("q_proj" in row["tensor"] for row in rounded)


@pytest.mark.parametrize("pattern, new, place", [
    (r"theta: [0-9.]+", "theta: 77", "layers.0"),
    (r"\{scale: [0-9.]+", "{scale: 0.5", "layers.0"),
    (r"(layers.1.norm_mid.*eps: )[0-9.e-]+", r"\g<1>0.01", "layers.1"),
])
def test_a_changed_graph_is_refuted_by_the_algebra(tool, tiny, twin, tmp_path, pattern, new, place):
    reseal(twin, in_graph(lambda line: re.sub(pattern, new, line, count=1)))
    case = tmp_path / "case.txt"
    done = tool("prove", tiny, twin, "--format", "json", "--case", case)
    assert done.code == 1, done
    assert done.json["verdict"] == "REFUTED" and done.json["algebra"]["verdict"] == "REFUTED"
    assert done.json["structure"]["verdict"] == "REFUTED", "the recipe makes another graph"
    assert done.json["fault"]["layer"] == place, done.json["fault"]
    assert case.read_text().startswith("source:\ngraph ") and "\ntwin:\ngraph " in case.read_text()
    assert "fault: step " in tool("prove", tiny, twin).out


def test_tensors_that_changed_places_are_refuted_by_the_bytes(tool, tiny, twin):
    file = twin / "model.safetensors"
    data = bytearray(file.read_bytes())
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    a, b = (header[f"model.layers.1.mlp.{name}_proj.weight"]["data_offsets"] for name in ("gate", "up"))
    at = 8 + size
    first, second = bytes(data[at + a[0]:at + a[1]]), bytes(data[at + b[0]:at + b[1]])
    data[at + a[0]:at + a[1]], data[at + b[0]:at + b[1]] = second, first
    old, new = (hashlib.sha256(bytes(text)).hexdigest() for text in (file.read_bytes(), data))
    file.write_bytes(data)
    reseal(twin, replace(old, new))
    done = tool("prove", tiny, twin, "--format", "json")
    assert done.code == 1, done
    assert done.json["bytes"]["verdict"] == "REFUTED" and done.json["algebra"]["verdict"] == "PROVEN"
    assert done.json["fault"]["layer"] == "layers.1" and done.json["fault"]["role"].startswith("layers.1.mlp."), done.json["fault"]
    assert "pad_ffn" in done.json["fault"]["step"]


def test_a_step_that_changes_the_function_on_purpose_is_named(tool, tiny, tmp_path):
    twin = tmp_path / "twin"
    recipe = 'name: "sparse" require: RETRAIN step { pad_ffn { multiple: 128 } } step { keep_n_of_m { keep: 2 of: 4 along: "in" } }'
    assert tool.forge(tiny, recipe, twin, "--to", "twin").code == 0
    said = tool.json("prove", tiny, twin)
    assert said["algebra"]["left_out"] == ["2 keep_n_of_m"] and said["verdict"] == "PROVEN", said


def test_a_case_never_replaces_a_file(tool, tiny, twin, tmp_path):
    case = tmp_path / "case.txt"
    case.write_text("mine")
    done = tool("prove", tiny, twin, "--case", case)
    assert done.code == 2 and done.codes == ["TF1608"] and case.read_text() == "mine", done
    (tmp_path / "folder").mkdir()
    reseal(twin, in_graph(lambda line: re.sub(r"theta: [0-9.]+", "theta: 77", line, count=1)))
    assert NAME in [path.name for path in twin.iterdir()]
    missing = tool("prove", tiny, twin, "--case", tmp_path / "no" / "case.txt")
    assert missing.code == 2 and missing.codes == ["TF1607"], missing
