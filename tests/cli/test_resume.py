"""A forge that ran out of room is resumed by the same command, and takes nothing over that its sources no longer give."""
import os
import resource
import shutil

import adapters
import pytest

MERGE = 'name: "m" require: BOUNDED step {{ merge_lora {{ adapter: "{}" }} }} step {{ pad_ffn {{ multiple: 128 }} }}'
SMALL_FILES = ["--shard-size", "12KiB", "--format", "json"]


@pytest.fixture
def halted(tool, tiny, tmp_path):
    """A forge whose tensors are all written; its manifest was too large for the limit."""
    shutil.copytree(tiny, tmp_path / "model")
    adapters.write(tmp_path / "adapter")
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (16 << 10, 16 << 10))  # noqa: E731
    recipe = tmp_path / "m.textproto"
    recipe.write_text(MERGE.format(tmp_path / "adapter"))
    words = ["forge", tmp_path / "model", "--recipe", recipe, "--out", tmp_path / "twin", "--progress", "none", *SMALL_FILES]
    done = tool(*words, preexec_fn=limit)
    assert done.code == 5 and done.codes == ["TF1605"], done
    assert len(list(tmp_path.glob("twin.partial-*/*.safetensors"))) > 5 and not (tmp_path / "twin").exists()
    return words


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def flip(path, times):
    """The last byte, in place: length and inode stay; `times` too, or not."""
    before = path.stat()
    with open(path, "r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)[0]
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last ^ 1]))
    if times == "kept":
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert path.stat().st_mtime_ns == before.st_mtime_ns and path.stat().st_ino == before.st_ino


def test_nothing_changed(tool, halted, tmp_path):
    done = tool(*halted)
    assert done.code == 0 and done.json["bytes_reused"] > 80_000, done
    assert tool("prove", tmp_path / "model", tmp_path / "twin", "--adapter", tmp_path / "adapter").code == 0


@pytest.mark.parametrize("file", ["model/model.safetensors", "adapter/adapter_model.safetensors"])
@pytest.mark.parametrize("times", ["kept", "moved"])
def test_bytes_that_changed_meanwhile(tool, halted, tmp_path, file, times):
    flip(tmp_path / file, times)
    done = tool(*halted)
    assert done.code == 0, done
    assert (done.json["bytes_reused"] > 40_000) == (times == "kept"), done
    again = tool(*[tmp_path / "anew" if word == tmp_path / "twin" else word for word in halted])
    assert again.code == 0 and contents(tmp_path / "twin") == contents(tmp_path / "anew")
    assert tool("prove", tmp_path / "model", tmp_path / "twin", "--adapter", tmp_path / "adapter").code == 0
