"""No link leads a verb out of the folder that it was given, and what a twin should hold is there: one status for all verbs."""
import os
import shutil

import adapters
import pytest
from manifests import NAME, replace, reseal

PAD_FFN = 'name: "ffn" step { pad_ffn { multiple: 128 } }'
FILES = ["config.json", "generation_config.json", "tokenizer.json", "LICENSE"]


@pytest.fixture
def source(tiny, tmp_path):
    shutil.copytree(tiny, tmp_path / "model")
    (tmp_path / "model" / "tokenizer.json").write_text("{}")
    (tmp_path / "model" / "generation_config.json").write_text("{}")
    (tmp_path / "model" / "LICENSE").write_text("mine")
    (tmp_path / "outside").mkdir()
    return tmp_path / "model"


@pytest.fixture
def twin(tool, source, tmp_path):
    done = tool.forge(source, PAD_FFN, tmp_path / "twin")
    assert done.code == 0, done
    return tmp_path / "twin"


def move_out(path, outside):
    """The file lies elsewhere now, and a link leads there."""
    shutil.move(path, outside / path.name)
    path.symlink_to(outside / path.name)


def verbs_on(tool, source, twin, tmp_path):
    return [tool("prove", source, twin), tool("unforge", twin, "--out", tmp_path / "home"), tool("inspect", twin), tool("score", twin, "--chip", "v6e")]


@pytest.mark.parametrize("name", [*FILES, "model.safetensors", NAME])
def test_a_twin_s_link_outside_is_refused(tool, source, twin, tmp_path, name):
    move_out(twin / name, tmp_path / "outside")
    for done in verbs_on(tool, source, twin, tmp_path):
        assert done.code == 4 and done.codes == ["TF1308"] and f"{twin}/{name}: " in done.err, done
    assert not list(tmp_path.glob("home*"))


def test_a_twin_s_link_inside_is_followed(tool, source, twin, tmp_path):
    (twin / "kept").mkdir()
    shutil.move(twin / "LICENSE", twin / "kept" / "text")
    (twin / "LICENSE").symlink_to("kept/text")
    proved, *others = verbs_on(tool, source, twin, tmp_path)
    assert all(done.code == 0 for done in others), others
    # It is followed for what it holds; the folder that it leads to is none of the twin's.
    assert proved.code == 1 and "REFUTED files: kept: it is a folder" in proved.out and proved.out.count("REFUTED files") == 1, proved
    assert (tmp_path / "home" / "LICENSE").read_text() == "mine"


def test_a_folder_on_the_way_may_be_a_link_too(tool, source, twin, tmp_path):
    shutil.move(twin / "LICENSE", tmp_path / "outside" / "LICENSE")
    (twin / "sub").symlink_to(tmp_path / "outside")
    reseal(twin, replace('"LICENSE"', '"sub/LICENSE"'))
    for done in verbs_on(tool, source, twin, tmp_path):
        assert done.code == 4 and done.codes == ["TF1308"] and f"{twin}/sub/LICENSE: " in done.err, done
    assert not list(tmp_path.glob("home*"))


@pytest.mark.parametrize("damage, code, place", [
    (lambda twin: (twin / "tokenizer.json").unlink(), "TF1803", "tokenizer.json"),
    (lambda twin: reseal(twin, replace('companions: "tokenizer.json"', 'companions: "passwd"')), "TF1801", NAME),
    (lambda twin: reseal(twin, replace('companions: "tokenizer.json"', 'companions: "../passwd"')), "TF1801", NAME),
    (lambda twin: (twin / NAME).write_bytes(b""), "TF1801", NAME),
    (lambda twin: (twin / NAME).write_bytes(b"\xff\xfe\x00" * 99), "TF1801", NAME),
    (lambda twin: reseal(twin, lambda body: body + 'nonsense: 1\n'), "TF1801", NAME),
    (lambda twin: reseal(twin, lambda body: body.replace("tensors {", 'tensors {\n  nonsense: 1', 1)), "TF1801", NAME),
    (lambda twin: reseal(twin, replace('schema: "twinforge.manifest.v1"', 'schema: "twinforge.manifest.v9"')), "TF1801", NAME),
    (lambda twin: reseal(twin, replace('fate: "moved"', 'fate: "mislaid"')), "TF1801", NAME),
    (lambda twin: ((twin / NAME).unlink(), (twin / NAME).mkdir()), "TF1203", NAME),
    (lambda twin: ((twin / NAME).unlink(), os.mkfifo(twin / NAME)), "TF1203", NAME),
    (lambda twin: ((twin / NAME).unlink(), (twin / NAME).symlink_to("absent")), "TF1307", NAME),
])
def test_a_damaged_twin_is_corrupt_for_every_verb(tool, source, twin, tmp_path, damage, code, place):
    damage(twin)
    for done in verbs_on(tool, source, twin, tmp_path):
        assert done.code == 4 and done.codes == [code] and f"{twin}/{place}: " in done.err, done
    assert not list(tmp_path.glob("home*"))


@pytest.mark.parametrize("name", [*FILES, "model.safetensors"])
def test_a_source_s_link_outside_is_refused_even_beside_another_config(tool, source, tmp_path, name):
    shutil.copy(source / "config.json", tmp_path / "config.json")
    move_out(source / name, tmp_path / "outside")
    for config in ([], ["--config", tmp_path / "config.json"]):
        done = tool.forge(source, PAD_FFN, tmp_path / "out", *config)
        assert done.code == 4 and done.codes == ["TF1308"] and f"{source}/{name}: " in done.err, done
    assert not list(tmp_path.glob("out.partial*")) and not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors"])
def test_an_adapter_s_link_outside_is_refused(tool, source, tmp_path, name):
    adapters.write(tmp_path / "a")
    move_out(tmp_path / "a" / name, tmp_path / "outside")
    done = tool.forge(source, f'require: BOUNDED step {{ merge_lora {{ adapter: "{tmp_path}/a" }} }}', tmp_path / "out")
    assert done.code == 4 and done.codes == ["TF1308"] and f"{tmp_path}/a/{name}: " in done.err, done
    assert not list(tmp_path.glob("out.partial*")) and not (tmp_path / "out").exists()
