#include "reference/program.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "reference/held.h"

namespace twinforge {
namespace {

constexpr absl::string_view kLayers = "layers.";
constexpr size_t kLongestCycle = 8;

// The number and what follows it, of "layers.3.attn"; {-1, path} elsewhere.
std::pair<int64_t, absl::string_view> Split(absl::string_view path) {
  int64_t number = -1;
  if (!absl::StartsWith(path, kLayers)) return {-1, path};
  const absl::string_view rest = path.substr(kLayers.size());
  const size_t dot = rest.find('.');
  if (dot == absl::string_view::npos || !absl::SimpleAtoi(rest.substr(0, dot), &number) || number < 0)
    return {-1, path};
  return {number, rest.substr(dot + 1)};
}

bool IsWritten(OpKind op) {
  switch (op) {
    case OpKind::kInput:
    case OpKind::kAdd:
    case OpKind::kLinear:
    case OpKind::kEmbedding:
    case OpKind::kRmsNorm:
    case OpKind::kLayerNorm:
    case OpKind::kAttention:
    case OpKind::kLatentAttention:
    case OpKind::kMlp:
    case OpKind::kGatedMlp:
    case OpKind::kMoe:
    case OpKind::kLmHead:
    case OpKind::kActivation:
      return true;
    default:  // primitives, and blocks that no family which is read has
      return false;
  }
}

// What numpy reads with ml_dtypes: floating types of whole bytes.
bool IsRead(DType dtype) {
  switch (dtype) {
    case DType::kF64:
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kF8E4M3:
    case DType::kF8E5M2:
    case DType::kF8E4M3Fnuz:
    case DType::kF8E5M2Fnuz:
      return true;
    default:  // integers, and types that no kernel here is computed in
      return false;
  }
}

class Maker {
 public:
  Maker(const Graph& graph, const std::map<std::string, WeightPtr>& programs)
      : graph_(graph), programs_(programs) {
    program_.graph = &graph;
  }

  absl::StatusOr<ReferenceProgram> Run() {
    FindNeeded();
    TWIN_RETURN_IF_ERROR(PlaceNodes());
    TWIN_RETURN_IF_ERROR(CheckFlow());
    TWIN_RETURN_IF_ERROR(CheckMemory());
    TWIN_RETURN_IF_ERROR(HoldParams());
    FindKinds();
    FindCycles();
    return std::move(program_);
  }

 private:
  // What the first output is made of.
  void FindNeeded() {
    std::vector<NodeId> open;
    if (!graph_.outputs().empty()) open.push_back(graph_.outputs()[0].second);
    while (!open.empty()) {
      const NodeId id = open.back();
      open.pop_back();
      if (!needed_.insert(id).second) continue;
      const std::vector<NodeId>& operands = graph_.node(id).operands;
      open.insert(open.end(), operands.begin(), operands.end());
    }
  }

  absl::Status PlaceNodes() {
    for (const Node& node : graph_.nodes()) {
      if (needed_.count(node.id) == 0 && node.op != OpKind::kInput) continue;
      if (!IsWritten(node.op))
        return absl::UnimplementedError(
            absl::StrCat("no code is written for ", Info(node.op).name, " (", node.path, ")"));
      if (node.op == OpKind::kInput) continue;
      const int64_t layer = ReferenceProgram::LayerOf(node.path);
      const auto count = static_cast<int64_t>(program_.layers.size());
      if (layer < 0) {
        (count == 0 ? program_.before : program_.after).push_back(node.id);
        continue;
      }
      if (!program_.after.empty() || (layer != count && layer != count - 1))
        return absl::UnimplementedError(absl::StrCat(node.path, " does not follow the layer before it"));
      if (layer == count) program_.layers.emplace_back();
      program_.layers.back().push_back(node.id);
    }
    if (program_.layers.empty()) return absl::UnimplementedError("the graph has no layers");
    if (graph_.inputs().size() != 1) return absl::UnimplementedError("the graph has not one input");
    program_.headless = graph_.outputs()[0].first == "hidden";
    if (graph_.outputs().size() != 1 && !program_.headless)
      return absl::UnimplementedError("the graph gives more than logits");
    return absl::OkStatus();
  }

  // One value enters each part, and it is the last one of the part before.
  absl::Status CheckPart(const std::vector<NodeId>& part, NodeId enters) const {
    const std::set<NodeId> own(part.begin(), part.end());
    for (const NodeId id : part) {
      for (const NodeId operand : graph_.node(id).operands) {
        if (operand == enters || own.count(operand) > 0) continue;
        return absl::UnimplementedError(absl::StrCat(graph_.node(id).path, " reads ",
                                                     graph_.node(operand).path,
                                                     ", which is not what its layer is given"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckFlow() const {
    NodeId value = graph_.inputs()[0];
    std::vector<const std::vector<NodeId>*> parts = {&program_.before};
    for (const auto& layer : program_.layers) parts.push_back(&layer);
    parts.push_back(&program_.after);
    for (const auto* part : parts) {
      TWIN_RETURN_IF_ERROR(CheckPart(*part, value));
      if (!part->empty()) value = part->back();
    }
    if (graph_.outputs()[0].second == value) return absl::OkStatus();
    return absl::UnimplementedError("the graph's output is not its last value");
  }

  // Places in the cache are the layers' numbers: each remembers the same, or none does.
  absl::Status CheckMemory() {
    std::set<std::string> remembered;
    int64_t causal = 0, seeing = 0;
    for (const auto& layer : program_.layers) {
      int64_t blocks = 0;
      for (const NodeId id : layer) {
        const Node& node = graph_.node(id);
        const bool latent = node.op == OpKind::kLatentAttention;
        if (node.op != OpKind::kAttention && !latent) continue;
        ++blocks;
        ++seeing;
        causal += latent || node.attrs->attention().causal() ? 1 : 0;
        remembered.insert(WhatIsRemembered(node));
      }
      if (blocks != 1) return absl::UnimplementedError("a layer has not one attention");
    }
    if (causal != 0 && causal != seeing)
      return absl::UnimplementedError("some attentions are causal and some are not");
    program_.decodes = causal != 0;
    if (program_.decodes && remembered.size() != 1)
      return absl::UnimplementedError("layers remember keys of different shapes");
    return absl::OkStatus();
  }

  std::string WhatIsRemembered(const Node& node) const {
    std::string said(Info(node.op).name);
    const std::vector<std::pair<absl::string_view, std::vector<absl::string_view>>> slots =
        node.op == OpKind::kAttention
            ? std::vector<std::pair<absl::string_view, std::vector<absl::string_view>>>{{"k",
                                                                                         {"kv_heads",
                                                                                          "head_dim"}},
                                                                                        {"v",
                                                                                         {"kv_heads",
                                                                                          "head_dim"}}}
            : std::vector<std::pair<absl::string_view, std::vector<absl::string_view>>>{
                  {"kv_a", {"kv_lora"}}, {"k_rope", {"rope_dim"}}};
    for (const auto& [slot, axes] : slots) {
      for (const absl::string_view axis : axes)
        absl::StrAppend(&said, " ", graph_.param(node, slot).type.Get(axis).size);
    }
    return said;
  }

  absl::Status HoldParams() {
    for (const Node& node : graph_.nodes()) {
      if (needed_.count(node.id) == 0) continue;
      for (const auto& [slot, role] : node.params) {
        const auto found = programs_.find(role);
        if (found == programs_.end())
          return absl::UnimplementedError(absl::StrCat("no stored tensor holds ", role));
        const Param& param = *graph_.FindParam(role);
        if (!IsRead(param.type.dtype))
          return absl::UnimplementedError(
              absl::StrCat("no code reads ", Name(param.type.dtype), " (", role, ")"));
        const bool keep = node.op == OpKind::kEmbedding || !param.type.is_kernel();
        absl::StatusOr<HeldParam> held =
            HoldParam(param, found->second, keep, ReferenceProgram::LayerOf(node.path));
        if (!held.ok()) return absl::UnimplementedError(absl::StrCat(role, ": ", held.status().message()));
        // Latents are multiplied with in more than one way, experts by a kernel of their own.
        if (node.op != OpKind::kLatentAttention && param.type.lead == 0) held->kept = KeptGroupsOf(param);
        program_.held.insert_or_assign(role, *std::move(held));
      }
    }
    return absl::OkStatus();
  }

  // All that code written for a layer depends on.
  std::string Signature(const std::vector<NodeId>& layer, NodeId enters) const {
    std::string text;
    for (const NodeId id : layer) {
      const Node& node = graph_.node(id);
      absl::StrAppend(&text, Info(node.op).name, " ", ReferenceProgram::Suffix(node.path));
      for (const NodeId operand : node.operands)
        absl::StrAppend(&text, " ",
                        operand == enters ? "" : ReferenceProgram::Suffix(graph_.node(operand).path));
      absl::StrAppend(&text, "\n", node.attrs->SerializeAsString());
      for (const auto& [slot, role] : node.params) {
        const HeldParam& held = program_.held.at(role);
        absl::StrAppend(&text, "\n", slot, " ", Text(held.param->type), " ", held.expression);
        for (const int axis : held.order) absl::StrAppend(&text, " ", axis);
        if (held.kept)
          absl::StrAppend(&text, " keep ", held.kept->keep, " ", held.kept->of, " ", held.kept->stride, " ",
                          held.kept->along_in);
      }
      text += "\n";
    }
    return text;
  }

  void FindKinds() {
    absl::flat_hash_map<std::string, int> known;
    NodeId enters = program_.before.empty() ? graph_.inputs()[0] : program_.before.back();
    for (size_t number = 0; number < program_.layers.size(); ++number) {
      const auto& layer = program_.layers[number];
      const auto next = static_cast<int>(program_.kinds.size());
      const auto [found, fresh] = known.emplace(Signature(layer, enters), next);
      if (fresh) program_.kinds.push_back({absl::StrCat("layer_", number), {}});
      program_.kinds[found->second].layers.push_back(static_cast<int>(number));
      kind_of_.push_back(found->second);
      enters = layer.back();
    }
    if (program_.kinds.size() == 1) program_.kinds[0].name = "layer";
  }

  size_t Repeats(size_t from, size_t period) const {
    size_t repeats = 1;
    while (from + (repeats + 1) * period <= kind_of_.size() &&
           std::equal(kind_of_.begin() + from, kind_of_.begin() + from + period,
                      kind_of_.begin() + from + repeats * period)) {
      ++repeats;
    }
    return repeats;
  }

  // From each layer on the shortest cycle that covers most; a layer that begins none stands alone.
  void FindCycles() {
    for (size_t at = 0; at < kind_of_.size();) {
      size_t period = 1, repeats = Repeats(at, 1);
      for (size_t longer = 2; longer <= kLongestCycle; ++longer) {
        const size_t more = Repeats(at, longer);
        if (more > 1 && more * longer > period * repeats) {
          period = longer;
          repeats = more;
        }
      }
      program_.cycles.push_back({static_cast<int>(at),
                                 {kind_of_.begin() + at, kind_of_.begin() + at + period},
                                 static_cast<int>(repeats)});
      at += period * repeats;
    }
  }

  const Graph& graph_;
  const std::map<std::string, WeightPtr>& programs_;
  ReferenceProgram program_;
  std::set<NodeId> needed_;
  std::vector<int> kind_of_;
};

}  // namespace

std::string ReferenceProgram::AxesOf(const std::string& role) const {
  const HeldParam& param = held.at(role);
  std::vector<std::string> names;
  for (const int axis : param.order) {
    const ParamAxis& own = param.param->type.axes[axis];
    names.push_back(own.padded() ? absl::StrCat(own.name, " (", own.logical, " and padding)") : own.name);
  }
  return absl::StrJoin(names, ", ");
}

int64_t ReferenceProgram::Words() const {
  for (const NodeId id : before) {
    const Node& node = graph->node(id);
    if (node.op == OpKind::kEmbedding) return graph->param(node, "table").type.axes[0].logical;
  }
  return std::numeric_limits<int64_t>::max();
}

int64_t ReferenceProgram::Positions() const {
  for (const NodeId id : before) {
    const Node& node = graph->node(id);
    if (node.op == OpKind::kEmbedding && node.Has("position_table"))
      return graph->param(node, "position_table").type.axes[0].size -
             node.attrs->embedding().position_offset();
  }
  return 0;
}

bool ReferenceProgram::IsReadAfter(const std::vector<NodeId>& nodes, size_t at, NodeId value) const {
  return std::any_of(nodes.begin() + static_cast<std::ptrdiff_t>(at) + 1, nodes.end(), [&](NodeId id) {
    const std::vector<NodeId>& operands = graph->node(id).operands;
    return std::find(operands.begin(), operands.end(), value) != operands.end();
  });
}

const HeldParam& ReferenceProgram::Held(const Node& node, absl::string_view slot) const {
  const auto found = held.find(std::string(node.Role(slot)));
  TWIN_CHECK(found != held.end(), "the node has the slot");
  return found->second;
}

absl::string_view ReferenceProgram::Suffix(absl::string_view path) { return Split(path).second; }

int64_t ReferenceProgram::LayerOf(absl::string_view path) { return Split(path).first; }

absl::StatusOr<ReferenceProgram> MakeReferenceProgram(const Graph& graph,
                                                      const std::map<std::string, WeightPtr>& programs) {
  return Maker(graph, programs).Run();
}

}  // namespace twinforge
