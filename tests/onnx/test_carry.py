"""A model goes out as it came in: every file at hand read and written again; one weight changed in a large one; what cannot be written says why."""
import hashlib
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from tool import BINARY, SHARED

np = pytest.importorskip("numpy")
onnx = pytest.importorskip("onnx")
from onnx import TensorProto, external_data_helper, helper, numpy_helper  # noqa: E402

ROUND_TRIP = Path(BINARY).parents[1] / "tests" / "onnx" / "onnx_round_trip"
MODELS = SHARED / "data" / "onnx_models"
# Started by a small process: a child's peak includes what its parent held when it was started.
MEASURE = """import resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Every model at hand: the standard's tests, real models, one-operator models."""
    folder = tmp_path_factory.mktemp("models")
    for archive in (SHARED / "data" / "onnx_backend_tests.tar.xz", MODELS / "llm_op_fixtures.tar.xz"):
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
    found = sorted(folder.rglob("*.onnx")) + sorted(MODELS.rglob("*.onnx"))
    assert len(found) >= 1643 + 115 + 27
    return found


def test_every_model_comes_back(files):
    """The same bytes as protobuf's own deterministic form of what was read, and in one data file the same elements."""
    said = subprocess.run([ROUND_TRIP, *files], capture_output=True, text=True, timeout=600, check=True).stdout.splitlines()
    rows = {Path(path): (verdict, why) for path, verdict, why in (line.split("\t") for line in said)}
    assert set(rows) == set(files)
    others = {path.name: why for path, (verdict, why) in rows.items() if verdict != "same"}
    # Models that are not sound, which inspect refuses with the same words.
    assert {name: why.split()[0] for name, why in others.items()} == REFUSED, others


REFUSED = {
    "mobilenetv2.onnx": "TF2004",                                                          # came without its weights
    "swiglu_64_128_256.onnx": "TF2003",                                                    # a weight without its numbers
    "attention_double_head_bias_mask_past_attn_bias_shared_past_seq_len_test.onnx": "TF2002",  # takes what nothing makes
}


def accepted(path):
    """Whether the format's checker takes it: some real models it does not, and their copies neither."""
    try:
        onnx.checker.check_model(path)
    except onnx.checker.ValidationError:
        return False
    return True


def load(path):
    made = onnx.load(path)
    for tensor in external_data_helper._get_all_tensors(made):
        tensor.ClearField("external_data")
        tensor.ClearField("data_location")
    return made


@pytest.mark.parametrize("name", ["gpt2_past", "silero_vad", "optimum_tiny_bert", "hf_fp32_decoder_attention_with_past", "mnist", "conv_qdq_external", "light_squeezenet", "30_nested_loops"])
@pytest.mark.parametrize("layout", ["keep", "single"])
def test_others_read_what_is_written(tool, tmp_path, name, layout):
    runtime = pytest.importorskip("onnxruntime")
    found = [path for path in MODELS.rglob("*.onnx") if name in (path.stem, path.parent.name)]
    assert len(found) == 1, found
    said = tool.json("export", found[0], "--to", "onnx", "--data-layout", layout, "--out", tmp_path / "out")
    made = tmp_path / "out" / found[0].name
    assert {file.name for file in (tmp_path / "out").iterdir()} == {row["name"] for row in said["files"]}
    assert load(made) == load(found[0])
    assert accepted(made) == accepted(found[0])
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    feeds = {Path(p).stem: p for p in (found[0].parent / "golden").glob("input_*.pb")}
    before, after = (runtime.InferenceSession(path, options) for path in (found[0], made))
    if feeds:
        given = {value.name: numpy_helper.to_array(TensorProto.FromString(feeds[f"input_{k}"].read_bytes())) for k, value in enumerate(before.get_inputs())}
        for a, b in zip(before.run(None, given), after.run(None, given), strict=True):
            np.testing.assert_array_equal(a, b)


def write(path, tensors, nodes, inputs=(), outputs=("y",), opset=18, ir_version=10):
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info(name, 1, shape) for name, shape in inputs],
                              [onnx.ValueInfoProto(name=name) if isinstance(name, str) else name for name in outputs], initializer=tensors)
    path.write_bytes(helper.make_model(graph, ir_version=ir_version, opset_imports=[helper.make_opsetid("", opset)]).SerializeToString())
    return path


def outside(name, shape, location="w.bin", data_type=1, **keys):
    tensor = TensorProto(name=name, data_type=data_type, dims=shape, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **keys}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def identity(*names):
    return [helper.make_node("Identity", [name], ["y" if k == 0 else f"y{k}"]) for k, name in enumerate(names)]


@pytest.mark.parametrize("to,kind", [("bf16", TensorProto.BFLOAT16), ("f16", TensorProto.FLOAT16)])
@pytest.mark.parametrize("place", ["inside", "outside"])
@pytest.mark.parametrize("layout", ["keep", "single"])
def test_weights_stored_in_fewer_bytes(tool, tmp_path, to, kind, place, layout):
    """Each is rounded once; what the model computes is what it computes of the rounded ones, bit for bit."""
    runtime = pytest.importorskip("onnxruntime")
    dice = np.random.default_rng(3)
    a, b, x = (dice.standard_normal(shape).astype(np.float32) for shape in ((64, 48), (48,), (5, 64)))
    (tmp_path / "in").mkdir()
    if place == "outside":
        (tmp_path / "in" / "w.bin").write_bytes(b.tobytes() + a.tobytes())
        tensors = [outside("h.a", [64, 48], offset=b.nbytes, length=a.nbytes), outside("h.b", [48], length=b.nbytes)]
    else:
        tensors = [numpy_helper.from_array(a, "h.a"), numpy_helper.from_array(b, "h.b")]
    nodes = [helper.make_node("MatMul", ["x", "h.a"], ["m"]), helper.make_node("Add", ["m", "h.b"], ["y"])]
    path = write(tmp_path / "in" / "m.onnx", tensors, nodes, [("x", [5, 64])], [helper.make_tensor_value_info("y", 1, [5, 48])])
    said = tool.json("export", path, "--to", "onnx", "--store", rf"h\.a={to}", "--data-layout", layout, "--out", tmp_path / "out")
    assert [(row["name"], row["bytes_after"]) for row in said["stored"]] == [("h.a", a.nbytes // 2)]
    made = onnx.load(tmp_path / "out" / "m.onnx")
    onnx.checker.check_model(tmp_path / "out" / "m.onnx", full_check=True)
    stored = {tensor.name: tensor for tensor in made.graph.initializer}
    assert set(stored) == {f"h.a.{to}", "h.b"} and stored[f"h.a.{to}"].data_type == kind
    np.testing.assert_array_equal(numpy_helper.to_array(stored["h.b"]), b)
    rounded = numpy_helper.to_array(stored[f"h.a.{to}"])
    np.testing.assert_array_equal(rounded, a.astype(rounded.dtype))
    judge = write(tmp_path / "judge.onnx", [numpy_helper.from_array(rounded.astype(np.float32), "h.a"), numpy_helper.from_array(b, "h.b")], nodes,
                  [("x", [5, 64])], [helper.make_tensor_value_info("y", 1, [5, 48])])
    got, wanted = (runtime.InferenceSession(p).run(None, {"x": x})[0] for p in (tmp_path / "out" / "m.onnx", judge))
    np.testing.assert_array_equal(got, wanted)


def test_one_weight_of_a_large_sparse_file(tmp_path):
    """2 GiB of holes with some bytes between them: memory is a tile's, and what was a hole stays one."""
    size, piece = 2 << 30, 1 << 20
    folder = tmp_path / "in"
    folder.mkdir()
    with open(folder / "w.bin", "wb") as file:
        file.truncate(size)
        for at in (0, 512 << 20, size - piece):
            file.seek(at)
            file.write(np.full(piece // 4, 1.0 + at / size, np.float32).tobytes())
    many = [outside(f"w{k}", [64 << 20], offset=k << 28, length=1 << 28) for k in range(8)]
    path = write(folder / "m.onnx", many, identity(*(t.name for t in many)), outputs=["y"])
    said = subprocess.run([sys.executable, "-S", "-c", MEASURE, BINARY, "export", str(path), "--to", "onnx", "--store", "w2=bf16", "--out", str(tmp_path / "out")],
                          capture_output=True, text=True, check=True).stdout.split()
    data = tmp_path / "out" / "w.bin"
    assert said[0] == "0" and int(said[1]) < 200 << 20, said
    # The old place of w2 holds the new bytes, half as many; everything else, and what is zero of w2, has the blocks it had.
    assert data.stat().st_size == size and data.stat().st_blocks * 512 < 3 * piece + (8 << 20)
    with open(data, "rb") as got, open(folder / "w.bin", "rb") as source:
        for at in (0, size - piece, 3 << 28):
            got.seek(at), source.seek(at)
            assert got.read(piece) == source.read(piece)
        got.seek(2 << 28)
        assert np.frombuffer(got.read(piece // 2), np.uint16).tolist() == [0x3fa0] * (piece // 4)  # 1.25


def test_weights_that_share_bytes(tool, tmp_path):
    """Two weights in one place stay together; of three, one stored otherwise leaves the others' bytes alone."""
    (tmp_path / "w.bin").write_bytes(np.arange(2048, dtype=np.float32).tobytes())
    both = [outside("a", [1024], offset=0, length=4096), outside("b", [1024], offset=0, length=4096), outside("c", [1024], offset=4096)]
    path = write(tmp_path / "m.onnx", both, identity("a", "b", "c"))
    for layout in ("keep", "single"):
        tool.json("export", path, "--to", "onnx", "--store", "a=bf16", "--data-layout", layout, "--out", tmp_path / layout)
        made = onnx.load(tmp_path / layout / "m.onnx")
        arrays = {t.name: numpy_helper.to_array(t).astype(np.float32) for t in made.graph.initializer}
        np.testing.assert_array_equal(arrays["b"], np.arange(1024)), np.testing.assert_array_equal(arrays["c"], np.arange(1024, 2048))
        assert arrays["a.bf16"][1000] == 1000 and arrays["a.bf16"][257] == 256
    tool.json("export", path, "--to", "onnx", "--data-layout", "single", "--out", tmp_path / "tied")
    assert (tmp_path / "tied" / "m.onnx.data").stat().st_size == 8192
    assert tool("export", path, "--to", "onnx", "--out", tmp_path / "tied").codes == ["TF1608"]


def test_what_cannot_be_written_says_why(tool, tmp_path):
    (tmp_path / "a").mkdir()
    content = np.full(1024, 3e38, np.float32).tobytes()
    (tmp_path / "a" / "w.bin").write_bytes(content)
    (tmp_path / "w.bin").write_bytes(content)

    def refused(code, exit_status, tensors, *words, says="", opset=18, inputs=(), ir_version=10):
        path = write(tmp_path / "m.onnx", tensors, identity(tensors[0].name), inputs, opset=opset, ir_version=ir_version)
        done = tool("export", path, "--to", "onnx", *words, "--out", tmp_path / "out")
        assert done.codes == [f"TF{code}"] and done.code == exit_status and says in done.err, done
        assert not (tmp_path / "out").exists() and not (tmp_path / "out.partial").exists()
    refused(2020, 3, [outside("w", [1024], "a/../w.bin")], says="--data-layout single")
    refused(2020, 3, [outside("w", [1024], "./w.bin"), outside("v", [1024], "w.bin")], says="cannot be kept")
    refused(2020, 3, [outside("w", [1024])], "--store", "w=bf16", opset=12, says="operator set 13")
    refused(2020, 3, [outside("w", [1024])], "--store", "w=bf16", inputs=[("w", [1024])], says="default")
    refused(1613, 3, [outside("w", [1024])], "--store", "w=f16", says="store it as bf16")
    refused(1003, 2, [outside("w", [1024])], "--store", "v=bf16", says="matches no")
    refused(1003, 2, [outside("w", [1024])], "--store", "w=int3", says="PATTERN=TYPE")
    refused(1102, 2, [outside("w", [1024])], "--store", "w(=bf16", says="regular expression")
    refused(1003, 2, [outside("w", [1024])], "--batch", "3", says="--batch")
    refused(2021, 4, [outside("w", [1024], checksum="0" * 40)], "--integrity", says="SHA-1")
    refused(2004, 4, [outside("w", [1024], checksum="0" * 40), outside("v", [1024], checksum="1" * 40)], "--integrity", says="another checksum")
    assert tool("export", tmp_path, "--to", "onnx", "--store", "w=bf16", "--out", tmp_path / "out").codes == ["TF1003"]


def test_data_files_keep_their_folders(tool, tmp_path):
    content = {"./w.bin": 1.0, "a/b/w.bin": 2.0}
    for location, value in content.items():
        (tmp_path / "in" / location).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / location).write_bytes(np.full(1024, value, np.float32).tobytes())
    path = write(tmp_path / "in" / "m.onnx", [outside(f"w{k}", [1024], location) for k, location in enumerate(content)], identity("w0", "w1"))
    said = tool.json("export", path, "--to", "onnx", "--out", tmp_path / "out")
    assert said["notes"] == [] and [row["name"] for row in said["files"]] == ["m.onnx", "w.bin", "a/b/w.bin"]
    assert (tmp_path / "out" / "m.onnx").read_bytes() == path.read_bytes()
    assert [float(numpy_helper.to_array(t)[7]) for t in onnx.load(tmp_path / "out" / "m.onnx").graph.initializer] == [1.0, 2.0]


def test_checksums(tool, tmp_path):
    """Kept where the file is; left out, with a note, where it is not the same file any more."""
    content = np.arange(1024, dtype=np.float32).tobytes()
    (tmp_path / "w.bin").write_bytes(content)
    sha = hashlib.sha1(content).hexdigest()
    path = write(tmp_path / "m.onnx", [outside("w", [1024], checksum=sha.upper())], identity("w"))
    for words, keeps in (([], True), (["--data-layout", "single"], False), (["--store", "w=bf16"], False)):
        out = tmp_path / f"out{len(words)}{'single' in words}"
        said = tool.json("export", path, "--to", "onnx", "--integrity", *words, "--out", out)
        made = onnx.load(out / "m.onnx", load_external_data=False).graph.initializer[0]
        assert said["checksums"] == 1 and (said["notes"] == []) == keeps
        assert any(entry.key == "checksum" for entry in made.external_data) == keeps
    assert (tmp_path / "out0False" / "w.bin").read_bytes() == content


def test_a_model_above_the_limit_of_a_message(tool, tmp_path):
    """Its weights go into a file beside it; kept as it is, no other reader could open it."""
    size = 2200 << 20
    sys.path.insert(0, str(Path(__file__).parent))
    from test_hostile import field, varint
    head = TensorProto(name="w", data_type=1, dims=[size // 4]).SerializeToString() + b"\x4a" + varint(size)
    graph = helper.make_graph(identity("w"), "g", [], [onnx.ValueInfoProto(name="y")]).SerializeToString() + b"\x2a" + varint(len(head) + size) + head
    path = tmp_path / "m.onnx"
    with open(path, "wb") as file:
        file.write(b"\x08\x09" + field(8, b"\x10\x12") + b"\x3a" + varint(len(graph) + size) + graph)
        file.truncate(file.tell() + size)
    done = tool("export", path, "--to", "onnx", "--out", tmp_path / "out")
    assert done.codes == ["TF2020"] and "--data-layout single" in done.err and not (tmp_path / "out").exists(), done
    tool.json("export", path, "--to", "onnx", "--data-layout", "single", "--out", tmp_path / "out")
    data = tmp_path / "out" / "m.onnx.data"
    assert data.stat().st_size == size and data.stat().st_blocks * 512 < 1 << 20
    made = onnx.load(tmp_path / "out" / "m.onnx", load_external_data=False)
    assert {e.key: e.value for e in made.graph.initializer[0].external_data} == {"location": "m.onnx.data", "offset": "0", "length": str(size)}
