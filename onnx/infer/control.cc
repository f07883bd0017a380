// Subgraphs: what holds whichever branch is taken, and however often a body runs.
#include <algorithm>

#include "onnx/infer/rule.h"

namespace twinforge {
namespace {

void IdentityRule(InferCall& c) {
  c.Out(0) = c.In(0);
  c.ConstantIs(c.ConstantOf(0));
}

// A branch that is known not to be taken is not looked into: what it would do to these shapes is no matter.
void IfRule(InferCall& c) {
  const KnownDim taken = c.Scalar(0);
  std::vector<std::vector<OnnxFact>> branches;
  for (const char* name : {"then_branch", "else_branch"}) {
    const bool then = name[0] == 't';
    if (IsNumber(taken, then ? 0 : 1)) continue;
    branches.push_back(c.Body(name, {}).value_or(std::vector<OnnxFact>()));
    if (static_cast<int>(branches.back().size()) < c.outputs())
      return c.Fail("a branch has fewer outputs than the node");
  }
  for (int i = 0; i < c.outputs(); ++i) {
    const auto at = static_cast<size_t>(i);
    c.Out(i) = branches.size() == 1 ? branches[0][at] : JoinFacts(branches[0][at], branches[1][at]);
  }
}

// A body run until what it is given and what it makes are the same facts: twice at most with what is known of
// the state, then with nothing. `state` comes out as what holds before each run, `made` as what the body
// makes.
struct Steady {
  std::vector<OnnxFact> state, made;
};

Steady RunUntilSteady(InferCall& c, const std::vector<OnnxFact>& before, std::vector<OnnxFact> state,
                      const std::vector<OnnxFact>& after, size_t state_at) {
  const std::vector<OnnxFact> first = state;
  const auto run = [&] {
    std::vector<OnnxFact> inputs = before;
    inputs.insert(inputs.end(), state.begin(), state.end());
    inputs.insert(inputs.end(), after.begin(), after.end());
    return c.Body("body", std::move(inputs)).value_or(std::vector<OnnxFact>());
  };
  for (int round = 0; round < 2; ++round) {
    std::vector<OnnxFact> made = run(), joined;
    if (made.size() < state_at + state.size()) {
      c.Fail("the body has too few outputs");
      return {};
    }
    for (size_t s = 0; s < state.size(); ++s) joined.push_back(JoinFacts(state[s], made[state_at + s]));
    if (joined == state) return {std::move(state), std::move(made)};
    state = std::move(joined);
  }
  state.assign(state.size(), OnnxFact());
  std::vector<OnnxFact> made = run();
  if (made.size() < state_at + state.size()) return {std::move(state), {}};
  for (size_t s = 0; s < state.size(); ++s) state[s] = JoinFacts(first[s], made[state_at + s]);
  return {std::move(state), std::move(made)};
}

// `part` of each run, `times` of them along a new axis.
OnnxFact StackedFact(InferCall& c, const OnnxFact& part, int64_t axis, const KnownDim& times) {
  OnnxFact stacked{part.type, part.shape, std::nullopt};
  if (!part.shape) return stacked;
  const std::optional<int64_t> at = c.Axis(axis, *part.Rank() + 1);
  if (at) stacked.shape->insert(stacked.shape->begin() + *at, times);
  return stacked;
}

void LoopRule(InferCall& c) {
  const int carried = std::max(c.inputs() - 2, 0);
  const OnnxFact count{ElementType::kInt64, std::nullopt, std::nullopt};
  const OnnxFact goes_on{ElementType::kBool, std::nullopt, KnownDims{Dim(1)}};  // else it would not run
  std::vector<OnnxFact> state;
  for (int i = 0; i < carried; ++i) state.push_back(c.In(i + 2));
  const Steady steady = RunUntilSteady(c, {count, goes_on}, std::move(state), {}, 1);
  if (!c.ok() || steady.made.empty()) return;
  const bool whole = (!c.Has(1) || IsNumber(c.Scalar(1), 1)) && steady.made[0].elements &&
                     steady.made[0].elements->size() == 1 && IsNumber((*steady.made[0].elements)[0], 1);
  KnownDim times;
  if (whole && c.Has(0)) times = DimMax(c.Scalar(0), Dim(0));
  for (int i = 0; i < c.outputs(); ++i) {
    const auto at = static_cast<size_t>(i);
    if (i < carried) {
      c.Out(i) = steady.state[at];
    } else if (at + 1 < steady.made.size()) {
      c.Out(i) = StackedFact(c, steady.made[at + 1], 0, times);
    }
  }
}

void ScanRule(InferCall& c) {
  const int64_t scanned = c.Int("num_scan_inputs", 0);
  const int64_t states = c.inputs() - scanned;
  if (scanned <= 0 || states < 0) return c.Fail("num_scan_inputs is not within the inputs");
  if (c.opset() < 9) {  // with a batch axis of its own: the body alone is looked into
    c.Body("body", {});
    return;
  }
  std::vector<OnnxFact> state, slices;
  for (int i = 0; i < states; ++i) state.push_back(c.In(i));
  const std::vector<int64_t> in_axes = c.Ints("scan_input_axes").value_or(std::vector<int64_t>()),
                             out_axes = c.Ints("scan_output_axes").value_or(std::vector<int64_t>());
  KnownDim length;
  for (int64_t s = 0; s < scanned; ++s) {
    const OnnxFact& whole = c.In(static_cast<int>(states + s));
    OnnxFact slice{whole.type, whole.shape, std::nullopt};
    if (whole.shape) {
      const std::optional<int64_t> axis =
          c.Axis(s < static_cast<int64_t>(in_axes.size()) ? in_axes[s] : 0, *whole.Rank());
      if (!axis) return;
      c.Meet(length, whole.Extent(*axis), "its inputs differ in length");
      slice.shape->erase(slice.shape->begin() + *axis);
    }
    slices.push_back(std::move(slice));
  }
  const Steady steady = RunUntilSteady(c, {}, std::move(state), slices, 0);
  if (!c.ok()) return;
  for (int i = 0; i < c.outputs(); ++i) {
    const auto at = static_cast<size_t>(i);
    if (i < states) {
      c.Out(i) = steady.state[at];
    } else if (at < steady.made.size()) {
      const size_t s = at - static_cast<size_t>(states);
      c.Out(i) = StackedFact(c, steady.made[at], s < out_axes.size() ? out_axes[s] : 0, length);
    }
  }
}

// Of sequences and optionals nothing is known, but a body's own values are.
void SequenceMapRule(InferCall& c) { c.Body("body", {}); }

void CountRule(InferCall& c) {
  c.Out(0).type = ElementType::kInt64;
  c.Out(0).shape = KnownDims();
}
void HasElementRule(InferCall& c) {
  c.Out(0).type = ElementType::kBool;
  c.Out(0).shape = KnownDims();
}
// A tensor in place of an optional comes out as it is.
void GetElementRule(InferCall& c) { c.Out(0) = c.In(0); }
// Where one tensor is set into another axis of a sequence's tensors nothing is known of them.
void NothingRule(InferCall&) {}

constexpr InferRow kRows[] = {
    {"Identity", IdentityRule},
    {"If", IfRule},
    {"Loop", LoopRule, "", -1},
    {"Scan", ScanRule, "", -1},
    {"SequenceMap", SequenceMapRule},
    {"SequenceLength", CountRule},
    {"OptionalHasElement", HasElementRule},
    {"OptionalGetElement", GetElementRule},
    {"SequenceConstruct", NothingRule},
    {"SequenceEmpty", NothingRule},
    {"SequenceAt", NothingRule},
    {"SequenceInsert", NothingRule},
    {"SequenceErase", NothingRule},
    {"ConcatFromSequence", NothingRule},
    {"SplitToSequence", NothingRule},
    {"Optional", NothingRule, "", -1},
};

}  // namespace

absl::Span<const InferRow> ControlRules() { return kRows; }

}  // namespace twinforge
