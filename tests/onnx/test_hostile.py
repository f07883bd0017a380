"""Files that nobody should send: each ends in its diagnostic, quickly, without a crash and without reading elsewhere."""
import os
import random
import subprocess
import sys

import pytest
from tool import BINARY

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper  # noqa: E402
from onnx_scale import field, varint  # noqa: E402  (messages by hand: Python's protobuf writes neither a million nodes nor 200 graphs in graphs)


def model(nodes=(), initializers=(), outputs=("y",), functions=(), ir_version=9, opsets=(("", 18),), sparse=(), inputs=()):
    graph = helper.make_graph(list(nodes), "g", [onnx.ValueInfoProto(name=name) for name in inputs],
                              [onnx.ValueInfoProto(name=name) for name in outputs], initializer=list(initializers))
    graph.sparse_initializer.extend(sparse)
    return helper.make_model(graph, functions=list(functions), ir_version=ir_version,
                             opset_imports=[helper.make_opsetid(*opset) for opset in opsets])


def identity(of="w"):
    return helper.make_node("Identity", [of], ["y"])


def outside(location=None, count=2, name="w", **keys):
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[count], data_location=TensorProto.EXTERNAL)
    for key, value in {**({} if location is None else {"location": location}), **keys}.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


def refusal(tool, path, content, code, exit_status=4, says=""):
    path.write_bytes(content if isinstance(content, bytes) else content.SerializeToString())
    done = tool("inspect", path)
    assert done.code == exit_status and done.codes == [f"TF{code}"] and says in done.err, done
    return done


@pytest.fixture
def home(tmp_path):
    """A folder for the model, with a secret beside it."""
    folder = tmp_path / "home"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(b"\1" * 64)
    (folder / "data.bin").write_bytes(b"\1" * 64)
    return folder


@pytest.mark.parametrize("location", ["../secret.bin", "a/../../secret.bin", "./../secret.bin", "{root}/secret.bin", "C:\\secret.bin", "..\\secret.bin", "",
                                      "nowhere.bin", ".", "*/_ORT_MEM_ADDR_/*"])
@pytest.mark.parametrize("where", ["initializer", "attribute", "sparse values", "sparse indices", "function"])
def test_locations_out_of_reach(tool, home, location, where):
    (home / "a").mkdir()
    tensor = outside(location.format(root=home.parent))
    indices = helper.make_tensor("i", TensorProto.INT64, [2], [0, 1])
    constant = helper.make_node("Constant", [], ["w"], value=tensor)
    if where == "initializer":
        made = model([identity()], [tensor])
    elif where == "attribute":
        made = model([constant, identity()])
    elif where == "function":
        body = helper.make_function("d", "F", [], ["w"], [constant], [helper.make_opsetid("", 18)])
        made = model([helper.make_node("F", [], ["y"], domain="d")], functions=[body], opsets=[("", 18), ("d", 1)])
    else:
        place = outside(location.format(root=home.parent), name="")
        place.data_type = TensorProto.FLOAT if where == "sparse values" else TensorProto.INT64
        values = helper.make_tensor("w", TensorProto.FLOAT, [2], [1, 2])
        place.name = "w" if where == "sparse values" else ""
        sparse = onnx.SparseTensorProto(values=place if where == "sparse values" else values,
                                        indices=indices if where == "sparse values" else place, dims=[4])
        made = model([identity()], sparse=[sparse])
    refusal(tool, home / "m.onnx", made, 2004)


@pytest.mark.parametrize("out", ["inspect", "eval", "export"])
def test_every_verb_goes_through_the_same_check(tool, home, out):
    """What reads, what runs and what writes again: no way of theirs to a tensor's file is another's."""
    path = home / "m.onnx"
    path.write_bytes(model([identity()], [outside("../secret.bin")]).SerializeToString())
    (home / "in").mkdir()
    more = {"inspect": [], "eval": ["--inputs", home / "in", "--out", home / "out"], "export": ["--to", "onnx", "--out", home / "out"]}[out]
    done = tool(out, path, *more)
    assert done.codes == ["TF2004"] and done.code == 4 and not (home / "out").exists(), done


def test_training_graphs_reach_no_further(tool, home):
    """Nobody runs them here, and they are written again: then their tensors are looked at like all others."""
    made = model([identity()], [helper.make_tensor("w", 1, [1], [1])])
    made.training_info.add().initialization.initializer.append(outside("../secret.bin", name="t", checksum="0" * 40))
    made.training_info[0].initialization.name = "i"
    path = home / "m.onnx"
    path.write_bytes(made.SerializeToString())
    for more in ([], ["--integrity"]):
        done = tool("export", path, "--to", "onnx", *more, "--out", home / "out")
        assert done.codes == ["TF2004"] and done.code == 4 and not (home / "out").exists(), done


def test_nothing_is_written_outside_of_the_new_folder(tool, home):
    """A location that is read (a link into the model's own store) is no place to write to."""
    (home / "store").mkdir()
    (home / "store" / "w").write_bytes(b"\1" * 64)
    (home / "model").mkdir()
    (home / "store" / "m").write_bytes(model([identity()], [outside("../store/w")]).SerializeToString())
    (home / "model" / "m.onnx").symlink_to(home / "store" / "m")
    before = sorted(home.rglob("*"))
    done = tool("export", home / "model" / "m.onnx", "--to", "onnx", "--out", home / "out")
    assert done.codes == ["TF2020"] and sorted(home.rglob("*")) == before, done
    assert tool("export", home / "model" / "m.onnx", "--to", "onnx", "--data-layout", "single", "--out", home / "out").code == 0
    assert (home / "out" / "m.onnx.data").read_bytes() == b"\1" * 8
    (home / "dangling").symlink_to(home.parent / "elsewhere")
    again = tool("export", home / "out" / "m.onnx", "--to", "onnx", "--out", home / "dangling")
    assert again.codes == ["TF1608"] and not (home.parent / "elsewhere").exists(), again


def test_links_out_of_the_folder(tool, home):
    (home / "link.bin").symlink_to(home.parent / "secret.bin")
    refusal(tool, home / "m.onnx", model([identity()], [outside("link.bin")]), 2004, says="leads out")
    (home / "up").symlink_to(home.parent)
    refusal(tool, home / "m.onnx", model([identity()], [outside("up/secret.bin")]), 2004, says="leads out")
    os.link(home.parent / "secret.bin", home / "hard.bin")
    refusal(tool, home / "m.onnx", model([identity()], [outside("hard.bin")]), 2004, says="hard link")
    os.mkfifo(home / "pipe")
    refusal(tool, home / "m.onnx", model([identity()], [outside("pipe")]), 2004, says="not a regular file")


def test_a_store_of_linked_files_is_read(tool, home):
    """As caches hold models: both names are links into one folder of blobs."""
    store = home.parent / "blobs"
    store.mkdir()
    (store / "1234").write_bytes(b"\1" * 64)
    (store / "5678").write_bytes(model([identity()], [outside("w.bin")]).SerializeToString())
    (home / "m.onnx").symlink_to(store / "5678")
    (home / "w.bin").symlink_to(store / "1234")
    assert tool.json("inspect", home / "m.onnx")["external_files"] == ["w.bin"]


@pytest.mark.parametrize("keys,code", [({"offset": "-1"}, 2004), ({"offset": "1e3"}, 2004), ({"offset": "99999999999999999999"}, 2004), ({"offset": "60"}, 2004),
                                       ({"offset": "64"}, 2004), ({"length": "-8"}, 2004), ({"length": "9223372036854775807"}, 2003), ({"length": "4"}, 2003),
                                       ({"length": ""}, 2004), ({"__class__": "x"}, 2004)])
def test_external_numbers(tool, home, keys, code):
    refusal(tool, home / "m.onnx", model([identity()], [outside("data.bin", **keys)]), code)


@pytest.mark.parametrize("tensor", [
    TensorProto(name="w", data_type=1, dims=[2], raw_data=b"123"), TensorProto(name="w", data_type=1, dims=[2], raw_data=b"123456789"),
    TensorProto(name="w", data_type=1, dims=[1 << 40, 1 << 40]), TensorProto(name="w", data_type=1, dims=[-1]), TensorProto(name="w", data_type=1, dims=[1 << 40]),
    TensorProto(name="w", data_type=99, dims=[1]), TensorProto(name="w", data_type=0, dims=[1]), TensorProto(name="w", data_type=1, dims=[1], int64_data=[1]),
    TensorProto(name="w", data_type=8, dims=[1], raw_data=b"a"), TensorProto(name="w", data_type=22, dims=[3], int32_data=[1, 2, 3]),
    TensorProto(name="w", data_type=1, dims=[0], raw_data=b"1234")], ids=range(11))
def test_tensors_whose_data_do_not_fit(tool, tmp_path, tensor):
    refusal(tool, tmp_path / "m.onnx", model([identity()], [tensor]), 2003)


@pytest.mark.parametrize("places", [[3, 1], [1, 1], [1, 9], [-1, 2]])
def test_sparse_places(tool, tmp_path, places):
    sparse = onnx.SparseTensorProto(values=helper.make_tensor("w", 1, [2], [1, 2]), indices=helper.make_tensor("", 7, [2], places), dims=[4])
    path = tmp_path / "m.onnx"
    path.write_bytes(model([identity()], sparse=[sparse]).SerializeToString())
    (tmp_path / "in").mkdir()
    done = tool("eval", path, "--inputs", tmp_path / "in", "--out", tmp_path / "out")
    assert done.codes == ["TF2003"] and done.code == 4 and not (tmp_path / "out").exists(), done


def test_graphs_that_are_not_sound(tool, tmp_path):
    path = tmp_path / "m.onnx"
    w = helper.make_tensor("w", 1, [1], [1])
    node = helper.make_node
    refusal(tool, path, model([node("Identity", ["nowhere"], ["y"])]), 2002, says="nothing makes")
    refusal(tool, path, model([identity(), identity()], [w]), 2002, says="made twice")
    refusal(tool, path, model([identity()], [w, w]), 2002)
    refusal(tool, path, model([identity()], [w], outputs=["z"]), 2002, says="made by nothing")
    circle = [node("Neg", ["b"], ["a"], name="first"), node("Neg", ["a"], ["b"], name="second"), node("Neg", ["a"], ["y"])]
    refusal(tool, path, model(circle), 2002, says='nodes in a circle: node "first", node "second"')
    branch = helper.make_graph([node("Identity", ["y"], ["t"])], "t", [], [onnx.ValueInfoProto(name="t")])
    cond = helper.make_tensor("c", 9, [], [1])
    refusal(tool, path, model([node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)], [cond]), 2002, says="circle")
    refusal(tool, path, model([identity()], [w], opsets=[("", 18), ("ai.onnx", 17)]), 2002, says="two versions")
    refusal(tool, path, model([identity()], [w], opsets=[]), 2002, says="operator set")
    refusal(tool, path, model([identity()], [w], ir_version=0), 2002)
    refusal(tool, path, model([identity()], [w], opsets=[("", 314159)]), 2006, 3)
    refusal(tool, path, model([identity()], [w], ir_version=99), 2006, 3)
    two = node("Cast", ["w"], ["y"], to=1)
    two.attribute.add(name="to", type=2, i=7)
    refusal(tool, path, model([two], [w]), 2002, says="two attributes")
    refusal(tool, path, b"", 2001)
    refusal(tool, path, b"not a model at all", 2001)


def test_functions_that_call_themselves(tool, tmp_path):
    def function(name, calls):
        return helper.make_function("d", name, ["x"], ["y"], [helper.make_node(calls, ["x"], ["y"], domain="d" if calls[0] == "F" else "")],
                                    [helper.make_opsetid("", 18), helper.make_opsetid("d", 1)])

    def caller(functions, calls="F0"):
        return model([helper.make_node(calls, ["w"], ["y"], domain="d")], [helper.make_tensor("w", 1, [1], [1])], functions=functions, opsets=[("", 18), ("d", 1)])
    path = tmp_path / "m.onnx"
    refusal(tool, path, caller([function("F0", "F0")]), 2005, says="calls itself")
    refusal(tool, path, caller([function("F0", "F1"), function("F1", "F2"), function("F2", "F0")]), 2005, says="calls itself")
    chain = [function(f"F{i}", f"F{i + 1}" if i < 250 else "Neg") for i in range(251)]
    refusal(tool, path, caller(chain), 2005, says="functions deep")


def nested(levels):
    """If in If, `levels` graphs deep."""
    def body(node, output, more=b""):
        return field(1, node) + field(2, b"g") + more + field(12, field(1, output))

    graph = body(field(1, b"w") + field(2, b"t") + field(4, b"Neg"), b"t")
    for level in range(1, levels):
        branches = b"".join(field(5, field(1, name) + field(6, graph) + b"\xa0\x01\x05") for name in [b"then_branch"])
        weights = b"".join(field(5, helper.make_tensor(name, kind, [], [1]).SerializeToString()) for name, kind in (("w", 1), ("c", 9)))
        output = b"t%d" % level
        graph = body(field(1, b"c") + field(2, output) + field(4, b"If") + branches, output, weights if level == levels - 1 else b"")
    return b"\x08\x09" + field(7, graph) + field(8, b"\x10\x12")


def test_deep_nesting(tool, tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(nested(200))
    assert tool.json("inspect", path)["depth"] == 200
    (tmp_path / "in").mkdir()
    assert tool("eval", path, "--inputs", tmp_path / "in", "--out", tmp_path / "out").code == 0
    tool.json("export", path, "--to", "onnx", "--out", tmp_path / "same")
    assert (tmp_path / "same" / "m.onnx").read_bytes() == nested(200)
    refusal(tool, path, nested(201), 2005, says="graphs deep")
    refusal(tool, path, nested(320), 2001)


# Started by a small process: a child's peak includes what its parent held when it was started.
MEASURE = """import resource, subprocess, sys, time
start = time.monotonic()
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
print(code, time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)"""


def peak_of(path):
    """Exit status, seconds and peak resident bytes of `inspect`."""
    said = subprocess.run([sys.executable, "-S", "-c", MEASURE, BINARY, "inspect", str(path)], capture_output=True, text=True, check=True).stdout.split()
    return int(said[0]), float(said[1]), int(said[2])


def test_declared_sizes_allocate_nothing(tmp_path):
    path = tmp_path / "m.onnx"
    small = [TensorProto(name="w", data_type=1, dims=[1 << 33]), outside("m.onnx", count=1 << 33),
             TensorProto(name="w", data_type=TensorProto.STRING, dims=[1 << 33])]
    for tensor in small:
        path.write_bytes(model([identity()], [tensor]).SerializeToString())
        code, seconds, peak = peak_of(path)
        assert code == 4 and peak < 64 << 20, (code, peak)


def test_weights_are_not_read_with_the_model(tmp_path):
    """Neither where they are one tensor of many bytes, nor where the file is larger than one message may be."""
    for size, holes in ((64 << 20, False), (3 << 30, True)):
        path = tmp_path / f"m{size}.onnx"
        head = TensorProto(name="w", data_type=1, dims=[size // 4]).SerializeToString() + b"\x4a" + varint(size)
        nodes = model([identity()]).graph.SerializeToString()
        graph = nodes + b"\x2a" + varint(len(head) + size) + head
        with open(path, "wb") as file:
            file.write(b"\x08\x09" + field(8, b"\x10\x12") + b"\x3a" + varint(len(graph) + size) + graph)
            if holes:
                file.truncate(file.tell() + size)
            else:
                file.write(bytes(size))
        code, _, peak = peak_of(path)
        assert code == 0 and peak < 48 << 20, (code, peak)
        os.unlink(path)


def test_a_million_nodes(tmp_path):
    count = 1_000_000
    nodes = b"".join(field(1, field(1, b"v%d" % i) + field(2, b"v%d" % (i + 1)) + field(4, b"Neg")) for i in range(count))
    graph = nodes + field(2, b"g") + field(11, field(1, b"v0")) + field(12, field(1, b"v%d" % count))
    path = tmp_path / "m.onnx"
    path.write_bytes(b"\x08\x09" + field(7, graph) + field(8, b"\x10\x12"))
    code, seconds, peak = peak_of(path)
    assert code == 0 and seconds < 30, (code, seconds)


CORPUS = random.Random(11)


def some_model():
    body = helper.make_graph([helper.make_node("Add", ["s", "w"], ["n"]), helper.make_node("Identity", ["k"], ["kk"]), helper.make_node("Identity", ["n"], ["o"])], "b",
                             [onnx.ValueInfoProto(name=name) for name in ("i", "k", "s")], [onnx.ValueInfoProto(name=name) for name in ("kk", "n", "o")])
    nodes = [helper.make_node("Constant", [], ["t"], value_int=3), helper.make_node("Cast", ["t"], ["c"], to=9), helper.make_node("Loop", ["t", "c", "w"], ["z", "zs"], body=body),
             helper.make_node("Conv", ["zs", "k"], ["y"], kernel_shape=[2])]
    return model(nodes, [helper.make_tensor("w", 1, [1, 4], [1, 2, 3, 4]), helper.make_tensor("k", 1, [1, 1, 2], [1, 2])]).SerializeToString()


@pytest.mark.parametrize("kind", ["truncated", "flipped", "doubled"])
def test_damaged_files_end_in_a_diagnostic_or_a_result(tool, tmp_path, kind):
    whole = some_model()
    path, data = tmp_path / "m.onnx", tmp_path / "in"
    data.mkdir()
    for trial in range(40):
        damaged = bytearray(whole)
        at = CORPUS.randrange(len(whole))
        if kind == "truncated":
            damaged = damaged[:at]
        elif kind == "flipped":
            damaged[at] ^= 1 << CORPUS.randrange(8)
        else:
            damaged[at:at] = damaged[at:at + CORPUS.randrange(1, 40)]
        path.write_bytes(damaged)
        done = tool("eval", path, "--inputs", data, "--out", tmp_path / f"out{kind}{trial}")
        assert done.code in (0, 2, 3, 4, 5), done
        assert (done.code == 0) == (not done.codes), done


def test_loops_that_do_not_end(tool, tmp_path):
    body = helper.make_graph([helper.make_node("Identity", ["k"], ["kk"])], "b", [onnx.ValueInfoProto(name=name) for name in ("i", "k")], [onnx.ValueInfoProto(name="kk")])
    truth = helper.make_tensor("c", 9, [], [1])
    path = tmp_path / "m.onnx"
    path.write_bytes(model([helper.make_node("Loop", ["", "c"], [], body=body), identity("c")], [truth]).SerializeToString())
    (tmp_path / "in").mkdir()
    done = tool("eval", path, "--inputs", tmp_path / "in", "--out", tmp_path / "out")
    assert done.codes == ["TF2008"] or done.codes == ["TF1902"], done


def test_tensors_too_large_to_make(tool, tmp_path):
    shape = helper.make_tensor("s", 7, [2], [1 << 20, 1 << 20])
    path = tmp_path / "m.onnx"
    path.write_bytes(model([helper.make_node("ConstantOfShape", ["s"], ["y"])], [shape]).SerializeToString())
    (tmp_path / "in").mkdir()
    done = tool("eval", path, "--inputs", tmp_path / "in", "--out", tmp_path / "out")
    assert done.code == 5 and done.codes == ["TF1902"], done


def test_inputs_that_do_not_fit(tool, tmp_path):
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", [helper.make_tensor_value_info("x", 1, [2])], [onnx.ValueInfoProto(name="y")])
    path = tmp_path / "m.onnx"
    path.write_bytes(helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 18)]).SerializeToString())
    data = tmp_path / "in"

    def said(code, says):
        done = tool("eval", path, "--inputs", data, "--out", tmp_path / "out")
        assert done.code == code and done.codes == [{2: "TF2009", 4: "TF2001"}[code]] and says in done.err and not (tmp_path / "out").exists(), done
    said(2, "is no folder")
    data.mkdir()
    said(2, "is missing")
    (data / "input_0.pb").write_bytes(helper.make_tensor("x", 1, [3], [1, 2, 3]).SerializeToString())
    said(2, "the model declares")
    (data / "input_0.pb").write_bytes(b"\xff\xff\xff")
    said(4, "does not parse")
    (data / "input_0.pb").write_bytes(helper.make_tensor("x", 1, [2], [1, 2]).SerializeToString())
    (data / "input_1.pb").write_bytes(b"")
    said(2, "takes 1 inputs")


def test_operators_without_a_meaning(tool, tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(model([helper.make_node("Frobnicate", ["w"], ["y"], domain="org.example", name="odd")], [helper.make_tensor("w", 1, [1], [1])],
                           opsets=[("", 18), ("org.example", 3)]).SerializeToString())
    assert tool.json("inspect", path)["refused"] == {"org.example.Frobnicate": "not an operator of the standard"}
    (tmp_path / "in").mkdir()
    done = tool("eval", path, "--inputs", tmp_path / "in", "--out", tmp_path / "out")
    assert done.code == 3 and done.codes == ["TF2007"] and 'node "odd" ("org.example.Frobnicate")' in done.err, done
