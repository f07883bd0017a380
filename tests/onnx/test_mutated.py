"""The standard's tests with shapes, indices and attributes that nobody meant: a result or one diagnostic, soon."""
import random
import subprocess
import tarfile

import pytest
import suite
from tool import BINARY

np = pytest.importorskip("numpy")
onnx = pytest.importorskip("onnx")

INTEGERS = [0, 1, -1, 2, 3, -3, 100, 2**31, 2**62, -2**63]


def other_array(dice, a):
    """The same numbers in another shape, or one of them another."""
    kind = dice.randrange(6)
    if kind == 0 and a.ndim and a.size:
        shape = list(a.shape)
        axis = dice.randrange(a.ndim)
        shape[axis] = dice.choice([0, 1, 2, shape[axis] + 1])
        return np.resize(a, shape)
    if kind == 1 and a.size:
        return np.resize(a, [dice.choice([0, 1, 2, 3]) for _ in range(dice.randrange(5))])
    if kind == 2 and a.ndim:
        return a[..., :0]
    if kind > 2 and a.size:
        a = a.copy()
        allowed = [v for v in INTEGERS if a.dtype.kind in "iu" and np.iinfo(a.dtype).min <= v <= np.iinfo(a.dtype).max]
        a.flat[dice.randrange(a.size)] = dice.choice(allowed or ([np.inf, -np.inf, np.nan, 0] if a.dtype.kind == "f" else [0, 1]))
    return a


def other_attribute(dice, attribute):
    if attribute.type == attribute.INT:
        attribute.i = dice.choice(INTEGERS)
    elif attribute.type == attribute.INTS and attribute.ints and dice.random() < 0.7:
        attribute.ints[dice.randrange(len(attribute.ints))] = dice.choice(INTEGERS)
    elif attribute.type == attribute.INTS:
        attribute.ints.append(dice.choice(INTEGERS))
    elif attribute.type == attribute.FLOAT:
        attribute.f = dice.choice([0, -1, float("nan"), float("inf"), 1e30])


def mutate(dice, test, folder):
    """A changed copy of `test` in `folder`."""
    made = onnx.load(test / "model.onnx")
    (folder / "in").mkdir(parents=True)
    for k, value in enumerate(made.graph.input):
        content = (test / "test_data_set_0" / f"input_{k}.pb").read_bytes()
        if value.type.WhichOneof("value") == "tensor_type":
            value.type.tensor_type.ClearField("shape")
            tensor = onnx.TensorProto.FromString(content)
            if dice.random() < 0.6 and tensor.data_type in (1, 2, 3, 6, 7, 9, 10, 11):
                content = onnx.numpy_helper.from_array(np.asarray(other_array(dice, onnx.numpy_helper.to_array(tensor)))).SerializeToString()
        (folder / "in" / f"input_{k}.pb").write_bytes(content)
    for node in made.graph.node:
        for attribute in node.attribute:
            if dice.random() < 0.3:
                other_attribute(dice, attribute)
        if dice.random() < 0.1 and node.input:
            node.input[dice.randrange(len(node.input))] = ""
    (folder / "m.onnx").write_bytes(made.SerializeToString())


def test_changed_tests_end_in_a_result_or_a_diagnostic(tmp_path):
    with tarfile.open(suite.DATA / "onnx_backend_tests.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    tests = sorted((tmp_path / "onnx_backend_tests" / "node").iterdir())
    dice = random.Random(5)
    seen = set()
    for trial, test in enumerate(dice.sample(tests, 300)):
        folder = tmp_path / f"trial{trial}"
        mutate(dice, test, folder)
        done = subprocess.run([BINARY, "eval", folder / "m.onnx", "--inputs", folder / "in", "--out", folder / "out"], capture_output=True, text=True, timeout=60)
        assert done.returncode in (0, 2, 3, 4, 5), (test.name, trial, done)
        assert (done.returncode == 0) == ("error[TF" not in done.stderr), (test.name, trial, done)
        seen.add(done.returncode)
    assert {0, 4} <= seen
