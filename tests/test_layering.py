"""Dependencies point one way: every #include of every folder against the table of docs/architecture.md."""
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# folder -> folders that it may include, itself aside
MAY = {
    "base": set(),
    "check": {"base"},
    "compiler": {"base"},
    "weights": {"base"},
    "onnx": {"base", "weights", "ir"},      # of ir its sizes alone, see below
    "ir": {"base", "weights"},
    "eval": {"base", "weights", "ir"},
    "transforms": {"base", "weights", "ir"},
    "importers": {"base", "weights", "ir", "onnx"},
    "reference": {"base", "weights", "ir", "onnx"},       # of onnx the schema alone, see below
    "exporters": {"base", "weights", "onnx", "ir", "reference"},
    "cost": {"base", "weights", "ir"},
    "recipes": {"base", "weights", "ir", "eval", "transforms", "importers", "reference", "exporters", "cost"},
    "proof": {"base", "weights", "ir", "eval", "transforms", "importers", "reference", "exporters", "recipes"},
    "report": {"base", "cost", "recipes"},
    "cli": {"base", "check", "compiler", "weights", "onnx", "ir", "eval", "transforms", "importers", "exporters", "cost",
            "recipes", "proof", "reference", "report"},
}


def includes(folder):
    for file in sorted((ROOT / folder).rglob("*")):
        if file.suffix not in (".h", ".cc", ".inc"):
            continue
        for number, line in enumerate(file.read_text().splitlines(), 1):
            found = re.match(r'\s*#include "([a-z_]+)/', line)
            if found and (ROOT / found.group(1)).is_dir():      # absl/ and the like are libraries
                yield f"{file.relative_to(ROOT)}:{number}", found.group(1)


def test_every_include_is_allowed():
    bad = [f"{place} includes {target}/" for folder, may in MAY.items() for place, target in includes(folder)
           if target != folder and target not in may]
    assert not bad, "\n".join(bad)


def test_of_onnx_the_writer_knows_the_schema_alone():
    texts = [file.read_text() for file in (ROOT / "reference").rglob("*") if file.suffix in (".h", ".cc")]
    found = {name for text in texts for name in re.findall(r'#include "(onnx/[^"]+)"', text)}
    assert found == {"onnx/onnx-ml.pb.h"}


def test_onnx_takes_the_sizes_of_ir_alone():
    for file in (ROOT / "onnx").rglob("*"):
        if file.suffix in (".h", ".cc"):
            assert set(re.findall(r'#include "(ir/[^"]*)"', file.read_text())) <= {"ir/dim.h"}, file


def test_the_table_is_the_tree():
    """A new folder with code must be entered above; an entry without a folder must go."""
    folders = {file.relative_to(ROOT).parts[0] for file in ROOT.glob("*/**/*.cc")}
    assert {f for f in folders if not f.startswith("build")} - {"tests", "bench"} == set(MAY)


def test_tests_are_not_linked_by_the_product():
    for folder in MAY:
        text = (ROOT / folder / "CMakeLists.txt").read_text()
        assert "test_support" not in text and "GTest" not in text, folder


def test_protobuf_stays_out_of_weights():
    for file in (ROOT / "weights").glob("*.h"):
        assert ".pb.h" not in file.read_text(), file
