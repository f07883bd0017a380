"""The emitted files: what is proven of them, what leaves them out, how they read."""
import subprocess
import sys
from pathlib import Path

import pytest

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.py"))
REFERENCE = Path("reference") / "model.py"


@pytest.fixture
def twin(tool, oracles, tmp_path):
    done = tool.forge(oracles / "llama", "tpu-exact-portable", tmp_path / "twin")
    assert done.code == 0, done
    return tmp_path / "twin"


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_goldens_compile_and_keep_to_their_columns(path, tmp_path):
    done = subprocess.run([sys.executable, "-W", "error", "-m", "py_compile", path], capture_output=True, text=True,
                          env={"PYTHONPYCACHEPREFIX": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    text = path.read_text()
    assert max(map(len, text.splitlines())) <= 120
    assert text.endswith("\n") and not text.endswith("\n\n") and " \n" not in text


def test_there_are_goldens():
    assert len(GOLDEN) >= 5


def test_a_twin_with_its_code_is_proven(tool, oracles, twin):
    assert f'name: "{REFERENCE}"' in (twin / "twin.manifest.textproto").read_text()
    said = tool.json("prove", oracles / "llama", twin)
    assert said["verdict"] == "PROVEN", said


def test_one_changed_byte_of_the_code_is_found(tool, oracles, twin):
    path = twin / REFERENCE
    path.write_text(path.read_text().replace("age >= 0", "age >= 1"))
    said = tool.json("prove", oracles / "llama", twin, code=1)
    assert any(row["subject"] == str(REFERENCE) for row in said["failures"]), said


def test_code_of_another_graph_is_found_though_the_manifest_agrees(tool, oracles, twin):
    """The row's length and hash are made to fit; what the graph gives does not."""
    import hashlib
    import re
    import manifests
    path = twin / REFERENCE
    before = path.read_text()
    after = before.replace("age >= 0", "age >= 1")
    path.write_text(after)
    digest = [hashlib.sha256(text.encode()).hexdigest() for text in (before, after)]
    manifests.reseal(twin, lambda body: body.replace(digest[0], digest[1]))
    said = tool.json("prove", oracles / "llama", twin, code=1)
    rows = [(row["check"], row["subject"]) for row in said["failures"]]
    assert ("structure", str(REFERENCE)) in rows, said
    assert re.search("line [0-9]+ is", str(said["failures"]))


def test_a_twin_may_do_without(tool, oracles, tmp_path):
    done = tool.forge(oracles / "llama", "tpu-exact-portable", tmp_path / "twin", "--no-reference")
    assert done.code == 0 and not (tmp_path / "twin" / "reference").exists(), done
    assert "reference" not in (tmp_path / "twin" / "README.md").read_text()
    assert tool.json("prove", oracles / "llama", tmp_path / "twin")["verdict"] == "PROVEN"


def test_a_graph_of_primitives_has_none_and_says_so(tool, oracles, tmp_path):
    done = tool.forge(oracles / "llama", 'name: "low" step { lower_composites { } }', tmp_path / "twin", "--to", "twin")
    assert done.code == 0 and not (tmp_path / "twin" / "reference").exists(), done
    assert "reference/ is not written: no code is written for" in done.out + done.err, done
