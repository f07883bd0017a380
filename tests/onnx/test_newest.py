"""The standard's node tests as the installed onnx package makes them, most of which no archive here holds."""
import warnings

import numpy as np
import pytest
import suite

onnx = pytest.importorskip("onnx")

# What the archive's refusals say, by operator; and what differs there.
RANDOM = {"Bernoulli", "RandomUniformLike", "RandomNormalLike", "RandomUniform", "RandomNormal", "Multinomial"}
REFUSED = RANDOM | {"ImageDecoder"}


def write(path, value, declared):
    kind = declared.WhichOneof("value")
    if isinstance(value, (onnx.TensorProto, onnx.SequenceProto, onnx.OptionalProto)):
        proto = value
    elif kind == "sequence_type":
        proto = onnx.numpy_helper.from_list(value)
    elif kind == "optional_type":
        proto = onnx.numpy_helper.from_optional(value)
    else:
        proto = onnx.numpy_helper.from_array(np.asarray(value))
    path.write_bytes(proto.SerializeToString())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases
        cases = collect_testcases(None)
    folder = tmp_path_factory.mktemp("node")
    for case in cases:
        graph = case.model.graph
        for k, (inputs, outputs) in enumerate(case.data_sets):
            data = folder / "node" / case.name / f"test_data_set_{k}"
            data.mkdir(parents=True)
            for i, value in enumerate(inputs):
                write(data / f"input_{i}.pb", value, graph.input[i].type)
            for i, value in enumerate(outputs):
                write(data / f"output_{i}.pb", value, graph.output[i].type)
        (folder / "node" / case.name / "model.onnx").write_bytes(case.model.SerializeToString())
    return folder


@pytest.fixture(scope="module")
def results(folder):
    found = suite.run(folder)
    assert len(found) == len(list((folder / "node").iterdir()))
    return found


def test_each_passes_or_is_refused(results):
    rest = {}
    for name, (operators, verdict, why) in results.items():
        refusable = REFUSED & set(operators.split(",")) or name.startswith("node/test_training_dropout")
        noise = name.startswith("node/test_dft_inverse") and verdict == "differs"
        if verdict != "pass" and not (verdict == "refused" and refusable) and not noise:
            rest[name] = (verdict, why)
    assert not rest
    assert sum(verdict == "pass" for _, verdict, _ in results.values()) > len(results) - 40


def test_no_inferred_fact_is_wrong(folder):
    """As test_conformance.py holds them over the archive."""
    assert {name: why for name, (verdict, _, why) in suite.run_facts(folder).items() if verdict != "holds"} == {}
