// The module around the blocks: layers, the model that walks through them, what it remembers.
#include <algorithm>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/check.h"
#include "reference/checked_tokens.h"
#include "reference/expression.h"
#include "reference/headless.h"
#include "reference/python.h"
#include "reference/torch_emitter.h"
#include "reference/torch_runtime_text.h"

namespace twinforge {
namespace {

constexpr size_t kColumns = 120;

// An attribute of the layer or of the model, and a variable for what its node gives.
std::string NameOf(const Node& node) {
  return absl::StrReplaceAll(ReferenceProgram::Suffix(node.path), {{".", "_"}});
}

// "layer_0" as a class: "Layer0".
std::string ClassName(absl::string_view kind) {
  std::string name = absl::StrReplaceAll(kind, {{"_", ""}});
  name[0] = 'L';
  return name;
}

}  // namespace

std::string TorchEmitter::ClassOf(const Node& node) {
  switch (node.op) {
    case OpKind::kEmbedding:
      return Embedding(node);
    case OpKind::kRmsNorm:
      return RmsNorm(node);
    case OpKind::kLayerNorm:
      return LayerNorm(node);
    case OpKind::kLinear:
      return Linear(node);
    case OpKind::kMlp:
      return Mlp(node);
    case OpKind::kGatedMlp:
      return GatedMlp(node);
    case OpKind::kMoe:
      return Moe(node);
    case OpKind::kLmHead:
      return LmHead(node);
    case OpKind::kAttention:
      return Attention(node);
    default:  // MakeReferenceProgram lets no other through that has parameters
      return LatentAttention(node);
  }
}

std::string TorchEmitter::CallOf(const Node& node, absl::string_view x) {
  if (node.op == OpKind::kActivation)
    return absl::StrCat(Activate(node.attrs->activation().act()), "(", x, ")");
  std::string call = absl::StrCat("self.", NameOf(node), "(", x);
  if (node.op == OpKind::kEmbedding) return call + ", positions)";
  if (node.op != OpKind::kAttention && node.op != OpKind::kLatentAttention) return call + ")";
  call += program_.decodes ? ", cache, i, at" : ", at";
  const AttentionAttrs& attrs = node.attrs->attention();
  if (attrs.window() != 0)
    absl::StrAppend(&call,
                    ", window=", config_.Int("window", attrs.window(), "keys that a windowed layer sees"));
  if (attrs.chunk() != 0) absl::StrAppend(&call, ", chunk=", config_.Int("chunk", attrs.chunk()));
  return call + ")";
}

// What enters is called x, or tokens.
TorchEmitter::Statements TorchEmitter::Body(const std::vector<NodeId>& nodes, NodeId enters) {
  const bool of_tokens = graph().node(enters).op == OpKind::kInput;
  std::map<NodeId, std::string> names = {{enters, of_tokens ? "tokens" : "x"}};
  NodeId x = enters;
  Statements done{"", "x"};
  for (size_t at = 0; at < nodes.size(); ++at) {
    const Node& node = graph().node(nodes[at]);
    const bool reads_x = std::find(node.operands.begin(), node.operands.end(), x) != node.operands.end();
    const bool is_x = reads_x && !program_.IsReadAfter(nodes, at, x);
    std::string name = is_x ? "x" : NameOf(node);
    std::string value = node.op == OpKind::kAdd
                            ? absl::StrCat(names[node.operands[0]], " + ", names[node.operands[1]])
                            : CallOf(node, names[node.operands[0]]);
    if (at + 1 == nodes.size()) {
      done.value = std::move(value);
      break;
    }
    absl::StrAppend(&done.text, name, " = ", value, "\n");
    if (is_x) x = node.id;
    names[node.id] = std::move(name);
  }
  return done;
}

std::string TorchEmitter::ValueOf(const Node& node, const std::string& role) const {
  const HeldParam& own = program_.held.at(role);
  const int64_t layer = ReferenceProgram::LayerOf(node.path);
  for (const Node& other : graph().nodes()) {
    if (layer >= 0 || other.id == node.id) break;
    if (ReferenceProgram::LayerOf(other.path) >= 0) continue;
    for (const auto& [slot, its_role] : other.params) {
      if (program_.held.at(its_role).program == own.program)
        return absl::StrCat("self.", NameOf(other), ".", slot);
    }
  }
  absl::StatusOr<std::string> text = TorchExpression(own.program, layer);
  TWIN_CHECK(text.ok(), "what numpy can say, torch can");
  return *std::move(text);
}

std::string TorchEmitter::Parts(const std::vector<NodeId>& nodes) {
  std::string text;
  for (const NodeId id : nodes) {
    const Node& node = graph().node(id);
    if (node.params.empty()) continue;
    const std::string begin = absl::StrCat("self.", NameOf(node), " = ", ClassOf(node), "(");
    std::vector<std::string> items, axes;
    for (const auto& [slot, role] : node.params) {
      items.push_back(absl::StrCat(slot, "=", ValueOf(node, role)));
      axes.push_back(absl::StrCat("  # ", program_.AxesOf(role)));
    }
    const std::string line = absl::StrCat(begin, items[0], ")", axes[0]);
    if (items.size() == 1 && line.size() + 8 <= kColumns) {
      absl::StrAppend(&text, line, "\n");
      continue;
    }
    absl::StrAppend(&text, begin, "\n");
    for (size_t i = 0; i < items.size(); ++i) {
      const bool fits = items[i].size() + axes[i].size() + 13 <= kColumns;
      if (!fits) absl::StrAppend(&text, "    ", axes[i].substr(2), "\n");
      absl::StrAppend(&text, "    ", items[i], ",", fits ? axes[i] : "", "\n");
    }
    text += ")\n";
  }
  return text;
}

// One class for each kind of layer.
void TorchEmitter::Layers() {
  std::map<std::string, std::string> known;  // a class that has these parts already
  for (const LayerKind& kind : program_.kinds) {
    const int number = kind.layers[0];
    NodeId enters = program_.before.empty() ? graph().inputs()[0] : program_.before.back();
    if (number > 0) enters = program_.layers[number - 1].back();
    const std::string parts = Parts(program_.layers[number]);
    const Statements body = Body(program_.layers[number], enters);
    const size_t count = kind.layers.size();
    const std::string numbers = count == 1 ? absl::StrCat("Layer ", number)
                                : count == program_.layers.size()
                                    ? absl::StrCat("Each of the ", count, " layers")
                                    : absl::StrCat(count, " of the ", program_.layers.size(),
                                                   " layers, the first of them layer ", number);
    const auto base = known.find(parts);
    std::string begin = absl::StrCat("class $(", base == known.end() ? "nn.Module" : base->second,
                                     "):\n    \"\"\"", numbers, ".\"\"\"\n");
    if (base == known.end()) {
      absl::StrAppend(&begin, "\n    def __init__(self, read, i):\n        super().__init__()\n",
                      Indented(parts, 8));
    }
    layer_names_.push_back(functions_.Define(
        ClassName(kind.name),
        absl::StrCat(begin, "\n    def forward(self, ", program_.decodes ? "x, cache, i, at" : "x, at",
                     "):\n", Indented(body.text, 8), "        return ", body.value, "\n")));
    known.emplace(parts, layer_names_.back());
  }
}

// The list of all layers, by the cycles that they come in.
std::string TorchEmitter::Stack() const {
  std::vector<std::string> lists;
  for (const LayerCycle& cycle : program_.cycles) {
    const auto period = static_cast<int>(cycle.kinds.size());
    const int end = cycle.first + cycle.repeats * period;
    std::vector<std::string> kinds;
    for (const int kind : cycle.kinds) kinds.push_back(layer_names_[kind]);
    if (cycle.repeats == 1) {
      lists.push_back(absl::StrCat("[", kinds[0], "(read, ", cycle.first, ")]"));
    } else if (period == 1) {
      const std::string from = cycle.first == 0 ? "" : absl::StrCat(cycle.first, ", ");
      lists.push_back(absl::StrCat("[", kinds[0], "(read, i) for i in range(", from, end, ")]"));
    } else {
      lists.push_back(absl::StrCat("[\n        kind(read, i + j)\n        for i in range(", cycle.first, ", ",
                                   end, ", ", period, ")\n        for j, kind in enumerate((",
                                   absl::StrJoin(kinds, ", "), "))\n    ]"));
    }
  }
  if (lists.size() == 1 && !absl::StrContains(lists[0], "\n"))
    return absl::StrCat("self.layers = nn.ModuleList(", lists[0], ")\n");
  return absl::StrCat("self.layers = nn.ModuleList(\n    ", absl::StrJoin(lists, "\n    + "), "\n)\n");
}

// The statement that makes `at`.
std::string TorchEmitter::Step() {
  std::string fields = "    positions: torch.Tensor  # of the tokens in their sequences, [batch, seq]\n";
  if (!program_.decodes) fields += "    lengths: torch.Tensor  # of the sequences, [batch]\n";
  std::string made = program_.decodes ? "positions" : "positions, lengths";
  for (size_t i = 0; i < rope_functions_.size(); ++i) {
    absl::StrAppend(&fields, "    angles", i == 0 ? "" : absl::StrCat("_", i + 1),
                    ": tuple[torch.Tensor, torch.Tensor]  # of the rotary embedding\n");
    absl::StrAppend(&made, ", ", rope_functions_[i],
                    "(positions, torch.promote_types(x.dtype, torch.float32))");
  }
  const std::string step = functions_.Define(
      "Step",
      absl::StrCat("class $(NamedTuple):\n    \"\"\"What all layers share in one call.\"\"\"\n\n", fields));
  return absl::StrCat("at = ", step, "(", made, ")\n");
}

void TorchEmitter::Model() {
  const std::string parts = Parts(program_.before);
  const std::string last = Parts(program_.after);
  const Statements before = Body(program_.before, graph().inputs()[0]);
  const Statements after = Body(program_.after, program_.layers.back().back());
  const std::string step = Step();
  functions_.Define(
      "Model",
      absl::StrCat(
          "class $(nn.Module):\n    \"\"\"The whole model; `read` gives a stored tensor by its "
          "name.\"\"\"\n\n",
          "    def __init__(self, read):\n        super().__init__()\n",
          Indented(absl::StrCat(parts, Stack(), last), 8),
          program_.decodes
              ? "\n    def trunk(self, tokens, positions, cache=None):\n        \"\"\"Hidden "
                "states [batch, seq, d_model] of tokens at their positions, which the cache "
                "remembers.\"\"\"\n"
              : "\n    def trunk(self, tokens, positions, lengths):\n        \"\"\"Hidden states "
                "[batch, seq, d_model] of sequences that are padded behind.\"\"\"\n",
          Indented(absl::StrCat(before.text, "x = ", before.value, "\n", step), 8),
          program_.decodes ? "        for i, layer in enumerate(self.layers):\n            x = layer(x, "
                             "cache, i, at)\n"
                           : "        for layer in self.layers:\n            x = layer(x, at)\n",
          "        return x\n",
          program_.headless
              ? ""
              : absl::StrCat("\n    def head(self, x):\n        \"\"\"From hidden states to what the "
                             "model says of each token.\"\"\"\n",
                             Indented(after.text, 8), "        return ", after.value, "\n"),
          program_.decodes ? kTorchForward : SayResult(kTorchEncoderForward, program_.headless)));
}

std::string TorchEmitter::Cache() {
  for (const NodeId id : program_.layers[0]) {
    const Node& node = graph().node(id);
    const bool latent = node.op == OpKind::kLatentAttention;
    if (node.op != OpKind::kAttention && !latent) continue;
    const std::string layers = config_.Int("layers", static_cast<int64_t>(program_.layers.size()));
    std::string lines;
    const auto add = [&](absl::string_view name, absl::string_view slot,
                         std::vector<absl::string_view> axes) {
      std::string shape = absl::StrCat(layers, ", batch, length");
      for (const absl::string_view axis : axes)
        absl::StrAppend(&shape, ", ", config_.Int(axis, TypeOf(node, slot).Get(axis).size));
      absl::StrAppend(&lines, "        \"", name, "\": torch.zeros(", shape,
                      ", dtype=dtype, device=device),\n");
    };
    add(latent ? "latent" : "k", latent ? "kv_a" : "k",
        latent ? std::vector<absl::string_view>{"kv_lora"}
               : std::vector<absl::string_view>{"kv_heads", "head_dim"});
    add(latent ? "rope_key" : "v", latent ? "k_rope" : "v",
        latent ? std::vector<absl::string_view>{"rope_dim"}
               : std::vector<absl::string_view>{"kv_heads", "head_dim"});
    return absl::StrCat("    return {\n", lines, "    }\n");
  }
  return "";
}

std::string TorchEmitter::Module() {
  functions_.Define("Block", kTorchBlock);
  Layers();
  Model();
  const std::string cache = program_.decodes ? Cache() : "";
  const std::string checked = CheckedTokens(kTorchChecked, program_, config_);
  std::string table = "next(params.parameters())";  // its dtype is that of all activations
  for (const NodeId id : program_.before) {
    const Node& node = graph().node(id);
    if (node.op == OpKind::kEmbedding) table = absl::StrCat("params.", NameOf(node), ".table");
  }
  const std::string functions = functions_.Text();
  const bool takes = absl::StrContains(functions, "take(");
  const bool counts = absl::StrContains(functions, "math.");
  const std::string header =
      absl::StrReplaceAll(program_.decodes ? kTorchHeader : kTorchEncoderHeader,
                          {{"$MODEL", graph().name()}, {"$MATH", counts ? "import math\n" : ""}});
  const std::string calls =
      absl::StrReplaceAll(program_.decodes ? kTorchDecoder : kTorchEncoder,
                          {{"$TABLE", table}, {"$CACHE", cache}, {"$CHECKED", checked}});
  return absl::StrCat(SayResult(header, program_.headless), "\n\n", config_.Text(), takes ? kTorchTake : "",
                      functions, kTorchLoad, SayResult(calls, program_.headless));
}

}  // namespace twinforge
