"""What is inferred of shapes, types and sizes: symbols against runs of onnxruntime, cost, contradictions."""
import numpy as np
import pytest
from tool import SHARED

onnx = pytest.importorskip("onnx")
from models import Facts  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

MODELS = SHARED / "data" / "onnx_models"


def made(tmp_path, nodes, inputs, outputs=("y",), initializers=(), opset=21, value_info=(), functions=(), types=None):
    """inputs: name -> (type, shape). Outputs are declared nothing of, unless `types` does."""
    given = [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()]
    out = [(types or {}).get(name) or onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(list(nodes), "g", given, out, list(initializers), value_info=list(value_info))
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1), helper.make_opsetid("local", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10, functions=list(functions))
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def ints(name, *values):
    return numpy_helper.from_array(np.array(values, np.int64), name)


def scalar(name, value):
    return numpy_helper.from_array(np.array(value, np.int64), name)


F, I = TensorProto.FLOAT, TensorProto.INT64
N = helper.make_node


# ---- symbols

@pytest.mark.parametrize("param, shape", [
    ("past_sequence_length + sequence_length", "past_sequence_length + sequence_length"), ("2*s0", "2*s0"), ("s0 - 1", "s0 + -1"),
    ("(a + b)*2", "2*a + 2*b"), ("batch-size", "batch_size"), ("batch size", "batch_size"), ("4", "4"), ("?", "?"), ("-1", "?"),
    ("s0//2", "s0__2"), ("Max(1, u0)", "Max_1__u0_"), ("unk__6", "unk__6")])
def test_dim_params_are_polynomials_or_one_symbol(tmp_path, param, shape):
    facts = Facts(made(tmp_path, [N("Relu", ["x"], ["y"])], {"x": (F, [param, 3])}))
    assert facts.shape("y") == [shape, "3"], facts.renamed


def test_two_texts_are_never_one_symbol(tmp_path):
    facts = Facts(made(tmp_path, [N("Relu", ["x"], ["y"])], {"x": (F, ["a b", "a-b", "a_b", "a_b_2"])}))
    assert len(set(facts.shape("y"))) == 4 and set(facts.renamed.values()) <= {"a b", "a-b", "a_b", "a_b_2"}


X = {"x": (F, ["b", "p + s", 12, 64]), "ids": (I, ["b", "s"])}


@pytest.mark.parametrize("nodes, constants, shape, elements", [
    # a shape computed from extents
    ([N("Shape", ["x"], ["sh"]), N("Gather", ["sh", "i1"], ["g"]), N("Unsqueeze", ["g", "a0"], ["u"]),
      N("Concat", ["u", "m1"], ["c"], axis=0), N("Reshape", ["x", "c"], ["y"])], [scalar("i1", 1), ints("a0", 0), ints("m1", -1)],
     ["p + s", "768*b"], None),
    ([N("Reshape", ["x", "t"], ["y"])], [ints("t", 0, 0, -1)], ["b", "p + s", "768"], None),
    ([N("Reshape", ["x", "t"], ["y"])], [ints("t", -1, 64)], ["12*b*p + 12*b*s", "64"], None),
    ([N("Reshape", ["x", "t"], ["y"])], [ints("t", -1, 5)], ["?", "5"], None),
    ([N("Shape", ["x"], ["y"], start=1)], [], ["3"], ["p + s", "12", "64"]),
    ([N("Size", ["x"], ["y"])], [], [], ["768*b*p + 768*b*s"]),
    ([N("Shape", ["x"], ["sh"]), N("ReduceProd", ["sh"], ["y"], keepdims=0)], [], [], ["768*b*p + 768*b*s"]),
    ([N("Shape", ["x"], ["sh"]), N("Mul", ["sh", "two"], ["m"]), N("Div", ["m", "two"], ["y"])], [scalar("two", 2)], ["4"],
     ["b", "p + s", "12", "64"]),
    ([N("Shape", ["x"], ["sh"]), N("Div", ["sh", "two"], ["y"])], [scalar("two", 2)], ["4"], ["?", "?", "6", "32"]),
    ([N("Shape", ["x"], ["sh"]), N("Equal", ["sh", "m1"], ["e"]), N("Where", ["e", "one", "sh"], ["w"]), N("Expand", ["x", "w"], ["y"])],
     [scalar("m1", -1), scalar("one", 1)], ["b", "p + s", "12", "64"], None),
    ([N("Concat", ["x", "x"], ["y"], axis=1)], [], ["b", "2*p + 2*s", "12", "64"], None),
    ([N("Split", ["x"], ["y", "z"], axis=3, num_outputs=2)], [], ["b", "p + s", "12", "32"], None),
    ([N("Split", ["x"], ["y", "z"], axis=1, num_outputs=2)], [], ["b", "?", "12", "64"], None),
    ([N("Slice", ["x", "s", "e", "a"], ["y"])], [ints("s", 1, -1), ints("e", 2**62, 2**31), ints("a", 1, 3)],
     ["b", "p + s + -1", "12", "1"], None),
    ([N("Slice", ["x", "s", "e", "a"], ["y"])], [ints("s", 0), ints("e", 5), ints("a", 1)], ["b", "min_5__p___s_", "12", "64"], None),
    # what is cut by a size that may be the larger fits what has that size, or no run ends
    ([N("Shape", ["x"], ["sh"]), N("Slice", ["sh", "i1", "i2"], ["e"]), N("Slice", ["k", "zero", "e", "zero"], ["cut"]), N("Add", ["x", "cut"], ["y"])],
     [ints("i1", 1), ints("i2", 2), ints("zero", 0), numpy_helper.from_array(np.zeros((512, 12, 64), np.float32), "k")], ["b", "p + s", "12", "64"], None),
    # a mask [1024, 1024], of which the rows of new tokens and the columns of all are cut
    ([N("Shape", ["ids"], ["sh"]), N("Slice", ["sh", "zero", "one"], ["b"]), N("Slice", ["sh", "one", "two"], ["new"]), N("Shape", ["x"], ["xs"]),
      N("Slice", ["xs", "one", "two"], ["all"]), N("Sub", ["all", "new"], ["past"]), N("Slice", ["k", "past", "all", "zero"], ["rows"]),
      N("Slice", ["rows", "zero", "all", "one"], ["mask"]), N("Concat", ["b", "new", "all"], ["scores"], axis=0), N("ConstantOfShape", ["scores"], ["cs"]),
      N("Add", ["cs", "mask"], ["y"])],
     [ints("zero", 0), ints("one", 1), ints("two", 2), numpy_helper.from_array(np.zeros((1024, 1024), np.float32), "k")], ["b", "s", "p + s"], None),
    ([N("Slice", ["x", "s", "e", "a", "st"], ["y"])], [ints("s", -1), ints("e", -2**62), ints("a", 1), ints("st", -1)],
     ["b", "p + s", "12", "64"], None),
    ([N("Transpose", ["x"], ["t"], perm=[0, 2, 1, 3]), N("Transpose", ["x"], ["k"], perm=[0, 2, 3, 1]), N("MatMul", ["t", "k"], ["y"])], [],
     ["b", "12", "p + s", "p + s"], None),
    ([N("Shape", ["x"], ["sh"]), N("Gather", ["sh", "i1"], ["g"]), N("Range", ["zero", "g", "one"], ["y"])],
     [scalar("i1", 1), scalar("zero", 0), scalar("one", 1)], ["p + s"], None),
    ([N("Shape", ["x"], ["sh"]), N("ConstantOfShape", ["sh"], ["y"])], [], ["b", "p + s", "12", "64"], None),
    ([N("Flatten", ["x"], ["y"], axis=2)], [], ["b*p + b*s", "768"], None),
    ([N("NonZero", ["x"], ["y"])], [], ["4", "?"], None),
    ([N("Conv", ["x", "k"], ["y"], pads=[1, 1, 1, 1])], [numpy_helper.from_array(np.zeros((3, 4, 3, 3), np.float32), "k")], ["b", "3", "12", "64"], None),
])
def test_sizes_are_computed(tmp_path, nodes, constants, shape, elements):
    facts = Facts(made(tmp_path, nodes, X, initializers=constants))
    assert facts.shape("y") == shape and facts.elements("y") == elements, facts.mismatches


def test_a_cache_grows_by_the_new_tokens(tmp_path):
    """GroupQueryAttention's present is as long as the tokens that its inputs count."""
    nodes = [N("Shape", ["mask"], ["sh"]), N("Gather", ["sh", "i1"], ["g"]), N("Cast", ["g"], ["total"], to=TensorProto.INT32),
             N("GroupQueryAttention", ["q", "k", "v", "pk", "pv", "lens", "total"], ["y", "nk", "nv"], domain="com.microsoft", num_heads=4, kv_num_heads=2)]
    inputs = {"q": (F, ["b", "s", 32]), "k": (F, ["b", "s", 16]), "v": (F, ["b", "s", 16]), "pk": (F, ["b", 2, "p", 8]),
              "pv": (F, ["b", 2, "p", 8]), "lens": (TensorProto.INT32, ["b"]), "mask": (I, ["b", "p + s"])}
    facts = Facts(made(tmp_path, nodes, inputs, ("y", "nk"), [scalar("i1", 1)]))
    assert facts.shape("y") == ["b", "s", "32"] and facts.shape("nk") == ["b", "2", "p + s", "8"]


# ---- subgraphs and functions

def graph_of(nodes, outputs, inputs=()):
    return helper.make_graph(list(nodes), "body", list(inputs), [onnx.ValueInfoProto(name=name) for name in outputs])


def test_branches_are_joined(tmp_path):
    then = graph_of([N("Concat", ["x", "x"], ["t"], axis=0)], ["t"])
    other = graph_of([N("Relu", ["x"], ["e"])], ["e"])
    nodes = [N("If", ["c"], ["y"], then_branch=then, else_branch=other)]
    facts = Facts(made(tmp_path, nodes, {"x": (F, ["n", 3]), "c": (TensorProto.BOOL, [])}))
    assert facts.values["y"] == ("FLOAT", ["?", "3"], None)


def loop(nodes, body_outputs, names, trips="m"):
    body = graph_of(nodes, body_outputs, [helper.make_tensor_value_info("i", I, []), helper.make_tensor_value_info("k", TensorProto.BOOL, []),
                                          onnx.ValueInfoProto(name="s", type=helper.make_tensor_type_proto(F, None))])
    return N("Loop", [trips, "", "x"], names, body=body)


def test_what_a_loop_carries_holds_before_and_after(tmp_path):
    growing = loop([N("Identity", ["k"], ["kk"]), N("Concat", ["s", "s"], ["n"], axis=0), N("Relu", ["s"], ["o"])], ["kk", "n", "o"], ["y", "z"])
    facts = Facts(made(tmp_path, [growing], {"x": (F, ["n", 3]), "m": (I, [])}, ("y", "z")))
    assert facts.shape("y") == ["?", "3"] and facts.shape("z") == ["?", "?", "3"]
    steady = loop([N("Identity", ["k"], ["kk"]), N("Relu", ["s"], ["n"]), N("Relu", ["s"], ["o"])], ["kk", "n", "o"], ["y", "z"])
    facts = Facts(made(tmp_path, [steady], {"x": (F, ["n", 3])}, ("y", "z"), [scalar("m", 7)]))
    assert facts.shape("y") == ["n", "3"] and facts.shape("z") == ["7", "n", "3"]


def test_functions_are_seen_through_with_their_attributes(tmp_path):
    node = N("Transpose", ["a"], ["r"])
    node.attribute.append(onnx.AttributeProto(name="perm", ref_attr_name="order", type=onnx.AttributeProto.INTS))
    function = helper.make_function("local", "Turn", ["a"], ["r"], [node], [helper.make_opsetid("", 21)], ["order"])
    nodes = [N("Turn", ["x"], ["y"], domain="local", order=[1, 0]), N("Turn", ["y"], ["z"], domain="local", order=[0, 1])]
    facts = Facts(made(tmp_path, nodes, {"x": (F, ["n", 3])}, ("y", "z"), functions=[function]))
    assert facts.shape("y") == facts.shape("z") == ["3", "n"]


def nested_ifs(depth):
    nodes, name = [N("Relu", ["x"], ["r0"])], "r0"
    for level in range(1, depth + 1):
        then, other = graph_of(nodes, [name]), graph_of([N("Abs", ["x"], [f"e{level}"])], [f"e{level}"])
        nodes, name = [N("If", ["c"], [f"r{level}"], then_branch=then, else_branch=other)], f"r{level}"
    return nodes, name


def nested_loops(depth):
    """Each body carries a tensor that grows, so that no round of a loop is like the one before."""
    nodes, name = [N("Concat", ["x", "x"], ["r0"], axis=0)], "r0"
    for level in range(1, depth + 1):
        inputs = [helper.make_tensor_value_info(f"i{level}", I, []), helper.make_tensor_value_info(f"k{level}", TensorProto.BOOL, []),
                  onnx.ValueInfoProto(name=f"s{level}", type=helper.make_tensor_type_proto(F, None))]
        body = graph_of([*nodes, N("Concat", [name, f"s{level}"], [f"n{level}"], axis=0), N("Identity", [f"k{level}"], [f"kk{level}"])],
                        [f"kk{level}", f"n{level}"], inputs)
        nodes, name = [N("Loop", ["m", "", "x"], [f"r{level}"], body=body)], f"r{level}"
    return nodes, name


def count(nodes):
    return sum(1 + sum(count(a.g.node) for a in node.attribute if a.HasField("g")) for node in nodes)


@pytest.mark.parametrize("build, depth", [(nested_ifs, 20), (nested_loops, 30)])
def test_nesting_costs_no_more_than_its_nodes(tmp_path, build, depth):
    inputs = {"x": (F, ["n", 3]), "c": (TensorProto.BOOL, []), "m": (I, [])}
    for n in (depth // 2, depth):
        nodes, name = build(n)
        facts = Facts(made(tmp_path, nodes, inputs, (name,)))
        assert count(nodes) <= facts.visits <= 66 * count(nodes) + 4096
        assert facts.values[name] == ("FLOAT", ["?", "3"] if build is nested_loops else ["n", "3"], None)
    if build is nested_ifs:
        assert facts.visits == count(nodes)


def test_functions_that_call_functions_cost_no_more_than_their_nodes(tmp_path):
    """Each calls the one below twice, with other shapes: written out, 2^40 nodes."""
    functions = []
    for k in range(40):
        below = [N(f"F{k - 1}", ["a"], ["p"], domain="local"), N(f"F{k - 1}", ["d"], ["q"], domain="local")] if k else [
            N("Relu", ["a"], ["p"]), N("Relu", ["d"], ["q"])]
        functions.append(helper.make_function("local", f"F{k}", ["a"], ["r"], [N("Concat", ["a", "a"], ["d"], axis=0), *below, N("Concat", ["p", "q"], ["r"], axis=0)],
                                              [helper.make_opsetid("", 21), helper.make_opsetid("local", 1)]))
    facts = Facts(made(tmp_path, [N("F39", ["x"], ["y"], domain="local")], {"x": (F, ["n", 3])}, functions=functions))
    assert facts.visits <= 66 * 161 + 4096
    assert facts.values["y"][0] == "FLOAT" or facts.values["y"][1] is None


# ---- contradictions and hostile sizes

@pytest.mark.parametrize("nodes, inputs, says", [
    ([N("MatMul", ["a", "b"], ["y"])], {"a": (F, [2, 3]), "b": (F, [4, 5])}, "inner axes differ: 3 and 4"),
    ([N("Add", ["a", "b"], ["y"])], {"a": (F, [2, 3]), "b": (F, [2, 4])}, "do not broadcast"),
    ([N("Add", ["a", "b"], ["y"])], {"a": (F, [2]), "b": (I, [2])}, "takes FLOAT and INT64"),
    ([N("Concat", ["a", "b"], ["y"], axis=0)], {"a": (F, [2, 3]), "b": (F, [2, "n + 4"])}, "differ beside the axis"),
    ([N("Transpose", ["a"], ["y"], perm=[0, 0])], {"a": (F, [2, 3])}, "names an axis twice"),
    ([N("Transpose", ["a"], ["y"], perm=[0])], {"a": (F, [2, 3])}, "no permutation"),
    ([N("Softmax", ["a"], ["s"]), N("ArgMax", ["s"], ["y"], axis=7)], {"a": (F, [2, 3])}, "axis 7 of 2"),
    ([N("Conv", ["a", "b"], ["y"])], {"a": (F, [1, 3, 2, 2]), "b": (F, [4, 3, 5, 5])}, "does not fit an axis of 2"),
    ([N("Pad", ["a", "p"], ["y"])], {"a": (F, [2])}, "an extent of -4"),
    ([N("ConstantOfShape", ["q"], ["y"])], {"a": (F, [2])}, "an extent of -3"),
    ([N("Squeeze", ["a", "z"], ["y"])], {"a": (F, [2, 3])}, "squeezes an axis of 2"),
    ([N("Clip", [], ["y"])], {"a": (F, [2, 3])}, "lacks input 0"),
    ([N("Reshape", ["a", "six"], ["y"])], {"a": (F, [2, 3, 4])}, "cannot make [6] of [2, 3, 4]"),
])
def test_what_no_run_can_take_is_said(tmp_path, tool, nodes, inputs, says):
    constants = [ints("p", -3, -3), ints("q", 2, -3), ints("z", 0), ints("six", 6)]
    path = made(tmp_path, nodes, inputs, initializers=constants)
    facts = Facts(path)
    assert len(facts.mismatches) == 1 and says in facts.mismatches[0][1], facts.mismatches
    assert facts.values["y"] == ("?", None, None)
    assert f"warning: {facts.mismatches[0][0]}: " in tool("inspect", path).out
    assert tool.json("inspect", path)["mismatches"] == [{"node": facts.mismatches[0][0], "message": facts.mismatches[0][1]}]


def test_a_declared_type_that_contradicts_is_said_and_not_believed(tmp_path):
    infos = [helper.make_tensor_value_info("m", F, ["n + 1", 3]), helper.make_tensor_value_info("k", I, None)]
    nodes = [N("Relu", ["x"], ["m"]), N("Relu", ["m"], ["k"]), N("Frobnicate", ["k"], ["f"], domain="local"), N("Relu", ["f"], ["y"])]
    facts = Facts(made(tmp_path, nodes, {"x": (F, ["n", 3])}, value_info=[*infos, helper.make_tensor_value_info("f", F, [5, "q"])]))
    assert [place for place, _ in facts.mismatches] == ['value "m"', 'value "k"']
    assert facts.values["k"] == ("FLOAT", ["n", "3"], None)
    assert facts.values["y"] == ("FLOAT", ["5", "q"], None)      # where nothing is inferred, what is declared holds


def test_sizes_that_overflow_are_not_known(tmp_path):
    big = 2**62
    nodes = [N("Concat", ["a", "a", "a"], ["c"], axis=0), N("Flatten", ["a"], ["f"]), N("Size", ["a"], ["s"]), N("Mul", ["s", "s"], ["m"]),
             N("Pad", ["a", "p"], ["q"]), N("MaxPool", ["w"], ["y"], kernel_shape=[2**62], strides=[2**61], dilations=[2**62])]
    inputs = {"a": (F, [big, big, "n"]), "w": (F, [1, 1, big])}
    facts = Facts(made(tmp_path, nodes, inputs, ("c", "f", "s", "m", "q", "y"), [ints("p", big, 0, 0, big, 0, 0)]))
    assert facts.shape("c") == ["?", str(big), "n"] and facts.shape("f") == [str(big), f"{big}*n"] and facts.shape("q") == ["?", str(big), "n"]


def test_a_polynomial_is_bounded(tmp_path):
    """(a + b + ...)^64 is no size that anyone needs."""
    nodes = [N("Shape", ["x"], ["s0"]), N("ReduceSum", ["s0"], ["p0"], keepdims=0)]
    nodes += [N("Mul", [f"p{k}", f"p{k}"], [f"p{k + 1}"]) for k in range(6)]
    facts = Facts(made(tmp_path, nodes, {"x": (F, [f"n{k}" for k in range(20)])}, ("p6",)))
    assert facts.elements("p6") in (None, ["?"]) and len(facts.elements("p0")[0].split("+")) == 20


def test_weights_stay_unread_small_integers_do_not(tmp_path):
    """8 GiB of a sparse file beside a shape in the same file, in 1 GiB of memory."""
    def external(name, kind, dims, offset, length):
        tensor = TensorProto(name=name, data_type=kind, dims=dims, data_location=TensorProto.EXTERNAL)
        for key, value in (("location", "w.bin"), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))
        return tensor
    with open(tmp_path / "w.bin", "wb") as file:
        file.write(np.array([-1, 4096], np.int64).tobytes())
        file.truncate(4096 + 2**33)
    constants = [external("t", I, [2], 0, 16), external("w", F, [2**16, 2**15], 4096, 2**33)]
    path = made(tmp_path, [N("MatMul", ["x", "w"], ["m"]), N("Reshape", ["m", "t"], ["y"])], {"x": (F, ["n", 2**16])}, initializers=constants)
    assert Facts(path, memory=2**30).shape("y") == ["8*n", "4096"]


# ---- against onnxruntime

def bared(model):
    """Nothing declared of what nodes make; all of it an output."""
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    del bare.graph.value_info[:]
    names = [o.name for o in bare.graph.output]
    del bare.graph.output[:]
    names += [name for node in bare.graph.node for name in node.output if name and name not in set(names)]
    bare.graph.output.extend(onnx.ValueInfoProto(name=name) for name in dict.fromkeys(names))
    return bare


def bind(dim, sizes):
    """The value of a polynomial's text, None if a symbol is free; a lone free symbol is bound by `expect`."""
    total = 0
    for term in dim.split(" + "):
        product = 1
        for factor in term.split("*"):
            value = int(factor) if factor.lstrip("-").isdigit() else sizes.get(factor)
            if value is None:
                return None
            product *= value
        total += product
    return total


def check(dim, actual, sizes, what):
    if dim == "?":
        return
    value = bind(dim, sizes)
    if value is None:
        if "*" not in dim and " " not in dim:
            sizes[dim] = actual
        return
    assert value == actual, (what, dim, value, actual, sizes)


def judge(path, model, feeds):
    """Every fact of every value against what onnxruntime makes of the feeds."""
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    facts = Facts(path)
    assert facts.mismatches == []
    for feed in feeds:
        sizes = {}
        for name, array in feed.items():
            for dim, actual in zip(facts.shape(name) or [], array.shape):
                check(dim, actual, sizes, name)
        for name, array in zip(names, session.run(None, feed), strict=True):
            kind, shape, elements = facts.values[name]
            if not isinstance(array, np.ndarray):
                continue
            if kind != "?":
                assert helper.np_dtype_to_tensor_dtype(array.dtype) == getattr(TensorProto, kind), (name, kind, array.dtype)
            if shape is not None:
                assert len(shape) == array.ndim, (name, shape, array.shape)
                for dim, actual in zip(shape, array.shape, strict=True):
                    check(dim, actual, sizes, name)
            for dim, actual in zip(elements or [], array.reshape(-1).tolist(), strict=elements is not None):
                check(dim, int(actual), sizes, name)
    return facts, names


def feed_for(model, sizes):
    rng = np.random.default_rng(7)
    initial = {t.name for t in model.graph.initializer}
    feed = {}
    for value in model.graph.input:
        if value.name in initial:
            continue
        tensor = value.type.tensor_type
        shape = [d.dim_value if d.HasField("dim_value") else sizes(value.name, k, d.dim_param) for k, d in enumerate(tensor.shape.dim)]
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        feed[value.name] = (rng.standard_normal(shape) if dtype.kind == "f" else np.ones(shape)).astype(dtype)
    return feed


def named_size(first):
    sizes = {}

    def size(_, __, param):
        terms = [t.strip() for t in param.split("+")]
        if param not in sizes and len(terms) > 1:
            return sum(size(_, __, term) for term in terms)
        return sizes.setdefault(param, first + len(sizes))
    return size


# Least share of the values that nodes make whose shape is known in full, without what the files declare of them. bert_toy's
# positions are cut by the least of two floats.
REAL = {"gpt2_past/gpt2_past.onnx": 1, "bert_toy/bert_toy_optimized.onnx": 0.22, "optimum_tiny_bert/model.onnx": 1,
        "tf_bert_qa/TFBertForQuestionAnswering.onnx": 1, "whisper_hf_fp32_dec_past/hf_fp32_decoder_attention_with_past.onnx": 1,
        "vespa_encoder/random_encoder.onnx": 1, "quantized_mlp_qdq/model.onnx": 1, "byte_sb_bidi_lstm/model.onnx": 1,
        "big_fanout/example_big_fanout.onnx": 1, "nested_loops_30/30_nested_loops.onnx": 1,
        "whisper_hf_fp16_enc/hf_fp16_encoder_self_attention.onnx": 1}


@pytest.mark.parametrize("name", REAL)
def test_real_models_at_two_sizes(tmp_path, name):
    model = onnx.load(MODELS / name)
    bare = bared(model)
    path = tmp_path / "m.onnx"
    path.write_bytes(bare.SerializeToString())
    facts, names = judge(path, bare, [feed_for(model, named_size(first)) for first in (2, 5)])
    full = sum(facts.full(name) for name in names)
    inferred = onnx.shape_inference.infer_shapes(bare, data_prop=True)
    shapes = {v.name: v.type.tensor_type.shape for v in [*inferred.graph.value_info, *inferred.graph.output]
              if v.type.HasField("tensor_type") and v.type.tensor_type.HasField("shape")}
    theirs = sum(name in shapes and all(d.HasField("dim_value") or (d.HasField("dim_param") and not d.dim_param.startswith("unk__"))
                                        for d in shapes[name].dim) for name in names)
    assert full >= theirs and full >= REAL[name] * len(names)


def test_a_published_model_that_cannot_run(tmp_path):
    """Its padding makes 201 rows of 200: onnxruntime loads it, and fails at the node that inference names."""
    ort = pytest.importorskip("onnxruntime")
    model = onnx.load(MODELS / "keras_model_0" / "test_model_0_no_opt.onnx")
    assert Facts(MODELS / "keras_model_0" / "test_model_0_no_opt.onnx").mismatches == [
        ('node "Test/concat_1_concat" ("Concat")', "its inputs differ beside the axis: 201 and 200")]
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    with pytest.raises(Exception, match="(?s)Test/concat_1_concat.*200 and 201"):
        session.run(None, feed_for(model, named_size(2)))


def decoder():
    """Two layers with rotated, grouped heads and a cache, as language models are written in PyTorch."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v, self.o = (torch.nn.Linear(32, width, bias=False) for width in (32, 16, 16, 32))
            self.norm = torch.nn.LayerNorm(32)

        def forward(self, x, mask, past_k, past_v, cos, sin):
            batch, length, _ = x.shape
            h = self.norm(x)
            q, k, v = (m(h).view(batch, length, -1, 8).transpose(1, 2) for m in (self.q, self.k, self.v))

            def turned(t):
                return t * cos + torch.cat((-t[..., 4:], t[..., :4]), dim=-1) * sin
            k, v = torch.cat((past_k, turned(k)), dim=2), torch.cat((past_v, v), dim=2)
            wide_k, wide_v = (t[:, :, None].expand(batch, 2, 2, t.shape[2], 8).reshape(batch, 4, t.shape[2], 8) for t in (k, v))
            scores = turned(q) @ wide_k.transpose(2, 3) / 8**0.5 + mask
            y = (scores.softmax(-1) @ wide_v).transpose(1, 2).reshape(batch, length, 32)
            return x + self.o(y), k, v

    class Decoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(50, 32)
            self.first, self.second = Layer(), Layer()

        def forward(self, ids, k0, v0, k1, v1):
            past, length = k0.shape[2], ids.shape[1]
            at = torch.arange(past, past + length)
            angle = at[:, None].float() / torch.arange(1, 9)[None, :]
            cos, sin = angle.cos(), angle.sin()
            mask = torch.where(torch.arange(past + length)[None, :] > at[:, None], -1e9, 0.0)[None, None]
            x, k0, v0 = self.first(self.embed(ids), mask, k0, v0, cos, sin)
            x, k1, v1 = self.second(x, mask, k1, v1, cos, sin)
            return x[:, -1:] @ self.embed.weight.T, k0, v0, k1, v1
    torch.manual_seed(7)
    return torch, Decoder().eval()


@pytest.mark.parametrize("dynamo", [False, True])
def test_a_decoder_exported_by_pytorch(tmp_path, dynamo):
    """Symbols of batch, past and new tokens reach every value; two sizes of each are run."""
    torch, model = decoder()
    names = ["ids", "k0", "v0", "k1", "v1"]
    example = (torch.zeros(2, 3, dtype=torch.int64), *(torch.randn(2, 2, 5, 8) for _ in range(4)))
    axes = {name: {0: "batch", 1: "new"} if name == "ids" else {0: "batch", 2: "past"} for name in names}
    path = tmp_path / "torch.onnx"
    options = {"dynamic_shapes": axes, "external_data": False, "verbose": False, "opset_version": 18} if dynamo else {"dynamic_axes": axes, "opset_version": 17}
    with torch.no_grad():
        torch.onnx.export(model, example, str(path), input_names=names, output_names=["logits", *(f"new_{n}" for n in names[1:])], dynamo=dynamo, **options)
    bare = bared(onnx.load(path))
    bare_path = tmp_path / "m.onnx"
    bare_path.write_bytes(bare.SerializeToString())
    rng = np.random.default_rng(7)

    def feed(batch, new, past):
        caches = {name: rng.standard_normal((batch, 2, past, 8)).astype(np.float32) for name in names[1:]}
        return {"ids": rng.integers(0, 50, (batch, new)), **caches}
    facts, values = judge(bare_path, bare, [feed(2, 3, 5), feed(4, 7, 11), feed(3, 1, 0)])
    assert facts.shape("logits") == ["batch", "1", "50"]
    assert facts.shape("new_k0") == facts.shape("new_v1") == ["batch", "2", "new + past", "8"]
    unknown = [name for name in values if not facts.full(name)]
    assert unknown == [], [(name, facts.shape(name)) for name in unknown]
