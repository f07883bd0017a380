"""ONNX models that are written compute the outside judge's logits: every family, as it is and as recipes make it, by onnxruntime.

Sequences are ragged: row 0 is whole, row 1 begins with padding. A prefill, then eight decode steps with the cache.
"""
import functools
import hashlib

import numpy as np
import onnx
import onnxruntime
import pytest
from emitted import CASES, ENCODERS, SOME, TOLERANCE, TRAINED, WAYS, gap, judged, stored, twin_of
from manifests import replace, reseal
from onnx import numpy_helper
from safetensors.numpy import save_file

PREFILL, STEPS, PADDING = 5, 8, 2
USUAL, NEWEST = 21, 27


class Model:
    """model.onnx in a folder, checked and loaded."""

    def __init__(self, folder):
        self.path = folder / "model.onnx"
        onnx.checker.check_model(str(self.path), full_check=True)
        self.proto = onnx.load(str(self.path), load_external_data=False)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(str(self.path), options, providers=["CPUExecutionProvider"])
        self.inputs = {each.name: each for each in self.session.get_inputs()}
        self.outputs = [each.name for each in self.session.get_outputs()]

    def feeds(self, tokens, mask, past):
        batch, length = tokens.shape
        given = {"input_ids": tokens.astype(np.int64), "attention_mask": mask.astype(np.int64),
                 "position_ids": np.clip(np.cumsum(mask, axis=1) - 1, 0, None)[:, -length:].astype(np.int64),
                 "token_type_ids": np.zeros((batch, length), np.int64)}
        sizes = {"batch": batch, "past_sequence_length": 0}
        for name, each in self.inputs.items():
            if name.startswith("past_key_values."):
                shape = [sizes.get(extent, extent) for extent in each.shape]
                kind = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16}[each.type]
                given[name] = past.get(name.replace("past_key_values", "present"), np.zeros(shape, kind))
        return {name: given[name] for name in self.inputs}

    def __call__(self, tokens, mask=None, past=None):
        """logits, and what is to be remembered."""
        mask = np.ones(tokens.shape) if mask is None else mask
        results = dict(zip(self.outputs, self.session.run(None, self.feeds(tokens, mask, past or {}))))
        return results.pop("logits"), results


def written(tool, oracles, tmp_path, name, way, *words):
    """The folder of a checkpoint's ONNX model: forged in one go, or exported of a twin that was forged before."""
    if way == "portable":
        twin = twin_of(tool, oracles, tmp_path, name, way)
        done = tool("export", twin, "--to", "onnx", "--out", tmp_path / "onnx", *words)
    else:
        more = () if way == "as it is" else ("--shards", "2", "--kernel", "paged")
        done = tool.forge(oracles / name, WAYS[way][1], tmp_path / "onnx", "--to", "onnx", *more, *words)
    assert done.code == 0, done
    return tmp_path / "onnx"


def check_generation(model, ids, want, worst=TOLERANCE):
    """Row 0 from its first token, row 1 two places later; behind a mask, padding may be any token."""
    tokens, mask = ids[:, :PREFILL].copy(), np.ones((2, PREFILL))
    tokens[1] = np.concatenate([np.full(PADDING, 3), ids[1, :PREFILL - PADDING]])
    mask[1, :PADDING] = 0
    logits, past = model(tokens, mask)
    assert gap(logits[0], want[0, :PREFILL]) <= worst
    assert gap(logits[1, PADDING:], want[1, :PREFILL - PADDING]) <= worst
    for at in range(PREFILL, PREFILL + STEPS):
        mask = np.concatenate([mask, np.ones((2, 1))], axis=1)
        logits, past = model(np.array([[ids[0, at]], [ids[1, at - PADDING]]]), mask, past)
        assert gap(logits[0, 0], want[0, at]) <= worst
        assert gap(logits[1, 0], want[1, at - PADDING]) <= worst


def check(model, name, ids, want):
    if name in ENCODERS or name in TRAINED:
        logits, past = model(ids)
        assert gap(logits, want) <= TOLERANCE and (past == {}) == (name in ENCODERS)
    else:
        check_generation(model, ids, want)


@pytest.mark.parametrize("name, way", CASES)
def test_onnxruntime_computes_the_judges_logits(tool, oracles, tmp_path, name, way):
    model = Model(written(tool, oracles, tmp_path, name, way, "--dtype", "f32"))
    assert model.proto.opset_import[0].version == USUAL
    check(model, name, *judged(oracles / name))


@pytest.mark.parametrize("opset", [17, 18, 23, NEWEST])
@pytest.mark.parametrize("name", SOME)
def test_every_operator_set(tool, oracles, tmp_path, name, opset, monkeypatch):
    monkeypatch.setenv("ALLOW_RELEASED_ONNX_OPSET_ONLY", "0")
    model = Model(written(tool, oracles, tmp_path, name, "native", "--dtype", "f32", "--opset", opset))
    check(model, name, *judged(oracles / name))
    assert model.proto.opset_import[0].version == opset
    assert model.proto.ir_version == onnx.helper.find_min_ir_version_for(list(model.proto.opset_import))


@pytest.mark.parametrize("opset", [USUAL, 23])
@pytest.mark.parametrize("name", ["llama", "gpt2", "deepseek_v3"])
def test_padding_may_stand_anywhere(tool, oracles, tmp_path, name, opset):
    """Row 1 is padded behind its prompt, and goes on behind that."""
    model = Model(written(tool, oracles, tmp_path, name, "native", "--dtype", "f32", "--opset", opset))
    ids, want = judged(oracles / name)
    tokens, mask = ids[:, :PREFILL].copy(), np.ones((2, PREFILL))
    tokens[1, -PADDING:], mask[1, -PADDING:] = 3, 0
    logits, past = model(tokens, mask)
    assert gap(logits[1, :-PADDING], want[1, :PREFILL - PADDING]) <= TOLERANCE
    mask = np.concatenate([mask, np.ones((2, 1))], axis=1)
    logits, past = model(np.array([[ids[0, PREFILL]], [ids[1, PREFILL - PADDING]]]), mask, past)
    assert gap(logits[:, 0], np.stack([want[0, PREFILL], want[1, PREFILL - PADDING]])) <= TOLERANCE


def test_an_encoder_sees_no_padding(tool, oracles, tmp_path):
    model = Model(written(tool, oracles, tmp_path, "bert", "native", "--dtype", "f32"))
    assert list(model.inputs) == ["input_ids", "attention_mask", "token_type_ids"]
    ids, _ = judged(oracles / "bert")
    alone, _ = model(ids[:, :-PADDING])
    mask = np.ones(ids.shape)
    mask[:, -PADDING:] = 0
    logits, _ = model(ids, mask)
    assert gap(logits[:, :-PADDING], alone) <= TOLERANCE


@pytest.mark.parametrize("dtype, worst", [("f64", TOLERANCE), ("f16", 1e-2)])
@pytest.mark.parametrize("name", ["llama", "gpt_oss", "deepseek_v3"])
def test_other_types(tool, oracles, tmp_path, name, dtype, worst):
    model = Model(written(tool, oracles, tmp_path, name, "native", "--dtype", dtype))
    check_generation(model, *judged(oracles / name), worst)


@pytest.mark.parametrize("stored_in, computed_in, worst", [("F16", "FLOAT16", 1e-2), ("BF16", "FLOAT", 2e-2)])
@pytest.mark.parametrize("name", ["llama", "bert"])
def test_weights_of_fewer_bits_stay_as_stored(tool, oracles, tmp_path, name, stored_in, computed_in, worst):
    recipe = f'name: "cast" require: BOUNDED step {{ cast_weights {{ to: "{stored_in.lower()}" }} }}'
    done = tool.forge(oracles / name, recipe, tmp_path / "twin", "--to", "onnx")
    assert done.code == 0, done
    model = Model(tmp_path / "twin")
    long = {"F16": "FLOAT16", "BF16": "BFLOAT16"}[stored_in]
    assert {tensor.data_type for tensor in model.proto.graph.initializer if tensor.external_data} == {onnx.TensorProto.DataType.Value(long)}
    assert model.proto.graph.output[0].type.tensor_type.elem_type == onnx.TensorProto.DataType.Value(computed_in)
    ids, want = judged(oracles / name)
    assert 0 < gap(model(ids)[0], want) <= worst


def test_bf16_is_written_where_it_is_asked_for(tool, oracles, tmp_path):
    """No runtime of ours computes it: the checker reads it."""
    folder = written(tool, oracles, tmp_path, "llama__tied_bf16", "native", "--dtype", "bf16")
    onnx.checker.check_model(str(folder / "model.onnx"), full_check=True)
    proto = onnx.load(str(folder / "model.onnx"), load_external_data=False)
    assert proto.graph.output[0].type.tensor_type.elem_type == onnx.TensorProto.BFLOAT16


@pytest.mark.parametrize("name", SOME)
def test_files(tool, oracles, tmp_path, name):
    """Weights lie at multiples of 4,096, each stored once; whatever --threads and --memory are, the bytes are the same."""
    first = written(tool, oracles, tmp_path, name, "native")
    (tmp_path / "again").mkdir()
    again = written(tool, oracles, tmp_path / "again", name, "native", "--threads", 1, "--memory", "64MiB")

    def hashes(folder):
        return {path.relative_to(folder): hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*") if path.is_file()}

    assert hashes(first) == hashes(again)
    proto = onnx.load(str(first / "model.onnx"), load_external_data=False)
    at = 0
    for tensor in proto.graph.initializer:
        where = {entry.key: entry.value for entry in tensor.external_data}
        if not where:
            assert len(tensor.raw_data) <= 4096
            continue
        assert where["location"] == "model.onnx.data" and int(where["offset"]) == -(-at // 4096) * 4096
        at = int(where["offset"]) + int(where["length"])
    assert at == (first / "model.onnx.data").stat().st_size
    whole = onnx.load(str(first / "model.onnx"))
    seen = [tensor.raw_data for tensor in whole.graph.initializer if tensor.name.endswith("embed") or "lm_head" in tensor.name]
    assert len(seen) == len(set(seen))
    assert {entry.key for entry in proto.metadata_props} == {f"org.twinforge.{word}" for word in ("family", "model_type", "steps")}


def test_a_tied_head_is_stored_once(tool, oracles, tmp_path):
    model = onnx.load(str(written(tool, oracles, tmp_path, "llama__tied_bf16", "as it is") / "model.onnx"), load_external_data=False)
    weights = {tensor.name: tensor for tensor in model.graph.initializer if tensor.external_data}
    assert "embed" in weights and "lm_head" not in weights
    assert weights["embed"].data_type == onnx.TensorProto.BFLOAT16     # as stored, and computed in f32
    assert model.graph.output[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    kinds = {each.name: [dim.dim_param or dim.dim_value for dim in each.type.tensor_type.shape.dim] for each in model.graph.input}
    assert kinds["attention_mask"] == ["batch", "past_sequence_length + sequence_length"]
    assert kinds["past_key_values.0.key"][::2] == ["batch", "past_sequence_length"]


@pytest.mark.parametrize("name, opset", [("llama", USUAL), ("gemma2", 23), ("gpt_oss", NEWEST), ("deepseek_v3", 18), ("gpt2", 17), ("bert", 22)])
def test_our_own_evaluator_reads_it(tool, oracles, tmp_path, name, opset):
    folder = written(tool, oracles, tmp_path, name, "native", "--dtype", "f32", "--opset", opset)
    proto = onnx.load(str(folder / "model.onnx"), load_external_data=False)
    ids, want = judged(oracles / name)
    ids, want = ids[:, :4], want[:, :4]
    if name in ENCODERS:
        ids, want = judged(oracles / name)
    places = np.tile(np.arange(ids.shape[1]), (2, 1))
    given = {"input_ids": ids, "attention_mask": np.ones(ids.shape), "position_ids": places, "token_type_ids": 0 * ids}
    (tmp_path / "in").mkdir()
    for i, each in enumerate(proto.graph.input):
        shape = [2 if dim.dim_param == "batch" else dim.dim_value for dim in each.type.tensor_type.shape.dim]
        value = given[each.name].astype(np.int64) if each.name in given else np.zeros(shape, np.float32)
        (tmp_path / "in" / f"input_{i}.pb").write_bytes(numpy_helper.from_array(value, each.name).SerializeToString())
    done = tool("eval", folder / "model.onnx", "--inputs", tmp_path / "in", "--out", tmp_path / "out")
    assert done.code == 0, done
    logits = onnx.load_tensor(str(tmp_path / "out" / "output_0.pb"))
    assert gap(numpy_helper.to_array(logits), want) <= TOLERANCE


@pytest.mark.parametrize("name", SOME)
def test_prove_and_unforge(tool, oracles, tmp_path, name):
    folder = written(tool, oracles, tmp_path, name, "native")
    report = tool.json("prove", oracles / name, folder)
    assert report["verdict"] == "PROVEN", report
    done = tool("unforge", folder, "--out", tmp_path / "home")
    assert done.code == 0, done
    home, source = stored(tmp_path / "home"), stored(oracles / name)
    assert set(home) == set(source) and all(np.array_equal(home[key], source[key]) for key in source)
    save_file({"input_ids": judged(oracles / name)[0].astype(np.int64)}, tmp_path / "ids.safetensors")
    done = tool("eval", folder, "--inputs", tmp_path / "ids.safetensors", "--out", tmp_path / "logits.safetensors", "--dtype", "f64")
    assert done.code == 0 and gap(stored(tmp_path, "logits.safetensors")["logits"], judged(oracles / name)[1]) <= TOLERANCE
    for file, at in (("model.onnx.data", 100), ("model.onnx", -20)):
        path, kept = folder / file, (folder / file).read_bytes()
        path.write_bytes(kept[:at] + bytes([kept[at] ^ 1]) + kept[at + 1:])
        assert tool("prove", oracles / name, folder).code in (1, 4)
        path.write_bytes(kept)


def swapped_weights(model):
    one, other = (tensor for tensor in model.graph.initializer if tensor.name.endswith("norm_in"))
    one.name, other.name = other.name, one.name


def another_epsilon(model):
    constant = next(tensor for tensor in model.graph.initializer if tensor.data_type == onnx.TensorProto.FLOAT and not tensor.external_data)
    constant.raw_data = np.float32(0.25).tobytes()


@pytest.mark.parametrize("edit", [swapped_weights, another_epsilon])
def test_prove_writes_the_model_anew(tool, oracles, tmp_path, edit):
    """Whoever changes model.onnx can seal the manifest over it, and is found."""
    folder = written(tool, oracles, tmp_path, "llama", "native")
    path = folder / "model.onnx"
    before = path.read_bytes()
    model = onnx.load(str(path), load_external_data=False)
    edit(model)
    path.write_bytes(model.SerializeToString())
    row, now = (f'bytes: {len(data)}\n  sha256: "{hashlib.sha256(data).hexdigest()}"' for data in (before, path.read_bytes()))
    reseal(folder, replace(row, now))
    done = tool("prove", oracles / "llama", folder)
    assert done.code == 1 and "model.onnx: it is not the model that the graph gives" in done.out, done


def test_a_twin_in_primitives(tool, oracles, tmp_path):
    done = tool.forge(oracles / "llama", 'name: "low" require: REASSOCIATED step { lower_composites { } }', tmp_path / "twin", "--to", "onnx")
    assert done.code == 0, done
    ids, want = judged(oracles / "llama")
    model = Model(tmp_path / "twin")
    assert list(model.inputs) == ["input_ids"] and gap(model(ids)[0], want) <= TOLERANCE
    assert tool("prove", oracles / "llama", tmp_path / "twin").code == 0


def test_refusals(tool, oracles, tmp_path):
    source, out = oracles / "llama", tmp_path / "out"
    export = functools.partial(tool, "export", source, "--to", "onnx", "--out", out)
    assert export("--batch", 2).codes == ["TF1003"] and export("--opset", 16).code == 2
    assert tool("export", source, "--to", "stablehlo", "--opset", 21, "--out", out).codes == ["TF1003"]
    assert tool.forge(source, "tpu-exact-native", out, "--to", "twin", "--opset", 21).codes == ["TF1003"]
    assert tool("export", "--from-config", source / "config.json", "--to", "onnx", "--out", out).codes == ["TF1612"]
    assert tool("export", source, "--to", "onnx", "--out", source / "inside").codes == ["TF1611"]
    assert not out.exists() and not list(tmp_path.glob("out*"))
    out.mkdir()
    assert export().codes == ["TF1608"] and not list(out.iterdir())
