"""Small ONNX models made, evaluated by the tool and compared."""
import resource
import subprocess

import numpy as np
import onnx
import suite
from onnx import helper, numpy_helper


class Facts:
    """What is inferred of the values of a file's graph: name -> (type, extents, elements), as texts."""

    def __init__(self, path, memory=None):
        def limit():
            if memory:
                resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        done = subprocess.run([suite.FACTS, "--print", str(path)], capture_output=True, text=True, timeout=60, preexec_fn=limit)
        assert done.returncode == 0, done.stderr
        self.values, self.mismatches, self.renamed, self.visits = {}, [], {}, 0
        for line in done.stdout.splitlines():
            kind, *rest = line.split("\t")
            if kind == "value":
                self.values[rest[0]] = (rest[1], self.dims(rest[2]), self.dims(rest[3]))
            elif kind == "mismatch":
                self.mismatches.append(tuple(rest))
            elif kind == "renamed":
                self.renamed[rest[0]] = rest[1]
            else:
                self.visits = int(rest[0])

    @staticmethod
    def dims(text):
        return None if text == "?" else [part for part in text[1:-1].split(", ") if part]

    def shape(self, name):
        return self.values[name][1]

    def elements(self, name):
        return self.values[name][2]

    def full(self, name):
        shape = self.shape(name)
        return shape is not None and "?" not in shape


def one_node(op, inputs, outputs, domain="com.microsoft", opset=21, **attributes):
    """A model of one node; inputs: name -> array, or None where it is left out; outputs: names."""
    names = [name if value is not None else "" for name, value in inputs.items()]
    while names and names[-1] == "":
        names.pop()
    node = helper.make_node(op, names, outputs, domain=domain, **attributes)
    given = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
             for name, value in inputs.items() if value is not None]
    made = [onnx.ValueInfoProto(name=name) for name in outputs if name]
    graph = helper.make_graph([node], "g", given, made)
    imports = [helper.make_opsetid("", opset)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def write_data(folder, arrays):
    folder.mkdir()
    for k, array in enumerate(arrays):
        (folder / f"input_{k}.pb").write_bytes(numpy_helper.from_array(array).SerializeToString())
    return folder


def read_data(path):
    return numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes()))


def evaluate(tool, tmp_path, model, arrays):
    """The model's outputs by `twinforge eval`."""
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    done = tool("eval", path, "--inputs", write_data(tmp_path / "inputs", arrays), "--out", tmp_path / "outputs")
    assert done.code == 0, done
    return [read_data(tmp_path / "outputs" / f"output_{k}.pb") for k in range(len(model.graph.output))]


def close(got, wanted, tolerance=1e-4):
    assert got.dtype == wanted.dtype and got.shape == wanted.shape, (got.dtype, got.shape, wanted.dtype, wanted.shape)
    if got.dtype.kind in "iub":
        np.testing.assert_array_equal(got, wanted)
        return
    scale = max(1e-6, float(np.abs(wanted.astype(np.float64)).max(initial=0)))
    np.testing.assert_allclose(got.astype(np.float64) / scale, wanted.astype(np.float64) / scale, rtol=0, atol=tolerance)


def facts_hold(path, outputs):
    """What is inferred of each named output is what it is; its rank is known."""
    facts = Facts(path)
    assert facts.mismatches == []
    for name, array in outputs.items():
        kind, shape, _ = facts.values[name]
        assert helper.np_dtype_to_tensor_dtype(array.dtype) == getattr(onnx.TensorProto, kind), (name, kind)
        assert len(shape) == array.ndim and all(a in ("?", str(b)) for a, b in zip(shape, array.shape, strict=True)), (name, shape, array.shape)
