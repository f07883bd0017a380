// Before                                                     After  raise_composites {}
//   n = param() @n                                             n = rms_norm(x) @n {eps: 1e-06}
//   n.multiply_0 = multiply(x, x)
//   ...
//   n.multiply_9 = multiply(..) of rms_norm {eps: 1e-06}
//
// Why on a TPU. Every other rewrite asks a node for its slots: heads are padded where q, k, v and o are one
// node. Primitives have none.
//
// No pattern is written down. A node that says what it comes of names a candidate: an op, its attributes, a
// path, whose parameters lie under the roles of the op's slots. The candidate is written out as
// lower_composites would (ir/ops), and the result is compared with the graph, op by op and attribute by
// attribute, from the result back to parameters and operands. What is equal is the composite by definition,
// whatever was said; what is not stays as it is. Raising what was lowered gives the graph that it was. A
// graph that says nothing of where it comes from stays: which of two spellings a fact had, no primitive
// shows.
//
// Refuses. A candidate whose decomposition is not what stands there, with the first difference. One whose
// parts are read from outside: they would have to stay, and with them its parameters.
//
// Fidelity. MOVED: nothing is computed otherwise, and no parameter changes.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/diagnostic.h"
#include "ir/builder.h"
#include "transforms/edit.h"
#include "transforms/transforms.pb.h"
#include "transforms/written_out.h"

namespace twinforge {
namespace {

// A composite that a node may be the result of.
struct Candidate {
  OpKind op = OpKind::kInput;
  std::string path;
  OpAttrs attrs;
  std::vector<std::pair<std::string, std::string>> params;  // slot -> role, of `param` nodes of the graph
  std::vector<NodeId> operands;
};

// What the comparison found: the nodes that the composite stands for, its result included; or why there is
// none.
struct Found {
  Candidate candidate;
  std::set<NodeId> parts;
  std::string reason;  // empty where it is one
};

// ---- candidates

std::string WithoutLastPart(const std::string& path) {
  const size_t dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}

// What is read from outside, ascending. A part has the composite's path before its name, as a decomposition's
// has.
std::vector<NodeId> ReadFromOutside(const Graph& graph, NodeId result, const Candidate& candidate) {
  const std::string prefix = absl::StrCat(candidate.path, ".");
  const auto inside = [&](const Node& node) {
    if (node.op == OpKind::kParam) {
      return std::any_of(candidate.params.begin(), candidate.params.end(),
                         [&](const auto& entry) { return entry.second == node.path; });
    }
    return node.op != OpKind::kInput && absl::StartsWith(node.path, prefix);
  };
  std::set<NodeId> seen = {result};
  std::set<NodeId> outside;
  std::vector<NodeId> open = {result};
  while (!open.empty()) {
    const NodeId id = open.back();
    open.pop_back();
    for (NodeId operand : graph.node(id).operands) {
      if (!inside(graph.node(operand))) {
        outside.insert(operand);
      } else if (seen.insert(operand).second) {
        open.push_back(operand);
      }
    }
  }
  return {outside.begin(), outside.end()};
}

// What `result` says it comes of. Only its operands' order is open.
Candidate CandidateAt(const Graph& graph, const Node& result) {
  const Origin& origin = result.attrs->origin();
  Candidate candidate;
  candidate.op = *OpKindFromName(origin.op());
  candidate.path = WithoutLastPart(result.path);
  candidate.attrs = origin.attrs();
  for (const SlotInfo& slot : Info(candidate.op).slots) {
    std::string role = RoleOf(candidate.op, candidate.path, slot.name);
    const Node* node = graph.FindNode(role);
    if (node != nullptr && node->op == OpKind::kParam)
      candidate.params.emplace_back(std::string(slot.name), std::move(role));
  }
  candidate.operands = ReadFromOutside(graph, result.id, candidate);
  return candidate;
}

// The candidate as the last node of a graph of its own, over inputs of its operands' types.
absl::StatusOr<Graph> Alone(const Graph& graph, const Candidate& candidate) {
  Builder alone("candidate");
  std::vector<NodeId> operands;
  for (size_t i = 0; i < candidate.operands.size(); ++i) {
    operands.push_back(
        alone.Input(absl::StrCat("-", i, candidate.path), graph.node(candidate.operands[i]).type));
  }
  std::vector<std::pair<std::string, Param>> params;
  for (const auto& [slot, role] : candidate.params) params.emplace_back(slot, *graph.FindParam(role));
  alone.Output("result", alone.Op(candidate.op, candidate.path, std::move(operands), candidate.attrs,
                                  std::move(params)));
  return alone.Finish();
}

// ---- comparison

OpAttrs WithoutOrigin(const OpAttrs& attrs) {
  OpAttrs plain = attrs;
  plain.clear_origin();
  return plain;
}

// Walks a decomposition and the graph together, from the results back.
class Comparison {
 public:
  Comparison(const Graph& parts, const Graph& graph, const Candidate& candidate)
      : parts_(parts), graph_(graph), become_(parts.nodes().size(), -1) {
    for (size_t i = 0; i < candidate.operands.size(); ++i) become_[parts.inputs()[i]] = candidate.operands[i];
  }

  // Whether node `there` of the graph is node `part` of the decomposition.
  bool Same(NodeId part, NodeId there) {
    if (become_[part] >= 0) {
      if (become_[part] == there) return true;
      return Differs(there, absl::StrCat("stands where it reads ", graph_.node(become_[part]).path));
    }
    const Node& want = parts_.node(part);
    const Node& have = graph_.node(there);
    if (want.op != have.op)
      return Differs(there, absl::StrCat("is ", Info(have.op).name, " where it has ", Info(want.op).name));
    if (want.op == OpKind::kParam) {
      if (want.path != have.path) return Differs(there, absl::StrCat("stands where it reads ", want.path));
    } else if (want.operands.size() != have.operands.size() || !SameAttrs(want, have)) {
      return Differs(there, absl::StrCat("is another ", Info(want.op).name, " than it has"));
    }
    become_[part] = there;
    for (size_t i = 0; i < want.operands.size(); ++i) {
      if (!Same(want.operands[i], have.operands[i])) return false;
    }
    return true;
  }

  std::set<NodeId> Parts() const {
    std::set<NodeId> parts;
    for (const Node& node : parts_.nodes()) {
      if (node.op != OpKind::kInput && become_[node.id] >= 0) parts.insert(become_[node.id]);
    }
    return parts;
  }
  const std::string& reason() const { return reason_; }

 private:
  static bool SameAttrs(const Node& a, const Node& b) {
    return WithoutOrigin(*a.attrs).SerializeAsString() == WithoutOrigin(*b.attrs).SerializeAsString();
  }
  bool Differs(NodeId there, absl::string_view what) {
    if (reason_.empty()) reason_ = absl::StrCat(graph_.node(there).path, " ", what);
    return false;
  }

  const Graph& parts_;
  const Graph& graph_;
  std::vector<NodeId> become_;
  std::string reason_;
};

std::string InOneLine(const absl::Status& status) {
  const std::optional<Diagnostic> d = DiagnosticOf(status);
  return d ? absl::StrCat(d->place, ": ", d->message) : std::string(status.message());
}

// Compares at one depth, with operands in one order.
Found Compare(const Graph& graph, const Node& result, Candidate candidate, DecompositionDepth depth) {
  Found found{std::move(candidate), {}, ""};
  const absl::StatusOr<Graph> alone = Alone(graph, found.candidate);
  const absl::StatusOr<Graph> parts =
      alone.ok() ? WrittenOut(*alone, alone->nodes().back(), depth) : alone.status();
  if (!parts.ok()) {
    found.reason = InOneLine(parts.status());
    return found;
  }
  Comparison comparison(*parts, graph, found.candidate);
  if (comparison.Same(parts->outputs()[0].second, result.id)) {
    found.parts = comparison.Parts();
  } else {
    found.reason = comparison.reason();
  }
  return found;
}

// A part that something else reads, and who; empty where there is none.
std::string ReadOutside(const Graph& graph, const Node& result, const std::set<NodeId>& parts) {
  std::set<NodeId> shown;
  for (const auto& [name, value] : graph.outputs()) shown.insert(value);
  for (NodeId id : parts) {
    if (id == result.id) continue;
    const std::string& path = graph.node(id).path;
    if (shown.count(id) > 0) return absl::StrCat(path, ", a part of it, is an output of the graph");
    for (NodeId user : graph.UsersOf(id)) {
      if (parts.count(user) == 0)
        return absl::StrCat(graph.node(user).path, " reads ", path, ", a part of it");
    }
  }
  return "";
}

// The composite whose result `node` is. The first reason is kept: that of primitives throughout.
Found FindAt(const Graph& graph, const Node& result) {
  Candidate candidate = CandidateAt(graph, result);
  if (candidate.path.empty()) return {std::move(candidate), {}, "its path has no part that names it"};
  std::string reason;
  for (DecompositionDepth depth : {DecompositionDepth::kPrimitives, DecompositionDepth::kOnce}) {
    do {
      Found found = Compare(graph, result, candidate, depth);
      if (found.reason.empty()) {
        found.reason = ReadOutside(graph, result, found.parts);
        const Node* holder = graph.FindNode(found.candidate.path);
        if (found.reason.empty() && holder != nullptr && found.parts.count(holder->id) == 0)
          found.reason = absl::StrCat("another node is called ", found.candidate.path);
        return found;
      }
      if (reason.empty()) reason = found.reason;
      // Ascending at first, so that every order has its turn; two operands are the most that a composite has.
    } while (candidate.operands.size() == 2 &&
             std::next_permutation(candidate.operands.begin(), candidate.operands.end()));
  }
  std::string why = absl::StrCat("it is not ", Info(candidate.op).name, " written out: ", reason);
  return {std::move(candidate), {}, std::move(why)};
}

// ---- the transform

class RaiseCompositesTransform : public Transform {
 public:
  absl::string_view name() const override { return "raise_composites"; }
  Fidelity fidelity() const override { return Fidelity::kMoved; }

  // Of composites within composites the outer one is the site: it stands for both.
  Sites FindSites(const Graph& graph) const override {
    std::map<NodeId, std::string> verdicts;  // "" for a site
    std::set<NodeId> held;
    for (size_t i = graph.nodes().size(); i-- > 0;) {
      const Node& node = graph.nodes()[i];
      if (!node.attrs->has_origin() || held.count(node.id) > 0) continue;
      const Found found = FindAt(graph, node);
      verdicts[node.id] = found.reason;
      if (found.reason.empty()) held.insert(found.parts.begin(), found.parts.end());
    }
    return SitesOverNodes(graph, [&](const Node& node) {
      const auto verdict = verdicts.find(node.id);
      if (verdict != verdicts.end())
        return verdict->second.empty() ? Judgement::Fits() : Judgement::Refused(verdict->second);
      return Info(node.op).composite != nullptr ? Judgement::Native() : Judgement::Other();
    });
  }

  absl::Status Rewrite(const Site& site, const Observed&, Rewriter& rewriter) const override {
    const Graph& graph = rewriter.graph();
    const Found found = FindAt(graph, graph.node(site.node));
    const auto emit = [&graph, raised = found.candidate](Rewriter::Moved moved,
                                                         Builder& to) -> absl::StatusOr<NodeId> {
      std::vector<NodeId> operands;
      for (NodeId operand : raised.operands) operands.push_back(moved(operand));
      std::vector<std::pair<std::string, Param>> params;
      for (const auto& [slot, role] : raised.params) params.emplace_back(slot, *graph.FindParam(role));
      return to.Op(raised.op, raised.path, std::move(operands), raised.attrs, std::move(params));
    };
    rewriter.Replace(site.node, emit);
    for (NodeId part : found.parts) {
      if (part != site.node) rewriter.Remove(part);
    }
    return absl::OkStatus();
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transform>> MakeRaiseComposites(const TransformStep&,
                                                               const TransformContext&) {
  return std::make_unique<RaiseCompositesTransform>();
}

}  // namespace twinforge
