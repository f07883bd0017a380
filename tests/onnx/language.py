"""ONNX files of small language models: as PyTorch exports them, as onnxruntime fuses them, and written by hand."""
import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from tool import SHARED  # noqa: E402

# What each exporter is asked for: the TorchScript one writes everything in small operators, that of dynamo norms, turns and
# attention of the standard from opset 23 on.
EXPORTS = [("llama", "legacy17"), ("llama_eager", "legacy17"), ("qwen3", "legacy17"), ("gpt2", "legacy17"), ("gemma2", "legacy17"),
           ("bert", "legacy17"), ("mistral__window", "legacy17"), ("phi3", "legacy17"), ("mixtral_batched", "legacy17"), ("qwen3_moe_batched", "legacy17"),
           ("llama", "dynamo18"), ("gpt2", "dynamo18"), ("qwen3", "dynamo23"), ("gemma2", "dynamo23"),
           ("mixtral_batched", "dynamo18"), ("gpt_oss_batched", "legacy17"), ("gpt_oss_batched", "dynamo23")]


def exporter():
    spec = importlib.util.spec_from_file_location("export_onnx", SHARED / "oracles" / "export_onnx.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def export(oracles, out, pairs=EXPORTS):
    """The files, by (model, exporter)."""
    module = exporter()
    models = {**module.MODELS, **{name: module.language(name, "sdpa") for name in ("mistral__window", "phi3")}}
    files = {}
    for name in dict.fromkeys(name for name, _ in pairs):
        model, inputs = models[name](oracles)
        for tag in (tag for other, tag in pairs if other == name):
            files[name, tag] = module.export(name, tag, model, inputs, out)
    return files


class Weights:
    """Nodes and initializers, as they are added."""

    def __init__(self, seed):
        self.rng, self.nodes, self.initializers, self.count = np.random.default_rng(seed), [], [], 0

    def weight(self, *shape, scale=None):
        scale = scale if scale is not None else shape[0] ** -0.5 if len(shape) > 1 else 0.3
        array = (self.rng.standard_normal(shape) * scale).astype(np.float32)
        return self.constant(array + 1 if len(shape) == 1 else array)

    def constant(self, array):
        self.count += 1
        self.initializers.append(numpy_helper.from_array(np.asarray(array), f"w{self.count}"))
        return f"w{self.count}"

    def __call__(self, op, *inputs, outputs=1, domain="", **attributes):
        self.count += 1
        names = [f"v{self.count}_{i}" for i in range(outputs)] if isinstance(outputs, int) else outputs
        self.nodes.append(helper.make_node(op, inputs, names, domain=domain, **attributes))
        return names[0] if len(names) == 1 else names

    def model(self, inputs, outputs, opset=18):
        graph = helper.make_graph(self.nodes, "g", inputs, outputs, self.initializers)
        imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=imports, ir_version=10)


D, H, KV, W, F, V = 48, 4, 2, 16, 56, 97


def ids_and(*more):
    token = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "seq"])
    return [token, *more], [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "seq", V])]


def rotary(theta=10000.0, positions=64):
    angles = np.arange(positions)[:, None] * theta ** (-np.arange(W // 2) / (W // 2))
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def fused_decoder(packed=False, window=-1, interleaved=0):
    """As onnxruntime's generator writes one: caches, SkipSimplifiedLayerNormalization, GroupQueryAttention that turns."""
    g = Weights(3)
    ms = {"domain": "com.microsoft"}
    mask = helper.make_tensor_value_info("attention_mask", TensorProto.INT64, ["batch", "total"])
    inputs, outputs = ids_and(mask)
    lengths = g("Cast", g("Sub", g("ReduceSum", "attention_mask", g.constant(np.int64([1])), keepdims=0), g.constant(np.int64(1))), to=6)
    total = g("Cast", g("Gather", g("Shape", "attention_mask"), g.constant(np.int64(1)), axis=0), to=6)
    cos, sin = map(g.constant, rotary())
    x = g("Gather", g.weight(V, D, scale=1), "input_ids", axis=0)
    norm = g("SimplifiedLayerNormalization", x, g.weight(D), axis=-1, epsilon=1e-5, stash_type=1)
    for layer in range(2):
        past = [f"past_key_values.{layer}.{kind}" for kind in ("key", "value")]
        present = [f"present.{layer}.{kind}" for kind in ("key", "value")]
        for name, length, to in [(n, "past", inputs) for n in past] + [(n, "total", outputs) for n in present]:
            to.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", KV, length, W]))
        qkv = [g("MatMul", norm, g.weight(D, n * W)) for n in ((H + 2 * KV,) if packed else (H, KV, KV))] + (["", ""] if packed else [])
        y = g("GroupQueryAttention", *qkv, *past, lengths, total, cos, sin, outputs=[f"mix{layer}", *present], num_heads=H,
              kv_num_heads=KV, do_rotary=1, local_window_size=window, rotary_interleaved=interleaved, **ms)[0]
        y = g("MatMul", y, g.weight(H * W, D))
        norm, _, _, x = g("SkipSimplifiedLayerNormalization", x, y, g.weight(D), outputs=[f"n{layer}", "", "", f"s{layer}"], epsilon=1e-5, **ms)
        gate, up = g("MatMul", norm, g.weight(D, F)), g("MatMul", norm, g.weight(D, F))
        y = g("MatMul", g("Mul", g("QuickGelu", gate, alpha=1.0, **ms), up), g.weight(F, D))
        norm, _, _, x = g("SkipSimplifiedLayerNormalization", x, y, g.weight(D), outputs=[f"m{layer}", "", "", f"t{layer}"], epsilon=1e-5, **ms)
    g("MatMul", norm, g.weight(D, V), outputs=["logits"])
    return g.model(inputs, outputs)


def fused_encoder():
    """As onnxruntime's optimiser writes BERT."""
    g = Weights(5)
    ms = {"domain": "com.microsoft"}
    types = helper.make_tensor_value_info("token_type_ids", TensorProto.INT32, ["batch", "seq"])
    mask = helper.make_tensor_value_info("attention_mask", TensorProto.INT32, ["batch", "seq"])
    inputs, outputs = ids_and(types, mask)
    inputs[0].type.tensor_type.elem_type = TensorProto.INT32
    x, lengths = g("EmbedLayerNormalization", "input_ids", "token_type_ids", g.weight(V, D, scale=1), g.weight(64, D, scale=1),
                   g.weight(2, D, scale=1), g.weight(D), g.weight(D), "attention_mask", outputs=2, epsilon=1e-6, **ms)
    for _ in range(2):
        y = g("Attention", x, g.weight(D, 3 * H * 12), g.weight(3 * H * 12), lengths, num_heads=H, **ms)
        y = g("MatMul", y, g.weight(H * 12, D))
        x = g("SkipLayerNormalization", y, x, g.weight(D), g.weight(D), g.weight(D), epsilon=1e-6, **ms)
        y = g("MatMul", g("BiasGelu", g("MatMul", x, g.weight(D, F)), g.weight(F), **ms), g.weight(F, D))
        x = g("SkipLayerNormalization", y, x, g.weight(D), g.weight(D), g.weight(D), epsilon=1e-6, **ms)
    g("Gemm", g("Reshape", x, g.constant(np.int64([-1, D]))), g.weight(V, D), g.weight(V), outputs=["flat"], transB=1)
    shape = g("Concat", g("Shape", "input_ids"), g.constant(np.int64([V])), axis=0)
    g("Reshape", "flat", shape, outputs=["logits"])
    return g.model(inputs, outputs)


def decoder(repeat="expand", mask="added", scale="scores", turn="halves", norm="rms", kernel="matmul", wrong=""):
    """One layer in small operators, each written in one of several ways; `wrong` spoils one of them."""
    g = Weights(7)
    inputs, outputs = ids_and()
    i64 = lambda *values: g.constant(np.int64(values))  # noqa: E731
    f32 = lambda value: g.constant(np.float32(value))  # noqa: E731
    shape = g("Shape", "input_ids")
    seq = g("Gather", shape, g.constant(np.int64(1)), axis=0)
    places = g("Range", g.constant(np.int64(0)), seq, g.constant(np.int64(1)))
    x = g("Gather", g.weight(V, D, scale=1), "input_ids")

    def normed(x):
        if norm == "op":
            return g("LayerNormalization", x, g.weight(D), g.weight(D), epsilon=1e-5)
        if norm == "layer":
            x = g("Sub", x, g("ReduceMean", x, i64(-1)))
        square = g("Mul", x, x) if norm == "rms" else g("Pow", x, f32(2))
        root = g("Sqrt", g("Add", g("ReduceMean", square, i64(-1 if wrong != "norm" else 1)), f32(1e-5)))
        y = g("Div", x, root) if norm != "rms" else g("Mul", g("Div", f32(1), root), x)
        y = g("Mul", y, g.weight(D))
        return g("Add", y, g.weight(D)) if norm == "layer" else y

    def project(x, n, m):
        if kernel == "matmul":
            return g("MatMul", x, g.weight(n, m))
        if kernel == "transposed":
            return g("MatMul", x, g("Transpose", g.weight(m, n, scale=n ** -0.5), perm=[1, 0]))
        flat = g("Gemm", g("Reshape", x, i64(-1, n)), g.weight(m, n, scale=n ** -0.5), g.weight(m), transB=1)
        return g("Reshape", flat, g("Concat", shape, i64(m), axis=0))

    def split(x, heads):
        return g("Transpose", g("Reshape", x, i64(0, 0, heads, W)), perm=[0, 2, 1, 3])

    cos, sin = (g("Gather", g.constant(t), places) for t in rotary())

    def turned(x):
        if turn == "none":
            return x
        if turn == "interleaved":
            pairs = g("Reshape", x, i64(0, 0, 0, W // 2, 2))
            a, b = g("Split", pairs, axis=-1, num_outputs=2, outputs=2)
            a, b = g("Squeeze", a, i64(-1)), g("Squeeze", b, i64(-1))
        else:
            a, b = g("Split", x, axis=-1, num_outputs=2, outputs=2)
        first = g("Sub", g("Mul", a, cos), g("Mul", b, sin))
        second = g("Add" if wrong != "turn" else "Sub", g("Mul", b, cos), g("Mul", sin, a))
        if turn == "halves":
            return g("Concat", first, second, axis=-1)
        both = g("Concat", g("Unsqueeze", first, i64(-1)), g("Unsqueeze", second, i64(-1)), axis=-1)
        return g("Reshape", both, i64(0, 0, 0, W))

    def repeated(x):
        if repeat == "gather":
            return g("Gather", x, g.constant(np.arange(H) // (H // KV)), axis=1)
        if repeat == "tile":
            return g("Tile", x, i64(1, H // KV, 1, 1))
        wide = g("Expand", g("Unsqueeze", x, i64(2)), i64(1, 1, H // KV, 1, 1))
        return g("Reshape", wide, g("Concat", g("Gather", shape, i64(0), axis=0), i64(H), g("Unsqueeze", seq, i64(0)), i64(W), axis=0))

    y = normed(x)
    q, k, v = turned(split(project(y, D, H * W), H)), turned(split(project(y, D, KV * W), KV)), split(project(y, D, KV * W), KV)
    k, v = repeated(k), repeated(v)
    if scale == "q":
        q = g("Mul", q, f32(W ** -0.5))
    if scale == "k":
        k = g("Div", k, f32(W ** 0.5))
    if scale == "fused":
        scores = g("FusedMatMul", q, k, transB=1, alpha=W ** -0.5, domain="com.microsoft")
    else:
        scores = g("MatMul", q, g("Transpose", k, perm=[0, 1, 3, 2]))
    if scale == "scores":
        scores = g("Div", scores, f32(W ** 0.5))
    row, column = g("Unsqueeze", places, i64(1)), g("Unsqueeze", places, i64(0))
    seen = g("GreaterOrEqual", row, column)
    if mask == "window":
        seen = g("And", seen, g("Less", g("Sub", row, column), g.constant(np.int64(30))))
    if wrong == "mask":
        seen = g("Or", seen, g("Equal", column, g.constant(np.int64(3))))
    if mask == "trilu":
        full = g("Expand", f32(-1e9), g("Concat", g("Unsqueeze", seq, i64(0)), g("Unsqueeze", seq, i64(0)), axis=0))
        scores = g("Add", scores, g("Trilu", full, g.constant(np.int64(1)), upper=1))
    elif mask == "added":
        scores = g("Add", scores, g("Where", seen, f32(0), f32(-3.4e38)))
    elif mask != "absent":
        scores = g("Where", seen, scores, f32(-1e30))
    mixed = g("MatMul", g("Softmax", scores, axis=-1), v)
    flat = g("Reshape", g("Transpose", mixed, perm=[0, 2, 1, 3]), i64(0, 0, H * W))
    x = g("Add", project(flat, H * W, D), x)
    y = normed(x)
    x = g("Add", x, project(g("Relu", project(y, D, F)) if wrong != "act" else g("Softplus", project(y, D, F)), F, D))
    g("MatMul", normed(x), g.weight(D, V), outputs=["logits"])
    return g.model(inputs, outputs)


def mixture(activation="swiglu", k=2, normalize=1, bias=True, wide=F, **more):
    """One layer: attention as onnxruntime fuses it, and its MoE. `more` are attributes of that."""
    g, experts = Weights(9), 5
    ms = {"domain": "com.microsoft"}
    inputs, outputs = ids_and()
    x = g("Gather", g.weight(V, D, scale=1), "input_ids", axis=0)
    norm = g("SimplifiedLayerNormalization", x, g.weight(D), axis=-1, epsilon=1e-5)
    y = g("MultiHeadAttention", *(g("MatMul", norm, g.weight(D, H * W)) for _ in range(3)), num_heads=H, unidirectional=1, **ms)
    x = g("Add", x, g("MatMul", y, g.weight(H * W, D)))
    norm = g("SimplifiedLayerNormalization", x, g.weight(D), axis=-1, epsilon=1e-5)
    logits = g("MatMul", g("Reshape", norm, g.constant(np.int64([-1, D]))), g.weight(D, experts))

    def layer(out, inner):
        bound = g.constant((0.1 * g.rng.standard_normal((experts, out))).astype(np.float32)) if bias else ""
        return [g.weight(experts, out, inner, scale=inner ** -0.5), bound]

    fused = activation == "swiglu"
    layers = layer(2 * wide if fused else wide, D) + layer(D, wide) + ([] if fused else layer(wide, D))
    y = g("MoE", norm, logits, *layers, k=k, activation_type=activation, normalize_routing_weights=normalize, **more, **ms)
    norm = g("SimplifiedLayerNormalization", g("Add", x, y), g.weight(D), axis=-1, epsilon=1e-5)
    g("MatMul", norm, g.weight(D, V), outputs=["logits"])
    return g.model(inputs, outputs)


def damaged(model, rng):
    """The model with up to three changes that no exporter makes: numbers, wires, shapes, operators."""
    broken = onnx.ModelProto()
    broken.CopyFrom(model)
    graph = broken.graph
    for _ in range(rng.randint(1, 3)):
        node, way = rng.choice(graph.node), rng.random()
        if way < 0.35 and node.attribute:
            a = rng.choice(node.attribute)
            if a.type == onnx.AttributeProto.INT:
                a.i = rng.choice([0, -1, 1, 3, 7, 100, 1 << 31, -(1 << 62)])
            elif a.ints:
                a.ints[rng.randrange(len(a.ints))] = rng.choice([0, -1, 1, 5, 9])
            elif a.type == onnx.AttributeProto.FLOAT:
                a.f = rng.choice([0, -1, 1e30, float("nan")])
        elif way < 0.7 and node.input:
            node.input[rng.randrange(len(node.input))] = rng.choice([i for n in graph.node for i in n.input])
        elif way < 0.85:
            tensor = rng.choice(graph.initializer)
            array = numpy_helper.to_array(tensor).copy()
            if array.dtype == np.int64 and array.size:
                array.flat[rng.randrange(array.size)] = rng.choice([0, -1, 2, 97, 1 << 40])
            tensor.CopyFrom(numpy_helper.from_array(array.T if array.ndim == 2 else array, tensor.name))
        else:
            node.op_type = rng.choice(graph.node).op_type
    return broken


def blocks_in(graph_text):
    """How many attentions and norms a graph has, from its printed form."""
    lines = graph_text.splitlines()
    return {kind: sum(f" = {kind}(" in line for line in lines) for kind in ("attention", "rms_norm", "layer_norm", "gated_mlp", "mlp", "moe")}


def save(model, path):
    onnx.save(model, path)
    return path
