"""A stdout that cannot be written to: one diagnostic on stderr, exit 6, and what the verb did stands."""
import os
import subprocess

import pytest
from tool import BINARY, Result

PAD_FFN = "step { pad_ffn { multiple: 128 } }"


def onto(stdout, *words, **kw):
    words = [BINARY, *map(str, words)]
    done = subprocess.run(words, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=600, **kw)
    done.stdout = ""
    return Result(done, words)


def full(*words):
    with open("/dev/full", "w") as sink:
        return onto(sink, *words)


@pytest.fixture(scope="module")
def twin(tool, tiny, tmp_path_factory):
    out = tmp_path_factory.mktemp("stdout") / "twin"
    assert tool.forge(tiny, PAD_FFN, out).code == 0
    return out


@pytest.mark.parametrize("form", ["human", "json"])
def test_every_verb_says_that_it_cannot_say(tool, tiny, twin, tmp_path, form):
    recipe = tmp_path / "r.textproto"
    recipe.write_text(PAD_FFN)
    for words, done in ((["inspect", tiny], ""), (["plan", tiny, "--recipe", recipe], ""), (["score", tiny, "--chip", "v6e"], ""),
                        (["recipe", "list"], ""), (["chip", "list"], ""), (["explain"], ""), (["explain", "TF1201"], ""), (["doctor"], ""),
                        (["prove", tiny, twin], "the twin is PROVEN"),
                        (["unforge", twin, "--out", tmp_path / "home"], f"are written to {tmp_path / 'home'}"),
                        (["forge", tiny, "--recipe", recipe, "--out", tmp_path / "t", "--progress", "none"], f"the twin is written to {tmp_path / 't'}")):
        said = full(*words, "--format", form)
        assert said.code == 6 and said.codes == ["TF1005"] and "No space left" in said.err and done in said.err, said
    assert tool("prove", tiny, tmp_path / "t").code == 0, "what could not be told was done"


def test_help_and_version_say_so_too():
    for words in (["--version"], ["--help"], [], ["forge", "--help"]):
        said = full(*words)
        assert said.code == 6 and said.codes == ["TF1005"], said


def test_a_failure_keeps_its_own_status(tmp_path):
    said = full("inspect", tmp_path / "nothing", "--format", "json")
    assert said.code == 2 and said.codes == ["TF1202", "TF1005"], said


def test_a_reader_that_has_left(tiny):
    reader, writer = os.pipe()
    os.close(reader)
    said = onto(writer, "inspect", tiny)
    os.close(writer)
    assert said.code == 6 and said.codes == ["TF1005"] and "Broken pipe" in said.err, said


def test_a_closed_stdout_lends_its_number_to_no_file(tool, tiny, tmp_path):
    out = tmp_path / "twin"
    recipe = tmp_path / "r.textproto"
    recipe.write_text(PAD_FFN)
    said = onto(None, "forge", tiny, "--recipe", recipe, "--out", out, "--progress", "none", preexec_fn=lambda: os.close(1))
    assert said.code == 6 and said.codes == ["TF1005"] and f"the twin is written to {out}" in said.err, said
    assert tool("prove", tiny, out).code == 0
