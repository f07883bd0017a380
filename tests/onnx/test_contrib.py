"""com.microsoft's operators of language models, judged by onnxruntime on the CPU."""
import numpy as np
import pytest
from models import close, evaluate, facts_hold, one_node

ort = pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

RNG = np.random.default_rng(7)


def f(*shape, scale=1.0):
    return (RNG.standard_normal(shape) * scale).astype(np.float32)


def judge(model, inputs):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {name: value for name, value in inputs.items() if value is not None})


def compare(tool, tmp_path, op, inputs, outputs, tolerance=1e-4, look=None, **attributes):
    model = one_node(op, inputs, outputs, **attributes)
    wanted = judge(model, inputs)
    got = evaluate(tool, tmp_path, model, [value for value in inputs.values() if value is not None])
    for name, a, b in zip(filter(None, outputs), got, wanted, strict=True):
        seen = (look or {}).get(name, lambda x: x)
        close(seen(a), seen(b), tolerance)
    facts_hold(tmp_path / "model.onnx", dict(zip(filter(None, outputs), wanted, strict=True)))


def test_simplified_layer_normalization(tool, tmp_path):
    compare(tool, tmp_path, "SimplifiedLayerNormalization", {"x": f(2, 3, 16), "w": f(16)}, ["y"], domain="", epsilon=1e-5, axis=-1)


@pytest.mark.parametrize("bias", [False, True])
def test_skip_simplified_layer_normalization(tool, tmp_path, bias):
    inputs = {"x": f(2, 3, 16), "s": f(2, 3, 16), "w": f(16), "b": f(16) if bias else None}
    compare(tool, tmp_path, "SkipSimplifiedLayerNormalization", inputs, ["y", "", "", "sum"], epsilon=1e-6)


@pytest.mark.parametrize("skip", [(2, 3, 16), (1, 3, 16), (3, 16)])
def test_skip_layer_normalization(tool, tmp_path, skip):
    compare(tool, tmp_path, "SkipLayerNormalization", {"x": f(2, 3, 16), "s": f(*skip), "g": f(16), "b": f(16), "c": f(16)}, ["y"], epsilon=1e-5)


@pytest.mark.parametrize("mask", [False, True])
def test_embed_layer_normalization(tool, tmp_path, mask):
    ids, segments = RNG.integers(0, 9, (2, 4)).astype(np.int32), RNG.integers(0, 2, (2, 4)).astype(np.int32)
    padding = np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32)
    compare(tool, tmp_path, "EmbedLayerNormalization",
            {"ids": ids, "seg": segments, "w": f(9, 8), "p": f(5, 8), "t": f(2, 8), "g": f(8), "b": f(8), "m": padding if mask else None},
            ["y", "i"], epsilon=1e-5)


@pytest.mark.parametrize("op,inputs", [("BiasGelu", 2), ("FastGelu", 1), ("FastGelu", 2), ("Gelu", 1), ("QuickGelu", 1)])
def test_gelu(tool, tmp_path, op, inputs):
    compare(tool, tmp_path, op, dict(list({"x": f(3, 8), "b": f(8)}.items())[:inputs]), ["y"])


def test_fused_matmul(tool, tmp_path):
    compare(tool, tmp_path, "FusedMatMul", {"a": f(2, 4, 3), "b": f(2, 5, 4)}, ["y"], transA=1, transB=1, alpha=0.5)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zero", ["none", "packed"])
@pytest.mark.parametrize("bias", [False, True])
def test_matmul_n_bits(tool, tmp_path, bits, zero, bias):
    k, n, block = 40, 6, 16
    blocks = -(-k // block)
    zeros = RNG.integers(0, 256, (n, -(-blocks * bits // 8)), dtype=np.uint8) if zero == "packed" else None
    compare(tool, tmp_path, "MatMulNBits",
            {"a": f(2, 3, k), "b": RNG.integers(0, 256, (n, blocks, block * bits // 8), dtype=np.uint8), "s": np.abs(f(n, blocks)) * 0.1 + 0.01,
             "z": zeros, "g": None, "c": f(n) if bias else None}, ["y"], tolerance=2e-3, K=k, N=n, bits=bits, block_size=block)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("each", [False, True])
def test_rotary_embedding(tool, tmp_path, interleaved, each):
    positions = RNG.integers(0, 9, (2, 3)) if each else np.array([4])
    compare(tool, tmp_path, "RotaryEmbedding", {"x": f(2, 3, 16), "p": positions.astype(np.int64), "c": f(10, 4), "s": f(10, 4)}, ["y"], interleaved=interleaved)


def caches(width):
    angle = np.outer(np.arange(16), 1.0 / 100 ** (np.arange(width // 2) / (width // 2)))
    return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)


@pytest.mark.parametrize("options", [{}, {"do_rotary": 1}, {"do_rotary": 1, "rotary_interleaved": 1}, {"softcap": 2.0}, {"scale": 0.3},
                                     {"local_window_size": 2}, {"smooth_softmax": 1}])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("stage", ["prompt", "decode"])
def test_group_query_attention(tool, tmp_path, options, packed, stage):
    heads, kv, width, batch = 4, 2, 16, 2
    length, past = (5, 0) if stage == "prompt" else (1, 6)
    total = length + past
    q, k, v = f(batch, length, heads * width), f(batch, length, kv * width), f(batch, length, kv * width)
    cos, sin = caches(width)
    lengths = np.array([total - 1, total - 3], np.int32)  # the second sequence is shorter
    inputs = {"q": np.concatenate([q, k, v], axis=2) if packed else q, "k": None if packed else k, "v": None if packed else v,
              "pk": f(batch, kv, past, width), "pv": f(batch, kv, past, width), "n": lengths, "t": np.array(total, np.int32),
              "c": cos if options.get("do_rotary") else None, "s": sin if options.get("do_rotary") else None}

    def sound(x):  # rows of the shorter prompt that are padding mean nothing
        x = x.copy()
        if stage == "prompt":
            x[1, total - 2:] = 0
        return x

    def cache(x):
        x = x.copy()
        x[1, :, total - 2:] = 0
        return x

    compare(tool, tmp_path, "GroupQueryAttention", inputs, ["y", "nk", "nv"], look={"y": sound, "nk": cache, "nv": cache},
            num_heads=heads, kv_num_heads=kv, **options)


def mask_of(kind, batch, keys, queries):
    return {"none": None, "lengths": np.array([keys, keys - 2], np.int32),
            "keys": np.array([[1] * keys, [1] * (keys - 2) + [0] * 2], np.int32),
            "each": RNG.integers(0, 2, (batch, queries, keys)).astype(np.int32)}[kind]


@pytest.mark.parametrize("mask", ["none", "lengths", "keys"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("causal", [0, 1])
def test_multi_head_attention(tool, tmp_path, mask, bias, causal):
    batch, length, heads, width = 2, 5, 2, 4
    h = heads * width
    compare(tool, tmp_path, "MultiHeadAttention",
            {"q": f(batch, length, h), "k": f(batch, length, h), "v": f(batch, length, h), "b": f(3 * h) if bias else None,
             "m": mask_of(mask, batch, length, length), "a": f(1, heads, length, length) if bias else None},
            ["y"], num_heads=heads, unidirectional=causal)


@pytest.mark.parametrize("causal", [0, 1])
def test_multi_head_attention_with_past(tool, tmp_path, causal):
    compare(tool, tmp_path, "MultiHeadAttention",
            {"q": f(2, 1, 8), "k": f(2, 1, 8), "v": f(2, 1, 8), "b": None, "m": None, "a": None, "pk": f(2, 2, 3, 4), "pv": f(2, 2, 3, 4)},
            ["y", "nk", "nv"], num_heads=2, unidirectional=causal)


@pytest.mark.parametrize("mask", ["none", "lengths", "keys", "each"])
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("past", [0, 3])
def test_merged_attention(tool, tmp_path, mask, causal, past):
    batch, length, heads, width = 2, 4, 2, 4
    h = heads * width
    if past and mask == "lengths":
        pytest.skip("onnxruntime takes no lengths with a past")
    compare(tool, tmp_path, "Attention",
            {"x": f(batch, length, 6), "w": f(6, 3 * h), "b": f(3 * h), "m": mask_of(mask, batch, length + past, length),
             "p": f(2, batch, heads, past, width) if past else None}, ["y", "n"], num_heads=heads, unidirectional=causal)


@pytest.mark.parametrize("k,normalise", [(1, 0), (1, 1), (2, 0), (2, 1), (3, 1)])
@pytest.mark.parametrize("activation", ["relu", "gelu", "silu", "identity"])
def test_mixture(tool, tmp_path, k, normalise, activation):
    e, hidden, inter = 4, 6, 5
    compare(tool, tmp_path, "MoE", {"x": f(3, hidden), "r": f(3, e), "w1": f(e, inter, hidden), "b1": f(e, inter), "w2": f(e, hidden, inter), "b2": f(e, hidden)},
            ["y"], k=k, normalize_routing_weights=normalise, activation_type=activation)


@pytest.mark.parametrize("limit", [None, 1.0])
def test_mixture_with_swiglu(tool, tmp_path, limit):
    e, hidden, inter = 4, 6, 5
    more = {} if limit is None else {"swiglu_limit": limit}
    compare(tool, tmp_path, "MoE", {"x": f(3, hidden), "r": f(3, e), "w1": f(e, 2 * inter, hidden), "b1": f(e, 2 * inter), "w2": f(e, hidden, inter), "b2": f(e, hidden)},
            ["y"], k=2, activation_type="swiglu", swiglu_fusion=1, activation_alpha=1.702, activation_beta=1.0, normalize_routing_weights=1, **more)


@pytest.mark.parametrize("bits", [4, 8])
def test_quantised_mixture(tool, tmp_path, bits):
    e, hidden, inter = 4, 32, 16
    pack = 8 // bits

    def w(*shape):
        return RNG.integers(0, 256, shape, dtype=np.uint8)
    compare(tool, tmp_path, "QMoE",
            {"x": f(3, hidden), "r": f(3, e), "w1": w(e, 2 * inter, hidden // pack), "s1": np.abs(f(e, 2 * inter)) * 0.02, "b1": f(e, 2 * inter),
             "w2": w(e, hidden, inter // pack), "s2": np.abs(f(e, hidden)) * 0.02, "b2": f(e, hidden)},
            ["y"], tolerance=2e-3, k=2, activation_type="swiglu", swiglu_fusion=1, activation_alpha=1.702, activation_beta=1.0,
            normalize_routing_weights=1, expert_weight_bits=bits)
