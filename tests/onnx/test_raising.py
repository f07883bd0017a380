"""ONNX files as models of the house: raised, they compute what onnxruntime computes; forged, they are proved."""
import random
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

ort = pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")
import language  # noqa: E402
import oracles as judge  # noqa: E402

DOC = Path(__file__).resolve().parents[2] / "docs" / "onnx.md"
START, END = "<!-- tests/onnx/test_raising.py writes from here -->", "<!-- to here, raised -->"
SIZES = [(2, 13), (1, 5)]
# Layers of the tiny models: attentions, norms, feed-forwards that are there to be raised.
THERE = {"gpt2": (2, 5, 2), "bert": (2, 6, 2), "gemma2": (4, 17, 4), "qwen3_moe_batched": (3, 7, 3)}


@pytest.fixture(scope="session")
def exports(tmp_path_factory):
    pytest.importorskip("onnxscript")
    root = tmp_path_factory.mktemp("exports")
    return language.export(judge.made(root / "checkpoints"), root)


def session(path):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def feed_of(runs, ids):
    feed = {}
    for value in runs.get_inputs():
        kind = np.int32 if "int32" in value.type else np.int64
        if "past" in value.name:
            shape = [ids.shape[0] if d == "batch" else 0 if isinstance(d, str) else d for d in value.shape]
            feed[value.name] = np.zeros(shape, np.float32)
        elif "mask" in value.name:
            feed[value.name] = np.ones(ids.shape, kind)
        elif "type" in value.name:
            feed[value.name] = np.zeros(ids.shape, kind)
        elif "position" in value.name:
            feed[value.name] = np.broadcast_to(np.arange(ids.shape[1], dtype=kind), ids.shape)
        else:
            feed[value.name] = ids.astype(kind)
    return feed


def logits_of(tool, model, ids, folder, *words):
    save_file({"input_ids": ids.astype(np.int32)}, folder / "ids.safetensors")
    out = folder / "logits.safetensors"
    out.unlink(missing_ok=True)
    done = tool("eval", model, "--inputs", folder / "ids.safetensors", "--out", out, *words)
    assert done.code == 0, done
    return load_file(out)["logits"]


def agrees(tool, path, folder, model=None):
    """Raised logits are onnxruntime's; sizes that onnxruntime itself refuses are left out, not all of them."""
    runs, judged = session(path), 0
    for size in SIZES:
        ids = np.random.default_rng(size[1]).integers(0, language.V, size)
        try:
            wanted = runs.run(None, feed_of(runs, ids))[0]
        except Exception as error:      # its RotaryEmbedding takes no tables of one row for two sequences
            assert "RotaryEmbedding" in str(error), error
            continue
        got = logits_of(tool, model or path, ids, folder)
        assert np.abs(got - wanted).max() <= 2e-5 * np.abs(wanted).max(), (path.name, size)
        judged += 1
    assert judged > 0


def forged(tool, path, folder, recipe="tpu-exact-native"):
    twin = folder / "twin"
    done = tool("forge", path, "--recipe", recipe, "--shards", "2", "--out", twin)
    assert done.code == 0, done
    proof = tool("prove", path, twin)
    assert proof.code == 0 and "PROVEN" in proof.out, proof
    return twin


def raised(tool, path, folder):
    """Attentions, norms and feed-forwards that were raised, or the refusal."""
    done = tool("forge", path, "--recipe", "tpu-exact-native", "--out", folder / "counted")
    if done.code != 0:
        return done
    found = language.blocks_in("\n".join(_graph(folder / "counted")))
    return found["attention"], found["rms_norm"] + found["layer_norm"], found["gated_mlp"] + found["mlp"] + found["moe"]


def _graph(twin):
    return [line for line in (twin / "twin.manifest.textproto").read_text().splitlines() if line.startswith("graph:")]


@pytest.mark.parametrize("pair", language.EXPORTS, ids="-".join)
def test_an_export_is_the_model_that_it_was(tool, exports, tmp_path, pair):
    path = exports[pair]
    found = raised(tool, path, tmp_path)
    assert found == THERE.get(pair[0], (2, 5, 2)), (pair, found)
    agrees(tool, path, tmp_path)


@pytest.mark.parametrize("pair", [("llama", "legacy17"), ("gpt2", "dynamo18"), ("gemma2", "dynamo23"), ("bert", "legacy17")], ids="-".join)
def test_recipes_run_on_it_and_prove(tool, exports, tmp_path, pair):
    twin = forged(tool, exports[pair], tmp_path)
    agrees(tool, exports[pair], tmp_path, twin)
    home = tool("unforge", twin, "--out", tmp_path / "home")
    assert home.code == 3 and home.codes == ["TF1802"] and "ONNX" in home.err and not (tmp_path / "home").exists(), home


def test_experts_of_an_export_are_stacked_and_proved(tool, exports, tmp_path):
    path = exports["mixtral_batched", "dynamo18"]
    twin = forged(tool, path, tmp_path)
    agrees(tool, path, tmp_path, twin)
    text = (twin / "twin.manifest.textproto").read_text()
    assert "top_k: 2" in text and "renormalize: true" in text


GLU = {"activation": "swiglu", "swiglu_fusion": 1}
LIMITED = {**GLU, "swiglu_limit": 0.5, "activation_alpha": 1.702, "activation_beta": 1.0}


@pytest.mark.parametrize("options", [GLU, {**GLU, "k": 1, "normalize": 0, "bias": False}, {**GLU, "k": 3, "normalize": 0}, LIMITED], ids=str)
def test_a_fused_mixture(tool, tmp_path, options):
    path = language.save(language.mixture(**options), tmp_path / "moe.onnx")
    agrees(tool, path, tmp_path)
    twin = forged(tool, path, tmp_path)
    agrees(tool, path, tmp_path, twin)


@pytest.mark.parametrize("options,said", [
    ({"activation": "silu", "wide": language.D}, "which way they lie is not said"),
    ({**GLU, "swiglu_fusion": 2}, "do not alternate"), ({**GLU, "activation_alpha": 1.702}, "no limit"),
    ({**GLU, "use_sparse_mixer": 1}, "sparse mixer"), ({**GLU, "k": 6}, "other sizes"), ({"activation": "identity"}, "another activation")],
    ids=lambda value: value if isinstance(value, str) else "")
def test_a_fused_mixture_without_a_word_for_it(tool, tmp_path, options, said):
    path = language.save(language.mixture(**options), tmp_path / "moe.onnx")
    done = tool("plan", path, "--recipe", "tpu-exact-native")
    assert done.code == 3 and done.codes == ["TF2010"] and said in done.err, done


def test_another_file_is_not_its_source(tool, exports, tmp_path):
    twin = forged(tool, exports["llama", "legacy17"], tmp_path)
    other = tool("prove", exports["llama_eager", "legacy17"], twin)
    assert other.code == 1 and "REFUTED" in other.out, other
    model = onnx.load(exports["llama", "legacy17"])
    weight = next(t for t in model.graph.initializer if list(t.dims) == [48, 80])
    weight.raw_data = weight.raw_data[:-1] + bytes([weight.raw_data[-1] ^ 1])
    changed = language.save(model, tmp_path / "changed.onnx")
    assert tool("prove", changed, twin).code != 0


@pytest.mark.parametrize("options", [{}, {"packed": True}, {"window": 4}, {"interleaved": 1}, {"window": 500}], ids=str)
def test_fused_decoder_with_caches(tool, tmp_path, options):
    path = language.save(language.fused_decoder(**options), tmp_path / "decoder.onnx")
    agrees(tool, path, tmp_path)
    twin = forged(tool, path, tmp_path)
    agrees(tool, path, tmp_path, twin)
    if options.get("window", -1) > 0:
        assert f"window: {options['window']}" in (twin / "twin.manifest.textproto").read_text()


def rewritten(tool, path, folder, recipe="tpu-exact-native"):
    """The ONNX twin of an ONNX file, proved, as onnxruntime opens it."""
    twin = folder / "twin"
    done = tool("forge", path, "--recipe", recipe, "--to", "onnx", "--out", twin)
    assert done.code == 0, done
    proof = tool("prove", path, twin)
    assert proof.code == 0 and "PROVEN" in proof.out, proof
    onnx.checker.check_model(str(twin / "model.onnx"), full_check=True)
    return session(twin / "model.onnx")


def steps_of(runs, ids):
    """Logits of all tokens, the last of them one by one with what the runtime remembers."""
    prompt = ids.shape[1] - 3
    names = [value.name for value in runs.get_outputs()]
    results = dict(zip(names, runs.run(None, feed_of(runs, ids[:, :prompt])), strict=True))
    logits = [results["logits"]]
    for at in range(prompt, ids.shape[1]):
        feed = feed_of(runs, ids[:, at:at + 1])
        feed["attention_mask"] = np.ones((ids.shape[0], at + 1), np.int64)
        feed["position_ids"] = np.full((ids.shape[0], 1), at, np.int64)
        for name in names[1:]:
            feed[name.replace("present", "past_key_values")] = results[name]
        results = dict(zip(names, runs.run(None, feed), strict=True))
        logits.append(results["logits"])
    return np.concatenate(logits, axis=1)


@pytest.mark.parametrize("recipe", ["tpu-exact-native", "tpu-exact-portable"])
@pytest.mark.parametrize("make", [language.fused_decoder, language.decoder], ids=["fused", "primitives"])
def test_onnx_becomes_onnx(tool, tmp_path, make, recipe):
    """Source and twin in the same runtime: a prompt, then token by token with the twin's cache."""
    path = language.save(make(), tmp_path / "decoder.onnx")
    source, twin = session(path), rewritten(tool, path, tmp_path, recipe)
    for size in SIZES:
        ids = np.random.default_rng(size[1]).integers(0, language.V, size)
        wanted = source.run(None, feed_of(source, ids))[0]
        for got in (twin.run(None, feed_of(twin, ids))[0], steps_of(twin, ids)):
            assert np.abs(got - wanted).max() <= 2e-5 * np.abs(wanted).max(), size


def test_exports_become_onnx(tool, exports, tmp_path):
    for pair in [("gemma2", "legacy17"), ("qwen3", "legacy17"), ("bert", "legacy17")]:
        folder = tmp_path / pair[0]
        folder.mkdir()
        source, twin = session(exports[pair]), rewritten(tool, exports[pair], folder)
        ids = np.random.default_rng(3).integers(0, language.V, (2, 13))
        wanted = source.run(None, feed_of(source, ids))[0]
        got = twin.run(None, feed_of(twin, ids))[0]
        assert np.abs(got - wanted).max() <= 2e-5 * np.abs(wanted).max(), pair


def test_fused_encoder(tool, tmp_path):
    path = language.save(language.fused_encoder(), tmp_path / "encoder.onnx")
    agrees(tool, path, tmp_path)
    forged(tool, path, tmp_path)


WAYS = [dict(zip(("repeat", "mask", "scale", "turn", "norm", "kernel"), way, strict=True))
        for way in [("expand", "added", "scores", "halves", "rms", "matmul"), ("tile", "trilu", "q", "interleaved", "layer", "gemm"),
                    ("gather", "selected", "k", "none", "op", "transposed"), ("tile", "window", "q", "halves", "op", "gemm"),
                    ("gather", "absent", "scores", "interleaved", "rms", "matmul"), ("expand", "selected", "fused", "halves", "rms", "transposed")]]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(way.values()))
def test_each_way_of_writing_it(tool, tmp_path, way):
    path = language.save(language.decoder(**way), tmp_path / "way.onnx")
    agrees(tool, path, tmp_path)
    twin = forged(tool, path, tmp_path)
    text = (twin / "twin.manifest.textproto").read_text()
    assert ("causal: true" in text) == (way["mask"] != "absent")
    assert ("window: 30" in text) == (way["mask"] == "window")


@pytest.mark.parametrize("wrong,code,said", [
    ("mask", "TF2010", "the mask lets place 0 see 3"), ("turn", "TF2010", "no rotary turn"), ("act", "TF2010", "Softplus"),
    ("norm", "TF2010", "other axes than the last")])
def test_what_kept_a_block_from_holding(tool, tmp_path, wrong, code, said):
    path = language.save(language.decoder(wrong=wrong), tmp_path / "wrong.onnx")
    done = tool("plan", path, "--recipe", "tpu-exact-native")
    assert done.code == 3 and done.codes == [code] and said in done.err, done
    for verb in (("score", "--recipe", "tpu-exact-native", "--chip", "v6e"), ("forge", "--recipe", "tpu-exact-native", "--out", tmp_path / "t")):
        assert tool(verb[0], path, *verb[1:]).codes == [code]
    assert tool("inspect", path).code == 0 and not (tmp_path / "t").exists()


def test_damaged_graphs_end_in_a_sentence(tool, tmp_path):
    rng = random.Random(11)
    models = [language.fused_decoder(), language.fused_encoder(), language.decoder(),
              language.decoder(repeat="tile", mask="window", turn="interleaved", norm="layer", kernel="gemm")]
    for k in range(80):
        path = language.save(language.damaged(models[k % 4], rng), tmp_path / "damaged.onnx")
        done = tool("plan", path, "--recipe", "tpu-exact-native")
        assert done.code in (0, 3, 4) and (done.code == 0 or len(done.codes) == 1), (k, done)


def test_no_output_is_left_out(tool, tmp_path):
    """Keys for later calls are state; hidden states beside the logits would be lost."""
    model = language.decoder()
    model.graph.output.append(onnx.helper.make_empty_tensor_value_info(next(n for n in model.graph.node if n.op_type == "Relu").output[0]))
    done = tool("plan", language.save(model, tmp_path / "two.onnx"), "--recipe", "tpu-exact-native")
    assert done.code == 3 and done.codes == ["TF2010"] and "neither the first output" in done.err, done


def test_a_graph_that_is_another_model_for_longer_texts(tool, tmp_path):
    """Masks that change beyond nine tokens: no window, no padding."""
    model = language.decoder(mask="added")
    node = next(n for n in model.graph.node if n.op_type == "GreaterOrEqual")
    make = onnx.helper.make_node
    extra = [make("Constant", [], ["nine"], value_int=9), make("Less", [node.input[0], "nine"], ["early"]),
             make("Or", ["plain_seen", "early"], ["wide"]), make("Greater", ["seq_now", "nine"], ["long"]),
             make("Where", ["long", "wide", "plain_seen"], [node.output[0]])]
    seq = next(n for n in model.graph.node if n.op_type == "Gather").output[0]
    node.output[0] = "plain_seen"
    for one in extra:
        one.input[:] = [seq if name == "seq_now" else name for name in one.input]
    at = list(model.graph.node).index(node)
    for k, one in enumerate(extra):
        model.graph.node.insert(at + 1 + k, one)
    extra_path = language.save(model, tmp_path / "long.onnx")
    done = tool("plan", extra_path, "--recipe", "tpu-exact-native")
    assert done.code == 3 and done.codes in (["TF2010"], ["TF2011"]), done


def rows(tool, files, folder):
    """The table of docs/onnx.md: what is raised of each export."""
    table = ["| model | " + " | ".join(tags := ["legacy17", "dynamo18", "dynamo23"]) + " |", "| --- |" + " --- |" * len(tags)]
    for name in dict.fromkeys(name for name, _ in files):
        cells = []
        for tag in tags:
            if (name, tag) not in files:
                cells.append("")
                continue
            (out := folder / f"{name}-{tag}").mkdir()
            found = raised(tool, files[name, tag], out)
            there = THERE.get(name, (2, 5, 2))
            cells.append("refused: " + found.err.split(': node "')[1].split('("')[1].split('")')[0] if hasattr(found, "code")
                         else ", ".join(f"{a}/{b} {what}" for a, b, what in zip(found, there, ("attention", "norm", "mlp"), strict=True)))
        table.append(f"| {name} | " + " | ".join(cells) + " |")
    return table


def test_the_table_is_what_is_raised(tool, exports, tmp_path):
    written = DOC.read_text().split(START)[1].split(END)[0].strip().splitlines()
    assert written == rows(tool, exports, tmp_path)


if __name__ == "__main__":      # with TWINFORGE and TWINFORGE_SHARED set: writes the table
    import tempfile

    from tool import Tool
    with tempfile.TemporaryDirectory() as work:
        root = Path(work)
        table = rows(Tool(), language.export(judge.made(root / "checkpoints"), root), root)
    text = DOC.read_text()
    head, rest = text.split(START)
    DOC.write_text(head + START + "\n" + "\n".join(table) + "\n" + END + rest.split(END)[1])
    print("\n".join(table), file=sys.stderr)
