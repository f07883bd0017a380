"""Every entry of a twin's folder is one that its manifest knows, and the manifest knows what a forge of the source would write."""
import hashlib
import json
import os
import re
import shutil
import struct

import pytest
from manifests import NAME, replace, reseal

PADDED = 'name: "padded" step { pad_vocab { multiple: 128 mask: SUPPRESS_TOKENS } }'
PLAIN = 'name: "plain" step { pad_ffn { multiple: 128 } }'
CARRIED = {"tokenizer.json": "{}", "tokenizer.model": "model", "merges.txt": "a b", "vocab.json": "{}", "chat_template.jinja": "{{ x }}",
           "special_tokens_map.json": "{}", "LICENSE": "mine", "README.md": "# Card"}


@pytest.fixture(scope="module")
def source(tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("source") / "model"
    shutil.copytree(tiny, folder)
    for name, text in CARRIED.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="module")
def forged(tool, source, tmp_path_factory):
    """By name: with files of its own, with the source's alone, in several files."""
    root = tmp_path_factory.mktemp("forged")
    for name, recipe, words in (("padded", PADDED, []), ("plain", PLAIN, []), ("many", PLAIN, ["--shard-size", "24KiB"])):
        done = tool.forge(source, recipe, root / name, *words)
        assert done.code == 0, done
    assert (root / "many" / "model.safetensors.index.json").exists()
    return root


@pytest.fixture
def twin(forged, tmp_path):
    def copy(name="plain"):
        shutil.copytree(forged / name, tmp_path / "twin", symlinks=True)
        return tmp_path / "twin"

    return copy


def failures(tool, source, twin):
    done = tool("prove", source, twin, "--format", "json")
    assert done.code == 1 and done.json["verdict"] == "REFUTED", done
    return {(row["check"], row["subject"]): row["detail"] for row in done.json["failures"]}


@pytest.mark.parametrize("name", ["padded", "plain", "many"])
def test_the_honest_ones_are_proven(tool, source, forged, name):
    said = tool.json("prove", source, forged / name)
    assert said["verdict"] == "PROVEN" and said["failures"] == [], said


FILES = ["tokenizer.model.v3", "extra.txt", "vocab.txt", "added_tokens.json", "chat_template.json", "modeling_llama.py", "x.PY", "MODEL.SAFETENSORS",
         "Model.safetensors", "pytorch_model.bin", "model.gguf", "adapter_config.json", "run.log", ".env", "noextension", "config.json.bak", "\u202etxt.exe",
         "a\nb", ".Git", NAME + "~"]


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_was_added_is_named(tool, source, twin, name):
    folder = twin()
    (folder / name).write_text("x")
    found = failures(tool, source, folder)
    assert set(found) == {("files", name)}, found
    assert "a file that is not in the manifest" in found[("files", name)]


@pytest.mark.parametrize("name", ["additional_chat_templates", "custom_generate", "original", ".vscode", "model.safetensors.d"])
def test_a_folder_that_was_added_is_named(tool, source, twin, name):
    folder = twin()
    (folder / name).mkdir()
    (folder / name / "generate.py").write_text("x")
    found = failures(tool, source, folder)
    assert set(found) == {("files", name)} and "a folder" in found[("files", name)], found


@pytest.mark.parametrize("name", ["fifo", "tokenizer_config.json", "weights.safetensors", "model.safetensors.index.json", ".gitattributes", ".git", ".cache"])
def test_a_fifo_is_named_and_waited_for_by_nobody(tool, source, twin, name):
    folder = twin()
    os.mkfifo(folder / name)
    found = failures(tool, source, folder)
    assert "a FIFO" in found[("files", name)], found


def test_what_is_no_file_of_its_own(tool, source, twin):
    folder = twin()
    (folder / "link.txt").symlink_to("config.json")
    (folder / "nowhere").symlink_to("nothing")
    (folder / "up").symlink_to("..")
    (folder / ".cache").symlink_to("/tmp")
    (folder / ".gitattributes").symlink_to("config.json")
    os.mknod(folder / "socket", 0o140600)
    found = failures(tool, source, folder)
    assert {subject for _, subject in found} == {"link.txt", "nowhere", "up", ".cache", ".gitattributes", "socket"}, found
    assert "a symbolic link" in found[("files", "up")] and "a socket" in found[("files", "socket")]


def test_a_name_that_is_no_text(tool, source, twin):
    folder = twin()
    with open(os.fsencode(str(folder)) + b"/\xff\xfe.py", "w"):
        pass
    done = tool("prove", source, folder, "--format", "json")
    assert done.code == 1 and [row["check"] for row in done.json["failures"]] == ["files"] and ".py" in done.json["failures"][0]["subject"], done


def test_a_fifo_in_place_of_its_own_file(tool, source, twin):
    for name in ("config.json", "README.md"):
        folder = twin()
        (folder / name).unlink()
        os.mkfifo(folder / name)
        found = failures(tool, source, folder)
        assert "a FIFO" in found[("files", name)], found
        shutil.rmtree(folder)


def test_what_tools_lay_there_is_no_part_of_the_model(tool, source, twin):
    folder = twin()
    for name in (".git", ".cache"):
        (folder / name / "huggingface").mkdir(parents=True)
        (folder / name / "huggingface" / "modeling.py").write_text("x")
    for name in (".gitattributes", ".gitignore", ".DS_Store", ".journal"):
        (folder / name).write_text("x")
    assert tool.json("prove", source, folder)["verdict"] == "PROVEN"


def test_bytecode_beside_the_code_is_a_stranger(tool, source, twin):
    """Python may run it in the place of the file that is proven."""
    folder = twin()
    (folder / "reference" / "__pycache__").mkdir()
    (folder / "reference" / "__pycache__" / "model.cpython-311.pyc").write_bytes(b"x")
    found = failures(tool, source, folder)
    assert set(found) == {("files", "reference/__pycache__")} and "delete it" in found[("files", "reference/__pycache__")], found


@pytest.mark.parametrize("name, text", [("model.safetensors.index.json", '{"weight_map": {"a": "b.safetensors"}}'), ("model.safetensors.index.json", "no json"),
                                        ("other.safetensors.index.json", '{"weight_map": {}}')])
def test_a_stranger_that_keeps_the_twin_from_opening(tool, source, twin, name, text):
    folder = twin()
    (folder / name).write_text(text)
    found = failures(tool, source, folder)
    assert set(found) == {("files", name)}, found
    said = tool("prove", source, folder)
    assert said.code == 1 and name in said.out and "does not open" in said.out, said


def test_weights_beside_several_files(tool, source, twin):
    folder = twin("many")
    (folder / "model.safetensors").write_bytes(b"x")
    assert set(failures(tool, source, folder)) == {("files", "model.safetensors")}
    (folder / "model.safetensors").unlink()
    (folder / "model-00001-of-00002.safetensors").write_bytes(b"x")
    assert ("files", "model-00001-of-00002.safetensors") in failures(tool, source, folder)


# ---- and what was taken out of the manifest, or put in

def without_rows(name):
    twin_name = "README.source.md" if name == "README.md" else name

    def edit(body):
        body = re.sub(rf'^companions: "{re.escape(name)}"\n', "", body, flags=re.M)
        return re.sub(rf'^files {{\n  name: "{re.escape(twin_name)}"\n(?:  .*\n)*?}}\n', "", body, flags=re.M)
    return edit


@pytest.mark.parametrize("name", CARRIED)
def test_a_carried_file_that_went_with_its_rows(tool, source, twin, name):
    folder = twin()
    (folder / ("README.source.md" if name == "README.md" else name)).unlink()
    reseal(folder, without_rows(name))
    found = failures(tool, source, folder)
    assert set(found) == {("structure", name)} and "the source has it" in found[("structure", name)], found


def with_row(name, data, companion=False):
    row = f'files {{\n  name: "{name}"\n  bytes: {len(data)}\n  sha256: "{hashlib.sha256(data).hexdigest()}"\n}}\n'
    said = f'companions: "{name}"\n' if companion else ""
    return lambda body: body.replace("\nfiles {", "\n" + row + "files {", 1).replace("\ncompanions: ", "\n" + said + "companions: ", 1)


@pytest.mark.parametrize("name", ["generation_config.json", "model.safetensors.index.json", "modeling.py", "sub/modeling.py"])
@pytest.mark.parametrize("companion", [False, True])
def test_a_file_that_came_with_its_rows(tool, source, twin, name, companion):
    folder = twin()
    data = b'{"top_k": 1}'
    if name.endswith("index.json"):
        stored = (folder / "model.safetensors").read_bytes()
        header = json.loads(stored[8:8 + struct.unpack("<Q", stored[:8])[0]])
        data = json.dumps({"weight_map": {tensor: "model.safetensors" for tensor in header if tensor != "__metadata__"}}).encode()
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(data)
    reseal(folder, with_row(name, data, companion))
    assert name in {subject for _, subject in failures(tool, source, folder)}


def test_a_carried_file_of_the_source_that_is_not_carried(tool, source, twin, tmp_path):
    """Beside the source as well, so that its bytes agree."""
    copy, folder = tmp_path / "model", twin()
    shutil.copytree(source, copy)
    for place in (copy, folder):
        (place / "modeling.py").write_text("x")
    reseal(folder, with_row("modeling.py", b"x", companion=True))
    found = failures(tool, copy, folder)
    assert "would not carry it" in found[("structure", "modeling.py")], found


def edited(twin, name, old, new):
    """Edits a file and its row."""
    before = (twin / name).read_bytes()
    after = before.replace(old, new)
    assert after != before and len(after) == len(before)
    (twin / name).write_bytes(after)
    reseal(twin, replace(hashlib.sha256(before).hexdigest(), hashlib.sha256(after).hexdigest()))


def test_an_edited_index_and_an_edited_header(tool, source, twin):
    folder = twin("many")
    edited(folder, "model.safetensors.index.json", b'"total_size": 1', b'"total_size": 2')
    found = failures(tool, source, folder)
    assert "total_size" in found[("files", "model.safetensors.index.json")], found
    shutil.rmtree(folder)
    folder = twin()
    edited(folder, "model.safetensors", b'"format":"pt"', b'"format":"tf"')
    found = failures(tool, source, folder)
    assert "header" in found[("files", "model.safetensors")], found


@pytest.mark.parametrize("name, edit, check, subject, verdict", [
    ("plain", lambda body: re.sub(r'^tool_version: ".*"', 'tool_version: "magic"', body, flags=re.M), "recipe", "tool_version", "REFUTED"),
    ("plain", lambda body: re.sub(r'^tool_version: ".*"\n', "", body, flags=re.M), "recipe", "tool_version", "REFUTED"),
    ("plain", lambda body: re.sub(r'^tool_version: ".*"', 'tool_version: "999.0.0"', body, flags=re.M), "recipe", "tool_version", "INCOMPLETE"),
    ("plain", lambda body: re.sub(r'^layout: ".*"', 'layout: "other"', body, flags=re.M), "recipe", "layout", "REFUTED"),
    ("plain", lambda body: body.replace("shards: ", 'kernel: "mosaic"\nshards: ', 1), "recipe", "kernel", "REFUTED"),
    ("plain", lambda body: body.replace("shards: ", 'chip: "abacus"\nshards: ', 1), "recipe", "text", "REFUTED"),
    ("plain", lambda body: body.replace("shards: ", 'skipped: "absent"\nshards: ', 1), "recipe", "text", "REFUTED"),
    ("plain", lambda body: body.replace('target: "hf"', 'target: "twin"', 1), "recipe", "layout", "REFUTED"),
    ("plain", lambda body: body.replace('companions: "LICENSE"\n', 'companions: "LICENSE"\ncompanions: "LICENSE"\n', 1), "structure", "LICENSE", "REFUTED"),
    ("plain", lambda body: body.replace("source_texts {", 'source_texts {\n  name: "LICENSE"\n  content: "mine"\n}\nsource_texts {', 1), "headers", "LICENSE",
     "REFUTED"),
    ("plain", lambda body: re.sub(r"^(source_texts {\n(?:  .*\n)*?}\n)", r"\1\1", body, count=1, flags=re.M), "headers", "config.json", "REFUTED"),
])
def test_a_false_row_of_the_manifest_s_head(tool, source, twin, name, edit, check, subject, verdict):
    folder = twin(name)
    reseal(folder, edit)
    done = tool("prove", source, folder, "--format", "json")
    assert done.code == 1 and done.json["verdict"] == verdict, done
    found = [(row["check"], row["subject"], row["verdict"]) for row in done.json["failures"]]
    assert (check, subject, verdict) in found, found
