// Subgraphs (If, Loop, Scan, SequenceMap) and values that are no tensors: sequences, optionals.
#include "absl/strings/str_cat.h"
#include "onnx/kernels/kernel.h"
#include "onnx/kernels/places.h"
#include "onnx/tensor.h"

namespace twinforge {
namespace {

// What holding a value, or copying one of a sequence, counts for: loops may go on for long.
constexpr double kWorkOfHolding = 1e5, kWorkOfCopying = 1e3;

void Identity(OpCall& c) { c.Out(0, c.Value(0)); }

void If(OpCall& c) {
  ONNX_EXPECT(c, c.Value(0).is_tensor() && c.In(0).type() == ElementType::kBool, "the condition is not bool");
  const int64_t condition = c.IntScalar(0, 0);
  std::vector<OnnxValue> outputs = c.RunBody(condition != 0 ? "then_branch" : "else_branch", {});
  ONNX_EXPECT(c, static_cast<int>(outputs.size()) >= c.outputs(), "a branch has fewer outputs than the node");
  for (int i = 0; i < c.outputs(); ++i) c.Out(i, std::move(outputs[i]));
}

// [x0, x1, ...] of one type and shape as one tensor with a new axis.
OnnxTensor Stacked(OpCall& c, const std::vector<OnnxValue>& values, int64_t axis, const char* what) {
  for (const OnnxValue& v : values) {
    if (v.is_tensor() && v.tensor().type() == values[0].tensor().type() &&
        v.tensor().shape() == values[0].tensor().shape())
      continue;
    c.Fail(absl::StrCat(what, " differ in type or shape from one run of the body to the next"));
    return {};
  }
  std::vector<OnnxTensor> parts;
  for (const OnnxValue& v : values) parts.push_back(v.tensor());
  Shape shape = parts[0].shape();
  const int64_t at = c.Axis(axis, parts[0].rank() + 1);
  shape.insert(shape.begin() + at, static_cast<int64_t>(parts.size()));
  if (!c.Affordable(shape)) return {};
  const AxisView view = ViewAt(shape, at);
  std::vector<int32_t> which;
  std::vector<int64_t> from;
  for (int64_t o = 0; o < view.outer; ++o) {
    for (size_t i = 0; i < parts.size(); ++i) {
      for (int64_t n = 0; n < view.inner; ++n) {
        which.push_back(static_cast<int32_t>(i));
        from.push_back(o * view.inner + n);
      }
    }
  }
  return TakeElements(parts, shape, which, from);
}

// Of an output that no run made: the body's declared type, no elements.
OnnxTensor NothingStacked(const OpCall& c, size_t output);

void Loop(OpCall& c) {
  const bool counted = c.Has(0);
  const int64_t trips = counted ? c.IntScalar(0, 0) : INT64_MAX;
  bool go_on = !c.Has(1) || c.IntScalar(1, 1) != 0;
  const int carried = std::max(c.inputs() - 2, 0);
  std::vector<OnnxValue> state;
  for (int i = 0; i < carried; ++i) state.push_back(c.Value(i + 2));
  const OnnxGraph* body = c.Body("body");
  ONNX_EXPECT(c, body != nullptr && static_cast<int>(body->outputs.size()) >= carried + 1,
              "the body has too few outputs");
  const size_t scans = body->outputs.size() - 1 - static_cast<size_t>(carried);
  std::vector<std::vector<OnnxValue>> collected(scans);
  for (int64_t i = 0; i < trips && go_on; ++i) {
    std::vector<OnnxValue> inputs = {TensorOf<int64_t>(ElementType::kInt64, {}, absl::MakeConstSpan(&i, 1)),
                                     BoolScalar(true)};
    inputs.insert(inputs.end(), state.begin(), state.end());
    inputs.resize(std::min(inputs.size(), body->inputs.size()));
    std::vector<OnnxValue> outputs = c.RunBody("body", std::move(inputs));
    ONNX_EXPECT(c,
                outputs[0].is_tensor() && outputs[0].tensor().count() == 1 &&
                    outputs[0].tensor().type() == ElementType::kBool,
                "the body's condition is no bool");
    ONNX_EXPECT(c, c.Spend(kWorkOfHolding * static_cast<double>(scans)), "");
    go_on = Elements<int64_t>(outputs[0].tensor())[0] != 0;
    for (int s = 0; s < carried; ++s) state[s] = std::move(outputs[s + 1]);
    for (size_t s = 0; s < scans; ++s)
      collected[s].push_back(std::move(outputs[s + 1 + static_cast<size_t>(carried)]));
  }
  for (int s = 0; s < carried; ++s) c.Out(s, std::move(state[s]));
  for (size_t s = 0; s < scans; ++s) {
    const int output = carried + static_cast<int>(s);
    if (!c.Wants(output)) continue;
    c.Out(output, collected[s].empty() ? NothingStacked(c, s + 1 + static_cast<size_t>(carried))
                                       : Stacked(c, collected[s], 0, "scan outputs"));
  }
}

OnnxTensor SliceAt(const OnnxTensor& x, int64_t axis, int64_t i) {
  Shape shape = x.shape();
  const AxisView view = ViewAt(shape, axis);
  shape.erase(shape.begin() + axis);
  std::vector<int64_t> from;
  for (int64_t o = 0; o < view.outer; ++o) {
    for (int64_t n = 0; n < view.inner; ++n) from.push_back((o * view.size + i) * view.inner + n);
  }
  return TakeElements(x, shape, from);
}

struct ScanSpec {
  std::vector<int64_t> input_axes, input_directions, output_axes, output_directions;
};

// States and scanned inputs to final states and stacked outputs.
std::vector<OnnxValue> ScanOnce(OpCall& c, std::vector<OnnxValue> state,
                                const std::vector<OnnxTensor>& scanned, const ScanSpec& spec) {
  const OnnxGraph* body = c.Body("body");
  const size_t states = state.size();
  if (body == nullptr || body->outputs.size() < states || body->inputs.size() != states + scanned.size()) {
    c.Fail("the body does not fit the node");
    return {};
  }
  const size_t outputs = body->outputs.size() - states;
  std::vector<std::vector<OnnxValue>> collected(outputs);
  int64_t length = -1;
  std::vector<int64_t> axes;
  for (size_t s = 0; s < scanned.size(); ++s) {
    axes.push_back(c.Axis(s < spec.input_axes.size() ? spec.input_axes[s] : 0, scanned[s].rank()));
    if (!c.ok()) return {};
    if (length < 0) length = scanned[s].dim(axes[s]);
    if (scanned[s].dim(axes[s]) != length) c.Fail("its inputs differ in length");
  }
  const auto backwards = [](const std::vector<int64_t>& directions, size_t s) {
    return s < directions.size() && directions[s] != 0;
  };
  for (int64_t t = 0; t < length && c.ok(); ++t) {
    std::vector<OnnxValue> inputs = state;
    for (size_t s = 0; s < scanned.size(); ++s) {
      inputs.push_back(
          SliceAt(scanned[s], axes[s], backwards(spec.input_directions, s) ? length - 1 - t : t));
    }
    std::vector<OnnxValue> made = c.RunBody("body", std::move(inputs));
    if (!c.ok()) return {};
    for (size_t s = 0; s < states; ++s) state[s] = std::move(made[s]);
    for (size_t s = 0; s < outputs; ++s) collected[s].push_back(std::move(made[states + s]));
  }
  for (size_t s = 0; s < outputs && c.ok(); ++s) {
    if (backwards(spec.output_directions, s)) std::reverse(collected[s].begin(), collected[s].end());
    const int64_t axis = s < spec.output_axes.size() ? spec.output_axes[s] : 0;
    state.push_back(collected[s].empty() ? NothingStacked(c, states + s)
                                         : Stacked(c, collected[s], axis, "scan outputs"));
  }
  return state;
}

// In operator set 8 all inputs had a batch axis, and lengths came first.
void ScanWithBatch(OpCall& c, int64_t scanned) {
  ONNX_EXPECT(c, !c.Has(0), "lengths of sequences have no meaning here");
  const int states = c.inputs() - 1 - static_cast<int>(scanned);
  ONNX_EXPECT(c, states >= 0 && c.In(c.inputs() - 1).rank() > 0, "has too few inputs");
  const int64_t batch = c.In(c.inputs() - 1).dim(0);
  ScanSpec spec;
  spec.input_directions = c.IntsAttr("directions");
  std::vector<std::vector<OnnxValue>> all(static_cast<size_t>(c.outputs()));
  for (int64_t b = 0; b < batch; ++b) {
    std::vector<OnnxValue> state;
    std::vector<OnnxTensor> parts;
    for (int i = 1; i < c.inputs(); ++i) {
      ONNX_EXPECT(c, c.Has(i) && c.In(i).rank() > 0 && c.In(i).dim(0) == batch, "an input has another batch");
      if (i <= states) state.push_back(SliceAt(c.In(i), 0, b));
      if (i > states) parts.push_back(SliceAt(c.In(i), 0, b));
    }
    std::vector<OnnxValue> made = ScanOnce(c, std::move(state), parts, spec);
    ONNX_EXPECT(c, made.size() >= all.size(), "the body has fewer outputs than the node");
    for (size_t s = 0; s < all.size(); ++s) all[s].push_back(std::move(made[s]));
  }
  ONNX_EXPECT(c, batch > 0, "has an empty batch");
  for (size_t s = 0; s < all.size(); ++s) c.Out(static_cast<int>(s), Stacked(c, all[s], 0, "outputs"));
}

void Scan(OpCall& c) {
  const int64_t scanned = c.Int("num_scan_inputs", 0);
  ONNX_EXPECT(c, scanned > 0 && scanned <= c.inputs(), "num_scan_inputs is not within the inputs");
  if (c.opset() < 9) return ScanWithBatch(c, scanned);
  const int states = c.inputs() - static_cast<int>(scanned);
  std::vector<OnnxValue> state;
  std::vector<OnnxTensor> parts;
  for (int i = 0; i < c.inputs(); ++i) {
    ONNX_EXPECT(c, c.Has(i) && (i < states || c.Value(i).is_tensor()), "an input is left out");
    if (i < states) state.push_back(c.Value(i));
    if (i >= states) parts.push_back(c.In(i));
  }
  const ScanSpec spec = {c.IntsAttr("scan_input_axes"), c.IntsAttr("scan_input_directions"),
                         c.IntsAttr("scan_output_axes"), c.IntsAttr("scan_output_directions")};
  std::vector<OnnxValue> made = ScanOnce(c, std::move(state), parts, spec);
  ONNX_EXPECT(c, static_cast<int>(made.size()) >= c.outputs(), "the body has fewer outputs than the node");
  for (int i = 0; i < c.outputs(); ++i) c.Out(i, std::move(made[i]));
}

OnnxTensor NothingStacked(const OpCall& c, size_t output) {
  const OnnxGraph& body = *c.Body("body");
  const DeclaredTensor declared = DeclaredOutput(body, output);
  Shape shape = declared.shape;
  shape.insert(shape.begin(), 0);
  if (declared.type == ElementType::kString) return OnnxTensor(shape, std::vector<std::string>());
  return OnnxTensor(declared.type, shape, std::vector<std::byte>());
}

// ---- sequences

bool IsSequence(OpCall& c, int i) {
  if (!c.Has(i) || !c.Value(i).is_sequence()) c.Fail(absl::StrCat("input ", i, " is no sequence"));
  return c.ok();
}

// A position from input i; `past_end`: whether the place after the last is one.
int64_t Position(OpCall& c, int i, int64_t count, bool past_end, int64_t absent) {
  if (!c.Has(i)) return absent;
  const int64_t at = c.Value(i).is_tensor() ? c.IntScalar(i, 0) : 0;
  const int64_t normal = at < 0 ? at + count : at;
  if (normal < 0 || normal >= count + (past_end ? 1 : 0))
    c.Fail(absl::StrCat("position ", at, " of ", count));
  return c.ok() ? normal : 0;
}

void SequenceConstruct(OpCall& c) {
  std::vector<OnnxValue> items;
  for (int i = 0; i < c.inputs(); ++i) items.push_back(c.Value(i));
  c.Out(0, OnnxValue::Sequence(std::move(items)));
}
void SequenceEmpty(OpCall& c) { c.Out(0, OnnxValue::Sequence({})); }

void SequenceAt(OpCall& c) {
  if (!IsSequence(c, 0)) return;
  const int64_t at = Position(c, 1, static_cast<int64_t>(c.Value(0).items().size()), false, 0);
  ONNX_EXPECT(c, true, "");
  c.Out(0, c.Value(0).items()[at]);
}

void SequenceInsert(OpCall& c) {
  if (!IsSequence(c, 0)) return;
  ONNX_EXPECT(c, c.Spend(kWorkOfCopying * static_cast<double>(c.Value(0).items().size())), "");
  std::vector<OnnxValue> items = c.Value(0).items();
  const int64_t count = static_cast<int64_t>(items.size()), at = Position(c, 2, count, true, count);
  ONNX_EXPECT(c, true, "");
  items.insert(items.begin() + at, c.Value(1));
  c.Out(0, OnnxValue::Sequence(std::move(items)));
}

void SequenceErase(OpCall& c) {
  if (!IsSequence(c, 0)) return;
  std::vector<OnnxValue> items = c.Value(0).items();
  ONNX_EXPECT(c, !items.empty(), "the sequence is empty");
  const int64_t count = static_cast<int64_t>(items.size()), at = Position(c, 1, count, false, count - 1);
  ONNX_EXPECT(c, true, "");
  items.erase(items.begin() + at);
  c.Out(0, OnnxValue::Sequence(std::move(items)));
}

void SequenceLength(OpCall& c) {
  if (!IsSequence(c, 0)) return;
  const int64_t count = static_cast<int64_t>(c.Value(0).items().size());
  c.Out(0, TensorOf<int64_t>(ElementType::kInt64, {}, absl::MakeConstSpan(&count, 1)));
}

void ConcatFromSequence(OpCall& c) {
  if (!IsSequence(c, 0)) return;
  const std::vector<OnnxValue>& items = c.Value(0).items();
  ONNX_EXPECT(c, !items.empty() && items[0].is_tensor(), "the sequence is empty");
  const bool new_axis = c.Int("new_axis", 0) != 0;
  if (new_axis) return c.Out(0, Stacked(c, items, c.Int("axis", 0), "the sequence's tensors"));
  const OnnxTensor& first = items[0].tensor();
  const int64_t axis = c.Axis(c.Int("axis", 0), first.rank());
  ONNX_EXPECT(c, true, "");
  std::vector<OnnxTensor> parts;
  for (const OnnxValue& item : items) {
    ONNX_EXPECT(c, item.is_tensor(), "its items are no tensors");
    parts.push_back(item.tensor());
  }
  OnnxTensor joined = Joined(c, parts, axis);
  if (c.ok()) c.Out(0, std::move(joined));
}

// The body once for each item of the first sequence; other sequences go along, tensors stay.
void SequenceMap(OpCall& c) {
  if (!IsSequence(c, 0)) return;
  const size_t count = c.Value(0).items().size();
  std::vector<std::vector<OnnxValue>> collected(static_cast<size_t>(c.outputs()));
  for (size_t t = 0; t < count; ++t) {
    std::vector<OnnxValue> inputs;
    for (int i = 0; i < c.inputs(); ++i) {
      const OnnxValue& v = c.Value(i);
      ONNX_EXPECT(c, !v.is_sequence() || v.items().size() == count, "its sequences differ in length");
      inputs.push_back(v.is_sequence() ? v.items()[t] : v);
    }
    std::vector<OnnxValue> made = c.RunBody("body", std::move(inputs));
    ONNX_EXPECT(c, made.size() >= collected.size(), "the body has fewer outputs than the node");
    for (size_t s = 0; s < collected.size(); ++s) collected[s].push_back(std::move(made[s]));
  }
  for (size_t s = 0; s < collected.size(); ++s)
    c.Out(static_cast<int>(s), OnnxValue::Sequence(std::move(collected[s])));
}

// ---- optionals

void Optional(OpCall& c) {
  c.Out(0, c.Has(0) ? OnnxValue::Optional(c.Value(0)) : OnnxValue::EmptyOptional());
}

void OptionalHasElement(OpCall& c) {
  const bool empty =
      !c.Has(0) || (c.Value(0).kind() == OnnxValue::Kind::kOptional && c.Value(0).items().empty());
  c.Out(0, BoolScalar(!empty));
}

void OptionalGetElement(OpCall& c) {
  if (c.Value(0).kind() != OnnxValue::Kind::kOptional) return c.Out(0, c.Value(0));
  ONNX_EXPECT(c, !c.Value(0).items().empty(), "the optional is empty");
  c.Out(0, c.Value(0).items()[0]);
}

constexpr KernelRow kRows[] = {
    {"Identity", Identity, true},
    {"If", If, true},
    {"Loop", Loop, true},
    {"Scan", Scan, true},
    {"SequenceConstruct", SequenceConstruct, true},
    {"SequenceEmpty", SequenceEmpty, true},
    {"SequenceAt", SequenceAt, true},
    {"SequenceInsert", SequenceInsert, true},
    {"SequenceErase", SequenceErase, true},
    {"SequenceLength", SequenceLength, true},
    {"ConcatFromSequence", ConcatFromSequence, true},
    {"SequenceMap", SequenceMap, true},
    {"Optional", Optional, true},
    {"OptionalHasElement", OptionalHasElement, true},
    {"OptionalGetElement", OptionalGetElement, true},
};

}  // namespace

absl::Span<const KernelRow> ControlKernels() { return kRows; }

}  // namespace twinforge
