"""`twinforge eval`: what it writes, what it takes, and what it says of inputs that do not fit."""
import json
import struct

import pytest

DTYPES = {"I64": "<q", "I32": "<i", "F32": "<f", "F64": "<d", "BF16": "<H"}


def write(path, **tensors):
    """name=(dtype, shape, values)"""
    header, data = {}, b""
    for name, (dtype, shape, values) in tensors.items():
        body = b"".join(struct.pack(DTYPES[dtype], value) for value in values)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(body)]}
        data += body
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def read(path):
    raw = path.read_bytes()
    (size,) = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8: 8 + size])
    out = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        width = struct.calcsize(DTYPES[entry["dtype"]])
        values = [struct.unpack_from(DTYPES[entry["dtype"]], raw, 8 + size + at)[0] for at in range(begin, end, width)]
        out[name] = (entry["dtype"], entry["shape"], values)
    return out


IDS = ("I64", [2, 3], [1, 5, 9, 2, 4, 8])


@pytest.fixture
def config(tiny):
    return json.loads((tiny / "config.json").read_text())


def test_logits_and_hidden_states(tool, tiny, config, tmp_path):
    ids = write(tmp_path / "ids.safetensors", input_ids=IDS)
    said = tool.json("eval", tiny, "--inputs", ids, "--out", tmp_path / "out.safetensors", "--dtype", "f64", "--hidden-states")
    out = read(tmp_path / "out.safetensors")
    layers = config["num_hidden_layers"]
    assert set(out) == {"logits", *(f"hidden_states.{i}" for i in range(layers + 1))} == set(said["outputs"])
    assert out["logits"][:2] == ("F64", [2, 3, config["vocab_size"]])
    assert out["hidden_states.0"][:2] == ("F64", [2, 3, config["hidden_size"]])
    assert said["outputs"]["logits"] == {"dtype": "f64", "shape": [2, 3, config["vocab_size"]]}
    text = tool("eval", tiny, "--inputs", ids, "--out", tmp_path / "again.safetensors", "--dtype", "f64")
    assert text.code == 0 and "logits  f64" in text.out and "hidden_states.0" not in text.out, text
    assert read(tmp_path / "again.safetensors") == {"logits": out["logits"]}


def test_positions_and_a_mask_that_hides_nothing_are_taken(tool, tiny, tmp_path):
    plain = write(tmp_path / "plain.safetensors", input_ids=IDS)
    full = write(tmp_path / "full.safetensors", input_ids=("I32", *IDS[1:]), position_ids=("I64", [2, 3], [0, 1, 2] * 2),
                 attention_mask=("I64", [2, 3], [1] * 6), token_type_ids=("I64", [2, 3], [0] * 6))
    moved = write(tmp_path / "moved.safetensors", input_ids=IDS, position_ids=("I64", [2, 3], [0, 7, 8] * 2))
    logits = {}
    for file in (plain, full, moved):
        assert (done := tool("eval", tiny, "--inputs", file, "--out", file.with_suffix(".out"))).code == 0, done
        logits[file] = read(file.with_suffix(".out"))
    assert logits[plain] == logits[full] != logits[moved]


@pytest.mark.parametrize("twin, words", [("tpu-exact-native", ("--to", "twin")), ("tpu-exact-portable", ("--to", "hf"))])
def test_a_twin_is_evaluated_from_its_own_files(tool, tiny, tmp_path, twin, words):
    ids = write(tmp_path / "ids.safetensors", input_ids=IDS)
    assert tool.forge(tiny, twin, tmp_path / "twin", *words, "--kernel", "paged", "--shards", "2").code == 0
    for model, out in ((tiny, "a"), (tmp_path / "twin", "b")):
        assert (done := tool("eval", model, "--inputs", ids, "--out", tmp_path / out, "--dtype", "f64")).code == 0, done
    (_, shape, a), (_, same, b) = read(tmp_path / "a")["logits"], read(tmp_path / "b")["logits"]
    # Stored in bf16 and rescaled where a recipe is portable: near, and the same shape whatever was padded.
    assert shape == same and max(abs(x - y) for x, y in zip(a, b)) <= 2e-2 * max(map(abs, a))


@pytest.mark.parametrize("tensors, place, reason", [
    ({}, "input_ids", "missing"), ({"input_ids": ("I64", [1, 2], [1, 10**6])}, "input_ids[0, 1]", "1000000 is no place of vocab, which has 97"),
    ({"input_ids": ("I64", [2, 2], [1, 2, -1, 3])}, "input_ids[1, 0]", "-1 is no place of vocab"),
    ({"input_ids": ("F32", [1, 2], [1, 2])}, "input_ids", "whole numbers"),
    ({"input_ids": ("I64", [2], [1, 2])}, "input_ids", "not i32[batch, seq]"), ({"input_ids": ("I64", [1, 0], [])}, "input_ids", "empty"),
    ({"input_ids": ("I64", [1, 1], [2**40])}, "input_ids[0, 0]", "1099511627776 is no place"), ({"input_id": IDS}, "input_id", "no such input"),
    ({"input_ids": IDS, "position_ids": ("I64", [1, 3], [0, 1, 2])}, "position_ids", "not [2, 3]"),
    ({"input_ids": IDS, "position_ids": ("I64", [2, 3], [0, 1, 2, 0, -1, 2])}, "position_ids", "-1 is below 0"),
    ({"input_ids": IDS, "tokens": IDS}, "input_ids", "given twice"),
    ({"input_ids": IDS, "attention_mask": ("I64", [2, 3], [0, 1, 1, 1, 1, 1])}, "attention_mask", "hides tokens"),
])
def test_inputs_that_do_not_fit_are_one_diagnostic(tool, tiny, tmp_path, tensors, place, reason):
    """By the name that the file has, and the place where it is one value's fault."""
    ids = write(tmp_path / "ids.safetensors", **tensors)
    done = tool("eval", tiny, "--inputs", ids, "--out", tmp_path / "out")
    assert done.code == 2 and done.codes == ["TF1901"] and f": {place}: " in done.err and reason in done.err, done
    assert done.out == "" and not list(tmp_path.glob("out*"))


def test_an_id_of_a_padded_vocabulary_is_none(tool, tiny, tmp_path):
    recipe = 'name: "v" step { pad_vocab { multiple: 128 mask: SUPPRESS_TOKENS } }'
    assert tool.forge(tiny, recipe, tmp_path / "twin").code == 0
    ids = write(tmp_path / "ids.safetensors", input_ids=("I64", [1, 1], [100]))
    done = tool("eval", tmp_path / "twin", "--inputs", ids, "--out", tmp_path / "out")
    assert done.code == 2 and "input_ids[0, 0]: 100 is no place of vocab, which has 97" in done.err, done


@pytest.mark.parametrize("shape", [(200000, 4), (1, 30000)])
def test_what_would_run_on_is_refused_before_it_begins(tool, tiny, tmp_path, shape):
    """Many sequences: the work. One long sequence: its scores. Each would end in logits if it were let run."""
    ids = write(tmp_path / "ids.safetensors", input_ids=("I64", list(shape), [1] * (shape[0] * shape[1])))
    done = tool("eval", tiny, "--inputs", ids, "--out", tmp_path / "out")
    assert done.code == 5 and done.codes == ["TF1902"] and "input_ids [" in done.err and "multiply-adds" in done.err, done
    assert not list(tmp_path.glob("out*"))


def test_nothing_is_replaced_and_nothing_is_made_up(tool, tiny, tmp_path):
    ids = write(tmp_path / "ids.safetensors", input_ids=IDS)
    out = tmp_path / "out"
    out.write_text("mine")
    done = tool("eval", tiny, "--inputs", ids, "--out", out)
    assert done.code == 2 and done.codes == ["TF1608"] and out.read_text() == "mine", done
    assert not (tmp_path / "out.partial").exists()
    assert tool("eval", tiny, "--inputs", tmp_path / "absent", "--out", tmp_path / "x").code == 2
    assert tool("eval", tiny, "--inputs", ids, "--out", tmp_path / "no" / "x").code == 2
    assert tool("eval", tiny, "--inputs", ids, "--out", tmp_path / "x", "--dtype", "f8").code == 2
    done = tool("eval", "--from-config", tiny / "config.json", "--inputs", ids, "--out", tmp_path / "x")
    assert done.code == 2 and done.codes == ["TF1001"] and "--from-config" not in tool("eval", "--help").out, done


def test_an_inputs_file_that_is_not_there_is_usage_and_a_damaged_one_is_corrupt(tool, tiny, tmp_path):
    done = tool("eval", tiny, "--inputs", tmp_path / "absent", "--out", tmp_path / "x")
    assert done.code == 2 and done.codes == ["TF1202"], done
    ids = write(tmp_path / "ids.safetensors", input_ids=IDS)
    ids.write_bytes(ids.read_bytes()[:-1])
    done = tool("eval", tiny, "--inputs", ids, "--out", tmp_path / "x")
    assert done.code == 4 and str(ids) in done.err, done
