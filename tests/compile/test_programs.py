"""`compile --program` against JAX's own compile of the same program: the same library, called in two ways."""
import csv

import pytest
from tool import ROOT

NAMES = ["matmul", "odd", "bytes", "decode", "oriented", "v5e", "experts", "prefill", "loop", "split"]


@pytest.fixture(scope="session")
def compiled(tool, programs):
    folder, answers = programs
    return {name: tool.json("compile", "--program", folder / f"{name}.mlir", "--topology", answers[name]["topology"])["twin"]["modules"][0]
            for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_figures_are_those_through_jax(programs, compiled, name):
    said, ours = programs[1][name], compiled[name]
    for key in ("cycles", "argument_bytes", "output_bytes", "alias_bytes", "temp_bytes"):
        assert ours[key] == said[key], key
    assert [row["shape"] + row["layout"] for row in ours["layouts"]] == said["layouts"]
    assert sum(row["count"] for row in ours["collectives"]) == said["collectives"]


@pytest.mark.parametrize("name", NAMES)
def test_arguments_add_up(compiled, name):
    """What the layouts take is what the compiler reserves: each array from a multiple of 512 bytes on (1,024 on v6e)."""
    ours = compiled[name]
    padded = [row["padded_bytes"] for row in ours["layouts"]]
    assert sum(padded) <= ours["argument_bytes"] <= sum(padded) + 1024 * len(padded)


@pytest.mark.parametrize("name", NAMES)
def test_tile_rule_foresees_every_argument(compiled, name):
    memory = compiled[name]["memory"]
    assert memory["differ"] == [] and memory["agrees"], memory


@pytest.mark.parametrize("name, model, rewrite", [("decode", "llama1b", "src"), ("oriented", "llama1b", "w_in_out"), ("v5e", "llama1b", "src")])
def test_cycles_are_the_recorded_ones(compiled, name, model, rewrite):
    generation = "v5e" if name == "v5e" else "v6e"
    with open(ROOT / "cost" / "compiled" / "layers.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file)
                if (row["generation"], row["model"], row["phase"], row["rewrite"], row["mode"]) == (generation, model, "decode8", rewrite, "default")]
    assert len(rows) == 1 and compiled[name]["cycles"] == int(rows[0]["est_cycles"])


def test_copies_are_named_by_what_they_copy(compiled):
    """[in, out] weights of q, k, v are laid anew before each is split into heads (docs/cost_compiler.md)."""
    before, after = compiled["decode"], compiled["oriented"]
    assert sum(row["cycles"] for row in after["copies"]) == after["copy_cycles"]
    assert all(row["from"] != row["to"] for row in after["copies"]), after["copies"]
    assert before["copy_cycles"] <= before["cycles"]


def test_loops_and_exchanges_are_said_to_carry_no_estimate(compiled):
    assert {row["opcode"] for row in compiled["loop"]["uncounted"]} >= {"while"}
    split = compiled["split"]
    assert split["partitions"] == 4
    assert split["collectives"] == [{"kind": "all-reduce", "count": 1, "bytes": 8 * 1024 * 2, "group": 4}]


def test_a_refusal_is_the_compilers_own(tool, programs):
    folder, answers = programs
    done = tool("compile", "--program", folder / "too large.mlir", "--topology", "v6e:2x2", "--format", "json")
    module = done.json["twin"]["modules"][0]
    assert done.code == 1 and not module["compiled"] and "cycles" not in module
    assert module["error"].split(":")[-1].strip() in answers["too large"]["error"]


@pytest.mark.parametrize("text", [b"module { func.func @main() { %0 = nonsense } }", b"", b"module {}", b"prose", bytes(range(256)), b"module { func.func public @main("])
def test_what_is_no_program_is_corrupt(tool, programs, tmp_path, text):
    program = tmp_path / "prose.mlir"
    program.write_bytes(text)
    for words in (["--program", program], ["--program", programs[0] / "matmul.mlir", "--source-program", program]):
        done = tool("compile", *words, "--topology", "v6e:2x2", "--out", tmp_path / "record")
        assert done.code == 4 and done.codes == ["TF2112"] and not (tmp_path / "record").exists(), done


def test_a_refusal_of_a_program_is_a_finding(tool, tmp_path):
    (tmp_path / "a.mlir").write_text("module { func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> { %0 = stablehlo.custom_call @nobody(%x) : "
                                     "(tensor<4xf32>) -> tensor<4xf32>\n return %0 : tensor<4xf32> } }")
    done = tool("compile", "--program", tmp_path / "a.mlir", "--topology", "v6e:2x2")
    assert done.code == 1 and "the compiler refuses" in done.out


def test_answers_are_kept_and_asked_for_once(tool, programs, tmp_path):
    cache = tmp_path / "cache"
    words = ["compile", "--program", programs[0] / "matmul.mlir", "--topology", "v6e:2x2", "--cache", cache]
    first = tool.json(*words)
    kept, = cache.iterdir()
    stamp = kept.stat().st_mtime_ns
    assert tool.json(*words) == first and kept.stat().st_mtime_ns == stamp
    tool.json(*words, "--option", "xla_msa_enable=true")
    assert len(list(cache.iterdir())) == 2  # another question
    whole = kept.read_bytes()
    kept.write_bytes(whole[:-1])
    assert tool.json(*words) == first and len(kept.read_bytes()) == len(whole)  # a file that was cut is asked for anew
    closed = tool(*words[:-1], programs[0] / "matmul.mlir")
    assert closed.code == 5 and closed.codes == ["TF2110"], closed


def test_two_programs_are_compared(tool, programs, tmp_path):
    folder, answers = programs
    record = tmp_path / "compile.record.textproto"
    done = tool("compile", "--program", folder / "oriented.mlir", "--source-program", folder / "decode.mlir", "--topology", "v6e:2x2", "--out", record)
    assert done.code == 0, done
    assert f"{answers['decode']['cycles']:,} -> {answers['oriented']['cycles']:,}" in done.out
    text = record.read_text()
    assert f"cycles: {answers['oriented']['cycles']}" in text and str(folder) not in text
    again = tool("compile", "--program", folder / "oriented.mlir", "--topology", "v6e:2x2", "--out", record)
    assert again.code == 2 and again.codes == ["TF1608"] and record.read_text() == text


def test_one_chip_and_options(tool, programs):
    folder, answers = programs
    words = ["compile", "--program", folder / "matmul.mlir", "--topology", "v6e:1x1"]
    one = tool.json(*words)
    assert one["devices"] == 1 and one["twin"]["total"]["cycles"] == answers["matmul"]["cycles"]
    assert one["options"] == {"xla_msa_enable": "false"} and one["interface"].startswith("0.")
    # What the compiler does not take is a mistake on the command line: nothing is found out about the program.
    for option, says in (("no_such_flag=1", "--option no_such_flag: "), ("xla_msa_enabl=true", "did you mean xla_msa_enable?"),
                         ("xla_msa_enable=maybe", '"maybe" is no value of this flag')):
        refused = tool(*words, "--option", option)
        assert refused.code == 2 and refused.codes == ["TF2107"] and says in refused.err and "hint:" in refused.err and refused.out == "", refused
    assert tool(*words, "--option", "no value").codes == ["TF2107"]


def test_too_few_devices(tool, programs):
    done = tool("compile", "--program", programs[0] / "split.mlir", "--topology", "v6e:1x1")
    assert done.code == 2 and done.codes == ["TF2103"], done


def test_library_that_is_none(tool, tmp_path):
    program = tmp_path / "a.mlir"
    program.write_text("module {}")
    (tmp_path / "libtpu.so").write_text("no library")
    for path, code in ((tmp_path / "absent.so", "TF2101"), (tmp_path, "TF2102"), (tmp_path / "libtpu.so", "TF2102")):
        done = tool("compile", "--program", program, "--topology", "v6e:2x2", "--compiler", path)
        assert done.code == 3 and done.codes == [code], done


def test_without_a_library_the_hint_installs_it(tool, tmp_path, library):
    program = tmp_path / "a.mlir"
    program.write_text("module {}")
    done = tool("compile", "--program", program, "--topology", "v6e:2x2", env={"PATH": "/nowhere", "HOME": str(tmp_path)})
    assert done.code == 3 and done.codes == ["TF2101"] and "pip install libtpu==" in done.err, done


@pytest.mark.parametrize("topology", ["", "v6e", "v6e:0x2", "h100:2x2", "v6e:2x2x2", "v6e:3x5"])
def test_topologies_that_are_none(tool, tmp_path, topology):
    program = tmp_path / "a.mlir"
    program.write_text("module {}")
    done = tool("compile", "--program", program, "--topology", topology)
    assert done.code == 2 and done.codes == ["TF2103" if topology else "TF1001"], done
