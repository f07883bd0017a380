"""score and advise --chip-file: a chip of one's own."""
import pytest

STEP = ["--batch", 16, "--context", 2048]


@pytest.fixture
def llama(configs):
    return ["--from-config", configs / "llama-3.1-8b" / "config.json"]


@pytest.fixture
def mine(tool, tmp_path):
    """v6e's own text under another name, changed."""
    text = tool.json("chip", "show", "v6e")["text"].replace('id: "v6e"', 'id: "mine"')
    text = "\n".join(line for line in text.splitlines() if not line.startswith(("alias:", "name:"))) + "\n"

    def write(old="", new=""):
        assert old in text
        path = tmp_path / "mine.textproto"
        path.write_text(text.replace(old, new, 1) if old else text)
        return path

    return write


def test_it_is_scored_as_the_same_numbers_are(tool, llama, mine):
    theirs = tool.json("score", *llama, "--chip", "v6e", *STEP)
    for words in ([], ["--chip", "mine"]):
        ours = tool.json("score", *llama, "--chip-file", mine(), *words, *STEP)
        assert ours["chip"] == "mine" and ours["ladder"] == theirs["ladder"] and ours["removal"] == theirs["removal"]


def test_its_own_numbers_count(tool, llama, mine):
    text = mine().read_text()
    bandwidth = text[text.index("hbm_bandwidth"):].split("value: ")[1].split()[0]
    fast = mine(f"value: {bandwidth}", f"value: {float(bandwidth) * 1.02:g}")
    ours = tool.json("score", *llama, "--chip-file", fast, *STEP)
    theirs = tool.json("score", *llama, "--chip", "v6e", *STEP)
    assert ours["ladder"][3]["seconds"] == pytest.approx(theirs["ladder"][3]["seconds"] / 1.02, rel=1e-4)


def test_the_chip_that_has_its_id_gives_way(tool, llama, mine):
    same = mine()
    same.write_text(same.read_text().replace('id: "mine"', 'id: "v6e"'))
    assert tool.json("score", *llama, "--chip-file", same, "--chip", "v6e", *STEP)["chip"] == "v6e"


def test_the_others_are_still_known(tool, llama, mine):
    said = tool.json("score", *llama, "--chip-file", mine(), "--chip", "v5e", *STEP)
    assert said["ladder"] == tool.json("score", *llama, "--chip", "v5e", *STEP)["ladder"]
    beside = tool.json("score", *llama, "--chip-file", mine(), "--recipe", "tpu-exact-portable", "--against", "h100_sxm", *STEP)
    assert beside["asymmetry"]["chip"] == "mine"


def test_advice_knows_it(tool, llama, mine):
    said = tool.json("advise", *llama, "--chip-file", mine(), *STEP)
    assert said["chip"] == "mine" and said["source"]["seconds"] > 0


def test_a_sweep_and_a_table_know_it(tool, llama, mine, tmp_path):
    said = tool.json("score", *llama, "--chip-file", mine(), "--vary", "batch=1,2")
    assert said["chip"] == "mine" and said["scored"] == 2
    (tmp_path / "t.csv").write_text("chip,batch\nmine,4\n,4\n")
    lines = tool("score", *llama, "--chip-file", mine(), "--batch-file", tmp_path / "t.csv").out.splitlines()
    assert len(lines) == 2 and all('"chip":"mine"' in line.replace(" ", "") for line in lines)


def test_its_certificate_is_checked_against_the_file(tool, llama, mine, tmp_path):
    own = mine()
    done = tool("score", *llama, "--chip-file", own, *STEP, "--certificate", tmp_path / "c.cert")
    assert done.code == 0, done
    done = tool("check", tmp_path / "c.cert", "--chip-file", own)
    assert done.code == 0, done
    own.write_text(own.read_text() + "# changed\n")
    assert tool("check", tmp_path / "c.cert", "--chip-file", own).code == 1


@pytest.mark.parametrize("verb", ["score", "advise"])
@pytest.mark.parametrize("old, new, code, says", [
    ("hbm_size", "hbm_sise", "TF1708", [":", "hbm_sise"]), ('id: "mine"', "", "TF1708", [":1:1", "no id"]), ("vendor:", "vendor:: x", "TF1708", [":"]),
    ('unit: "GB/s"', 'unit: "GB"', "TF1719", ["chip lint"]),
])
def test_a_malformed_file_is_refused_with_its_place(tool, llama, mine, verb, old, new, code, says):
    done = tool(verb, *llama, "--chip-file", mine(old, new))
    assert done.code == 2 and done.codes == [code] and all(word in done.err for word in says) and "mine.textproto" in done.err and done.out == "", done


@pytest.mark.parametrize("verb", ["score", "advise"])
def test_no_file_and_no_chip(tool, llama, verb, tmp_path):
    done = tool(verb, *llama, "--chip-file", tmp_path / "none.textproto")
    assert done.code == 2 and done.codes == ["TF1202"], done
    done = tool(verb, *llama)
    assert done.code == 2 and done.codes == ["TF1003"] and "--chip is required" in done.err, done


def test_unknown_beside_it(tool, llama, mine):
    done = tool("score", *llama, "--chip-file", mine(), "--chip", "mime")
    assert done.code == 3 and done.codes == ["TF1701"] and "mine" in done.err, done


@pytest.mark.parametrize("verb", ["score", "advise", "chip"])
@pytest.mark.parametrize("what, place, says", [
    ("folder", ":1:1: ", "not a regular file"), ("large", ":1:1: ", "are accepted here"), ("binary", ":1:1: ", "control characters"), ("empty", ":1:1: ", "names no id"),
    ("garbage", ":1:1: ", "no key named"), ("tab", ":2:2: ", "no key named"), ("json", ":1:1: ", "")])
def test_what_is_no_chip_file_is_a_usage_error_at_its_place(tool, llama, tmp_path, verb, what, place, says):
    path = tmp_path / "f.textproto"
    texts = {"large": b"#" * 2000000, "binary": b"\x00\xff\xfe", "empty": b"", "garbage": b"garbage {", "tab": b'id: "x"\n\tnmae: "y"\n', "json": b'{"id": "x"}\n'}
    path.mkdir() if what == "folder" else path.write_bytes(texts[what])
    done = tool("chip", "lint", "--chip-file", path) if verb == "chip" else tool(verb, *llama, "--chip-file", path)
    assert done.code == 2 and done.codes == ["TF1708"] and f"{path}{place}" in done.err and says in done.err and done.out == "", done


@pytest.mark.parametrize("word", ["H100-SXM", "h100", "h100_sxm"])
def test_a_chip_goes_by_its_id_whatever_it_is_called(tool, llama, tiny, tmp_path, word):
    config = llama[1]
    assert tool.json("score", *llama, "--chip", word)["chip"] == "h100_sxm"
    said = tool.json("advise", *llama, "--chip", word, "--against", "V6E")
    assert said["chip"] == "h100_sxm", said["chip"]
    (tmp_path / "t.csv").write_text(f"chip,from-config\n{word},{config}\n")
    assert '"chip":"h100_sxm"' in tool("score", "--batch-file", tmp_path / "t.csv").out.replace(" ", "")
    assert tool("forge", tiny, "--recipe", "tpu-exact-native", "--chip", word, "--out", tmp_path / "twin").code == 0
    assert 'chip: "h100_sxm"' in (tmp_path / "twin" / "twin.manifest.textproto").read_text()
    assert tool("prove", tiny, tmp_path / "twin").code == 0
