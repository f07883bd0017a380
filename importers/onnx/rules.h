// What operators make of flows: one small function each, found by the operator's name.
//
//   bool Transpose(RaiseCall& c)   { return c.Move(0); }
//
// A rule that does not hold says why (Miss) and returns false. Rules look at structure alone; names of nodes
// and values are never asked.
#ifndef TWINFORGE_IMPORTERS_ONNX_RULES_H_
#define TWINFORGE_IMPORTERS_ONNX_RULES_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "importers/onnx/trace.h"

namespace twinforge {

class RaiseCall {
 public:
  RaiseCall(OnnxTrace& trace, const OnnxNode& node, int index) : trace(trace), node(node), index(index) {}

  absl::string_view op() const;
  int inputs() const { return static_cast<int>(node.inputs.size()); }
  bool Has(int i) const { return i >= 0 && i < inputs() && node.inputs[i] >= 0; }
  const TracedValue& In(int i) const { return trace.value(node.inputs[i]); }
  const Flow* FlowAt(int i) const { return Has(i) && In(i).flow ? &*In(i).flow : nullptr; }
  // A flow that tokens decide.
  const Flow* Real(int i) const { return Has(i) && !trace.Knowable(node.inputs[i]) ? FlowAt(i) : nullptr; }
  WeightPtr WeightAt(int i) const { return Has(i) ? In(i).weight : nullptr; }
  std::optional<OnnxTensor> KnownAt(int i) { return Has(i) ? trace.Known(node.inputs[i]) : std::nullopt; }
  // The one number that input i is.
  std::optional<double> NumberAt(int i);
  // Integers of a known input, or nothing.
  std::optional<std::vector<int64_t>> IntegersAt(int i);

  int64_t Int(absl::string_view name, int64_t absent) const;
  double Float(absl::string_view name, double absent) const;
  std::optional<std::vector<int64_t>> Ints(absl::string_view name) const;
  std::string Str(absl::string_view name) const;

  bool Out(int i, Flow flow);
  bool OutWeight(int i, WeightPtr weight);
  bool OutKnown(int i, OnnxTensor tensor);
  // A term of its own as output 0.
  bool Emit(Term term) { return Out(0, New(std::move(term))); }
  Flow New(Term term);
  bool Miss(std::string message);
  // The operator moves elements of the flow that is its input `data`.
  bool Move(int data);

  OnnxTrace& trace;
  const OnnxNode& node;
  const int index;
};

using RaiseRule = bool (*)(RaiseCall& call);

struct RaiseRow {
  absl::string_view name;
  RaiseRule rule;
  absl::string_view domain = "";
};

absl::Span<const RaiseRow> MoveRules();
absl::Span<const RaiseRow> ArithmeticRules();
absl::Span<const RaiseRow> BlockRules();
absl::Span<const RaiseRow> FusedRules();
absl::Span<const RaiseRow> ExpertRules();
RaiseRule FindRaiseRule(absl::string_view domain, absl::string_view name);

// ---- what several rules share

// `flow` repeated to `shape`, as operators broadcast.
Flow BroadcastFlow(const Flow& flow, const Shape& shape);
std::optional<Shape> MetShape(const Shape& a, const Shape& b);
// flow . kernel [in, out] + bias; false with a miss where the flow is no row of features.
bool EmitLinear(RaiseCall& c, const Flow& x, WeightPtr kernel, WeightPtr bias, Shape shape);
// A norm over the last axis.
bool EmitNorm(RaiseCall& c, const Flow& x, std::string word, double eps, WeightPtr scale, WeightPtr bias,
              int output = 0);
// x times its activation, if `b` is what one writes of `a`; `a` and `b` in any order.
std::optional<Flow> MatchActivation(RaiseCall& c, const Flow& a, const Flow& b);
// x / sqrt(mean(x^2) + eps), where `root` is one over that root (or the root itself, if `divided`).
std::optional<Flow> MatchNorm(RaiseCall& c, const Flow& x, const Flow& root, bool divided);
// Rows of `table` [experts, ..] by `places` [.., of that shape], which are the best of a router.
bool GatherChosen(RaiseCall& c, const WeightPtr& table, const Flow& places, Shape shape);
// MatMul of a vector and the matrices that a router chose, in any order.
bool MultiplyChosen(RaiseCall& c, const Flow& a, const Flow& b);
// That product plus the chosen rows of a bias; false, without a miss, where it is none.
bool AddChosen(RaiseCall& c, const Flow& a, const Flow& b);
// The sum over a token's experts, along `axis`; false, without a miss, where it is none.
bool SumChosen(RaiseCall& c, const Flow& x, int64_t axis, bool keep);

}  // namespace twinforge

#endif  // TWINFORGE_IMPORTERS_ONNX_RULES_H_
