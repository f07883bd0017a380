// The module around the blocks: layers, the walk through them, prefill and decode, generation.
#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "reference/checked_tokens.h"
#include "reference/einsum.h"
#include "reference/headless.h"
#include "reference/jax_emitter.h"
#include "reference/python.h"
#include "reference/runtime_text.h"

namespace twinforge {
namespace {

std::string PartOf(absl::string_view tree, const Node& node) {
  return absl::StrCat(tree, "[\"", ReferenceProgram::Suffix(node.path), "\"]");
}

// A variable for what a node gives; no function is called so.
std::string VariableOf(const Node& node) {
  const bool norm = node.op == OpKind::kRmsNorm || node.op == OpKind::kLayerNorm;
  return absl::StrCat(absl::StrReplaceAll(ReferenceProgram::Suffix(node.path), {{".", "_"}}),
                      norm ? "" : "_out");
}

bool Remembers(const Node& node) {
  return node.op == OpKind::kAttention || node.op == OpKind::kLatentAttention;
}

}  // namespace

// The call of a node whose own parameters are `p`.
std::string JaxEmitter::CallOf(const Node& node, absl::string_view x, absl::string_view p) {
  const auto with = [&](const std::string& name) { return absl::StrCat(name, "(", x, ", ", p, ")"); };
  switch (node.op) {
    case OpKind::kEmbedding:
      return absl::StrCat(Embedding(node), "(", p, ", tokens, positions)");
    case OpKind::kRmsNorm: {
      const NormAttrs& attrs = node.attrs->norm();
      return RmsNorm(node, {"scale", "norm_eps", attrs.eps(), attrs.offset(), attrs.norm_dim()}, x,
                     Slot(node, "scale", p));
    }
    case OpKind::kLayerNorm:
      return LayerNorm(node, x, p);
    case OpKind::kLinear:
      return with(functions_.Define(
          "linear", absl::StrCat("def $(x, p):\n    return ", Project(node, "x", "kernel", "bias"), "\n")));
    case OpKind::kActivation:
      return absl::StrCat(Activate(node.attrs->activation().act()), "(", x, ")");
    case OpKind::kMlp:
      return with(Mlp(node));
    case OpKind::kGatedMlp:
      return with(GatedMlp(node));
    case OpKind::kMoe:
      return with(Moe(node));
    case OpKind::kLmHead:
      return with(LmHead(node));
    default: {  // attention: MakeReferenceProgram lets nothing else through
      const bool latent = node.op == OpKind::kLatentAttention;
      std::string call = absl::StrCat(latent ? LatentAttention(node) : Attention(node), "(", x, ", ", p, ", ",
                                      program_.decodes ? "cache, i, at" : "at");
      const AttentionAttrs& attrs = node.attrs->attention();
      if (attrs.window() != 0)
        absl::StrAppend(
            &call, ", window=", config_.Int("window", attrs.window(), "keys that a windowed layer sees"));
      if (attrs.chunk() != 0) absl::StrAppend(&call, ", chunk=", config_.Int("chunk", attrs.chunk()));
      return call + ")";
    }
  }
}

// What enters is called x, or tokens.
JaxEmitter::Statements JaxEmitter::Body(const std::vector<NodeId>& nodes, NodeId enters,
                                        absl::string_view tree) {
  std::map<NodeId, std::string> names = {{enters, "x"}};
  NodeId x = enters;
  Statements done{"", "x"};
  for (size_t at = 0; at < nodes.size(); ++at) {
    const Node& node = graph().node(nodes[at]);
    const bool last = at + 1 == nodes.size();
    const bool reads_x = std::find(node.operands.begin(), node.operands.end(), x) != node.operands.end();
    const bool is_x = last || (reads_x && !program_.IsReadAfter(nodes, at, x));
    std::string name = is_x ? "x" : VariableOf(node);
    std::string value;
    if (node.op == OpKind::kAdd) {
      value = absl::StrCat(names[node.operands[0]], " + ", names[node.operands[1]]);
    } else {
      value = CallOf(node, names[node.operands[0]], TreeOf(node, PartOf(tree, node)));
    }
    const bool remembers = Remembers(node) && program_.decodes;
    if (last && !remembers) {
      done.value = std::move(value);
      break;
    }
    absl::StrAppend(&done.text, "    ", name, remembers ? ", cache" : "", " = ", value, "\n");
    if (is_x) x = node.id;
    names[node.id] = std::move(name);
  }
  return done;
}

// One function for each kind of layer.
void JaxEmitter::Layers() {
  for (const LayerKind& kind : program_.kinds) {
    const int number = kind.layers[0];
    NodeId enters = program_.before.empty() ? graph().inputs()[0] : program_.before.back();
    if (number > 0) enters = program_.layers[number - 1].back();
    const Statements body = Body(program_.layers[number], enters, "p");
    const size_t count = kind.layers.size();
    const std::string numbers = count == 1 ? absl::StrCat("Layer ", number)
                                : count == program_.layers.size()
                                    ? absl::StrCat("Each of the ", count, " layers")
                                    : absl::StrCat(count, " of the ", program_.layers.size(),
                                                   " layers, the first of them layer ", number);
    layer_names_.push_back(functions_.Define(
        kind.name, absl::StrCat("def $(x, p, ", program_.decodes ? "cache, i, at" : "at", "):\n    \"\"\"",
                                numbers, ".\"\"\"\n", body.text, "    return ", body.value,
                                program_.decodes ? ", cache" : "", "\n")));
  }
}

// Statements that walk through one cycle of layers; `part` is its place in params["layers"].
std::string JaxEmitter::Walk(const LayerCycle& cycle, size_t part) {
  const bool decodes = program_.decodes;
  const std::string tree = absl::StrCat("params[\"layers\"][", part, "]");
  if (cycle.repeats == 1) {
    return absl::StrCat("    x", decodes ? ", cache" : "", " = ", layer_names_[cycle.kinds[0]], "(x, ", tree,
                        decodes ? absl::StrCat(", cache, ", cycle.first, ", at") : ", at", ")\n");
  }
  if (HasKernel(cycle)) return WalkByRow(cycle, part);
  const size_t period = cycle.kinds.size();
  std::string text = absl::StrCat("\n    def step_", part, "(carry, inputs):\n");
  absl::StrAppend(&text, decodes ? "        x, cache = carry\n        p, i = inputs\n"
                                 : "        x, p = carry, inputs\n");
  for (size_t i = 0; i < period; ++i) {
    const std::string own = period == 1 ? "p" : absl::StrCat("p[", i, "]");
    const std::string number = i == 0 ? "i" : absl::StrCat("i + ", i);
    absl::StrAppend(&text, "        x", decodes ? ", cache" : "", " = ", layer_names_[cycle.kinds[i]], "(x, ",
                    own, decodes ? absl::StrCat(", cache, ", number, ", at") : ", at", ")\n");
  }
  const int end = cycle.first + cycle.repeats * static_cast<int>(period);
  if (!decodes) {
    return absl::StrCat(text, "        return x, None\n\n    x, _ = jax.lax.scan(step_", part, ", x, ", tree,
                        ")\n");
  }
  const std::string numbers =
      absl::StrCat("jnp.arange(", cycle.first, ", ", end, period == 1 ? "" : absl::StrCat(", ", period), ")");
  return absl::StrCat(text, "        return (x, cache), None\n\n    (x, cache), _ = jax.lax.scan(step_", part,
                      ", (x, cache), (", tree, ", ", numbers, "))\n");
}

bool JaxEmitter::HasKernel(const LayerCycle& cycle) const {
  return std::any_of(cycle.kinds.begin(), cycle.kinds.end(), [&](int kind) {
    const std::vector<NodeId>& nodes = program_.layers[program_.kinds[kind].layers[0]];
    return std::any_of(nodes.begin(), nodes.end(), [&](NodeId id) { return ReadsStack(graph().node(id)); });
  });
}

// The same where a kernel reads weights in the stack of layers: steps are given a number.
std::string JaxEmitter::WalkByRow(const LayerCycle& cycle, size_t part) {
  const size_t period = cycle.kinds.size();
  std::string text = absl::StrCat("\n    def step_", part, "(carry, row):\n        x, cache = carry\n");
  for (size_t i = 0; i < period; ++i) {
    const size_t first = cycle.first + i;
    std::string number = period == 1 ? "row" : absl::StrCat(period, " * row");
    if (first > 0) absl::StrAppend(&number, " + ", first);
    absl::StrAppend(&text, "        x, cache = ", layer_names_[cycle.kinds[i]], "(x, ",
                    LayerOf(program_.layers[program_.kinds[cycle.kinds[i]].layers[0]]),
                    "(params[\"layers\"][", part, "]", period == 1 ? "" : absl::StrCat("[", i, "]"),
                    ", row), cache, ", number, ", at)\n");
  }
  return absl::StrCat(text, "        return (x, cache), None\n\n    (x, cache), _ = jax.lax.scan(step_", part,
                      ", (x, cache), jnp.arange(", cycle.repeats, "))\n");
}

void JaxEmitter::Trunk() {
  const Statements before = Body(program_.before, graph().inputs()[0], "params");
  std::string fields = "    positions: jax.Array  # of the tokens in their sequences, [batch, seq]\n";
  if (!program_.decodes) fields += "    lengths: jax.Array  # of the sequences, [batch]\n";
  std::string made = program_.decodes ? "positions" : "positions, lengths";
  for (size_t i = 0; i < rope_functions_.size(); ++i) {
    absl::StrAppend(&fields, "    angles", i == 0 ? "" : absl::StrCat("_", i + 1),
                    ": tuple[jax.Array, jax.Array]  # of the rotary embedding\n");
    absl::StrAppend(&made, ", ", rope_functions_[i], "(positions, jnp.promote_types(x.dtype, jnp.float32))");
  }
  const std::string step = functions_.Define(
      "Step",
      absl::StrCat("class $(NamedTuple):\n    \"\"\"What all layers share in one call.\"\"\"\n\n", fields));
  std::string text = absl::StrCat(
      "def $(params, ", program_.decodes ? "cache, tokens, positions" : "tokens, lengths", "):\n    \"\"\"",
      program_.decodes
          ? "Hidden states [batch, seq, d_model] of tokens at their positions, and the cache with them."
          : "Hidden states [batch, seq, d_model] of sequences that are padded behind.",
      "\"\"\"\n");
  if (!program_.decodes)
    text += "    positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)\n";
  absl::StrAppend(&text, before.text, "    x = ", before.value, "\n    at = ", step, "(", made, ")\n");
  for (size_t i = 0; i < program_.cycles.size(); ++i) text += Walk(program_.cycles[i], i);
  functions_.Define("trunk", text + (program_.decodes ? "    return x, cache\n" : "    return x\n"));
}

void JaxEmitter::Head() {
  const Statements body = Body(program_.after, program_.layers.back().back(), "params");
  functions_.Define("head",
                    absl::StrCat("def $(params, x):\n    \"\"\"From hidden states to what the model says of "
                                 "each token.\"\"\"\n",
                                 body.text, "    return ", body.value, "\n"));
}

// The table's place in the tree: its dtype is that of all activations.
std::string JaxEmitter::Table() const {
  for (const NodeId id : program_.before) {
    const Node& node = graph().node(id);
    if (node.op == OpKind::kEmbedding) return Slot(node, "table", PartOf("params", node));
  }
  return "jax.tree.leaves(params)[0]";
}

std::string JaxEmitter::Cache() {
  for (const NodeId id : program_.layers[0]) {
    const Node& node = graph().node(id);
    if (!Remembers(node)) continue;
    const std::string layers = config_.Int("layers", static_cast<int64_t>(program_.layers.size()));
    const auto size = [&](absl::string_view slot, absl::string_view axis) {
      return config_.Int(axis, TypeOf(node, slot).Get(axis).size);
    };
    if (node.op == OpKind::kAttention) {
      return InOrder({"    shape = (", layers, ", batch, ", size("k", "kv_heads"), ", length, ",
                      size("k", "head_dim"),
                      ")\n    return {\"k\": jnp.zeros(shape, dtype), \"v\": jnp.zeros(shape, dtype)}\n"});
    }
    return InOrder({"    shape = (", layers, ", batch, 1, length, ", size("kv_a", "kv_lora"), " + ",
                    size("k_rope", "rope_dim"), ")\n    return {\"latent\": jnp.zeros(shape, dtype)}\n"});
  }
  return "";
}

std::string JaxEmitter::Module() {
  Layers();
  Trunk();
  if (!program_.headless) Head();
  const std::string cache = program_.decodes ? Cache() : "";
  const std::string checked = CheckedTokens(kJaxChecked, program_, config_);
  const std::string loader = Loader();
  const bool kernels = !kernels_.empty();
  std::string named;
  for (const std::string& name : kernels_)
    absl::StrAppend(&named, name, " = kernel_module(\"", name, "\")\n");
  const std::string header = absl::StrReplaceAll(
      program_.decodes ? kJaxHeader : kJaxEncoderHeader,
      {{"$MODEL", graph().name()},
       {"$SHARDING", IsSharded() ? "from jax.sharding import NamedSharding, PartitionSpec as P\n" : ""},
       {"$IMPORTLIB", kernels ? "import importlib\nimport importlib.util\n" : ""},
       {"$SYS", kernels ? "import sys\n" : ""},
       {"$REPLACE", kernels ? ", replace" : ""},
       {"$KERNELS", kernels ? absl::StrCat(kJaxKernelModule, named) : ""}});
  const std::string calls =
      absl::StrReplaceAll(program_.decodes ? kJaxDecoder : kJaxEncoder,
                          {{"$TABLE", Table()},
                           {"$CACHE", cache},
                           {"$CHECKED", checked},
                           {"$USE_KERNELS", kernels ? kJaxUseKernels : ""},
                           {"$KERNEL_FLAG", kernels ? kJaxKernelFlag : ""},
                           {"$SET_KERNELS", kernels ? "    use_kernels(flags.kernels)\n" : ""}});
  return absl::StrCat(SayResult(header, program_.headless), "\n\n", config_.Text(), functions_.Text(), "\n\n",
                      loader, SayResult(calls, program_.headless));
}

}  // namespace twinforge
