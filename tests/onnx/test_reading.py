"""What a file may say in several ways means the same: spellings of tensors, order, functions, external and sparse data."""
import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from models import write_data  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

TYPES = {name: code for name, code in TensorProto.DataType.items() if name not in ("UNDEFINED", "STRING", "FLOAT6E2M3", "FLOAT6E3M2")}


def run(tool, folder, nodes, outputs, initializers=(), inputs=(), sparse=(), functions=(), opsets=(("", 21),), types=None):
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info(f"x{k}", helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for k, a in enumerate(inputs)],
                              [onnx.ValueInfoProto(name=name) for name in outputs], initializer=list(initializers))
    graph.sparse_initializer.extend(sparse)
    made = helper.make_model(graph, ir_version=10, functions=list(functions), opset_imports=[helper.make_opsetid(*o) for o in opsets])
    path = folder / "m.onnx"
    path.write_bytes(made.SerializeToString())
    done = tool("eval", path, "--inputs", write_data(folder / "in", inputs), "--out", folder / "out")
    assert done.code == 0, done
    return [onnx.TensorProto.FromString((folder / "out" / f"output_{k}.pb").read_bytes()) for k in range(len(outputs))]


@pytest.mark.parametrize("name", sorted(TYPES))
@pytest.mark.parametrize("count", [0, 1, 3, 8])
def test_every_type_in_both_spellings(tool, tmp_path, name, count):
    code = TYPES[name]
    values = [1, 0 if name != "FLOAT8E8M0" else 2, 1, 1, 0 if name != "FLOAT8E8M0" else 4, 1, 1, 1][:count]
    raw = numpy_helper.from_array(np.array(values).astype(helper.tensor_dtype_to_np_dtype(code)), "a")
    typed = helper.make_tensor("b", code, [count], values)
    a, b = run(tool, tmp_path, [helper.make_node("Identity", ["a"], ["y"]), helper.make_node("Identity", ["b"], ["z"])], ["y", "z"], [raw, typed])
    for got in (a, b):
        assert got.data_type == code and list(got.dims) == [count] and got.raw_data == raw.raw_data, (got, raw)


def test_signed_sub_byte_values(tool, tmp_path):
    values = [-8, -1, 7, 0, -3]
    packed = TensorProto(name="a", data_type=TensorProto.INT4, dims=[5], int32_data=[-8 & 15 | (-1 & 15) << 4, 7, -3])  # negative: sign-extended by its writer
    got, = run(tool, tmp_path, [helper.make_node("Cast", ["a"], ["y"], to=TensorProto.INT8)], ["y"], [packed])
    assert numpy_helper.to_array(got).tolist() == values


def test_strings(tool, tmp_path):
    got, = run(tool, tmp_path, [helper.make_node("Identity", ["a"], ["y"])], ["y"], [TensorProto(name="a", data_type=TensorProto.STRING, dims=[2], string_data=[b"\xff\0", b""])])
    assert list(got.string_data) == [b"\xff\0", b""]


def test_nodes_in_any_order(tool, tmp_path):
    nodes = [helper.make_node("Neg", ["b"], ["y"]), helper.make_node("Add", ["a", "a"], ["b"]), helper.make_node("Abs", ["x0"], ["a"])]
    got, = run(tool, tmp_path, nodes, ["y"], inputs=[np.array([-2.0, 3.0], np.float32)])
    assert numpy_helper.to_array(got).tolist() == [-4.0, -6.0]


def test_external_data(tool, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "w.bin").write_bytes(bytes(16) + np.array([1, 2, 3], np.float32).tobytes())
    tensor = TensorProto(name="w", data_type=1, dims=[3], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "data/../data/w.bin"), ("offset", "16")):
        tensor.external_data.add(key=key, value=value)
    got, = run(tool, tmp_path, [helper.make_node("Identity", ["w"], ["y"])], ["y"], [tensor])
    assert numpy_helper.to_array(got).tolist() == [1, 2, 3]


@pytest.mark.parametrize("places,dims", [([1, 5], [2]), ([0, 1, 1, 2], [2, 2])])
def test_sparse_initializers(tool, tmp_path, places, dims):
    sparse = onnx.SparseTensorProto(values=helper.make_tensor("w", 1, [2], [3, 4]), indices=helper.make_tensor("", 7, dims, places), dims=[2, 3])
    got, = run(tool, tmp_path, [helper.make_node("Identity", ["w"], ["y"])], ["y"], sparse=[sparse])
    assert numpy_helper.to_array(got).tolist() == [[0, 3, 0], [0, 0, 4]]


def test_functions_with_attributes(tool, tmp_path):
    """One given, one by default, one absent: then the operator's own default."""
    def relu(name, reference):
        node = helper.make_node("LeakyRelu", ["x"], [name])
        node.attribute.add(name="alpha", ref_attr_name=reference, type=1)
        return node
    function = helper.make_function("d", "F", ["x"], ["a", "b", "c"], [relu("a", "given"), relu("b", "usual"), relu("c", "absent")], [helper.make_opsetid("", 16)],
                                    attributes=["given", "absent"], attribute_protos=[helper.make_attribute("usual", 0.5)])
    a, b, c = run(tool, tmp_path, [helper.make_node("F", ["x0"], ["a", "b", "c"], domain="d", given=0.25)], ["a", "b", "c"], inputs=[np.array([-8], np.float32)],
                  functions=[function], opsets=[("", 21), ("d", 1)])
    assert [numpy_helper.to_array(t)[0] for t in (a, b)] == [-2, -4] and abs(numpy_helper.to_array(c)[0] + 0.08) < 1e-6


def test_a_function_stands_for_the_standards_operator(tool, tmp_path):
    function = helper.make_function("", "Neg", ["x"], ["y"], [helper.make_node("Add", ["x", "x"], ["y"])], [helper.make_opsetid("", 21)])
    got, = run(tool, tmp_path, [helper.make_node("Neg", ["x0"], ["y"])], ["y"], inputs=[np.array([3], np.float32)], functions=[function])
    assert numpy_helper.to_array(got).tolist() == [6]
    assert tool.json("inspect", tmp_path / "m.onnx")["warnings"]


def test_nothing_is_written_over(tool, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "m.onnx").write_bytes(helper.make_model(helper.make_graph([helper.make_node("Constant", [], ["y"], value_int=1)], "g", [], [onnx.ValueInfoProto(name="y")]),
                                                        ir_version=9, opset_imports=[helper.make_opsetid("", 18)]).SerializeToString())
    (tmp_path / "in").mkdir()
    done = tool("eval", tmp_path / "m.onnx", "--inputs", tmp_path / "in", "--out", tmp_path / "out")
    assert done.codes == ["TF1608"] and not list((tmp_path / "out").iterdir()) and not (tmp_path / "out.partial").exists(), done
    for flag in (["--dtype", "f64"], ["--hidden-states"]):
        assert tool("eval", tmp_path / "m.onnx", "--inputs", tmp_path / "in", "--out", tmp_path / "o", *flag).codes == ["TF1003"]
    assert tool("inspect", tmp_path / "m.onnx", "--integrity").codes == ["TF1003"]


def test_inspect_says_what_a_model_is(tool, tmp_path):
    run(tool, tmp_path, [helper.make_node("Identity", ["w"], ["y"])], ["y"], [helper.make_tensor("w", 1, [3], [1, 2, 3])])
    said = tool.json("inspect", tmp_path / "m.onnx")
    assert (said["format"], said["ir_version"], said["opsets"], said["operators"]) == ("onnx", 10, {"ai.onnx": 21}, {"Identity": 1})
    assert said["bytes_by_dtype"] == {"FLOAT": 12} and said["refused"] == {}
    assert "Identity" in tool("inspect", tmp_path / "m.onnx").out
