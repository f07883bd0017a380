// The rules' table, and what a rule sees of its node: facts and attributes in, facts out.
//
//   void FlattenRule(InferCall& c) {
//     c.Out(0).type = c.In(0).type;
//     const std::optional<int64_t> rank = c.In(0).Rank();
//     if (!rank) return;                                    // what is not set stays unknown
//     ...
//     c.Out(0).shape = KnownDims{rows, columns};
//   }
//
// A rule says what holds in every run, or nothing. Fail() is for what no run can take: it becomes a mismatch,
// and the outputs stay unknown. A rule is called only with its required inputs present, though nothing may be
// known of them.
#ifndef TWINFORGE_ONNX_INFER_RULE_H_
#define TWINFORGE_ONNX_INFER_RULE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "onnx/infer/extent.h"
#include "onnx/model.h"

namespace twinforge {

class OnnxInference;
struct InferFrame;

class InferCall {
 public:
  InferCall(const OnnxNode& node, InferFrame& frame, OnnxInference& inference);

  const OnnxNode& node() const { return node_; }
  absl::string_view op() const;
  int64_t opset() const { return node_.opset; }

  // ---- inputs and outputs
  int inputs() const { return static_cast<int>(inputs_.size()); }
  bool Has(int i) const { return i < inputs() && node_.inputs[i] >= 0; }
  const OnnxFact& In(int i) const;  // an empty fact where the input is left out
  int outputs() const { return static_cast<int>(outs_.size()); }
  OnnxFact& Out(int i) { return i < outputs() ? outs_[i] : beyond_; }
  // The first output is this tensor; which tensor input i is, or nullptr.
  void ConstantIs(const ::onnx::TensorProto* tensor) { constant_ = tensor; }
  const ::onnx::TensorProto* ConstantOf(int i) const;
  const ::onnx::TensorProto* constant() const { return constant_; }
  // Numbers of a small initializer or Constant, of any type of numbers.
  std::optional<std::vector<double>> Doubles(int i) const;
  // The only element of input i, where it is known to be one; `absent` where the input is left out.
  KnownDim Scalar(int i, KnownDim absent = std::nullopt) const;
  std::optional<int64_t> ScalarNumber(int i, std::optional<int64_t> absent = std::nullopt) const;
  // Elements of a small integer tensor of known extents, each nullopt where nothing is known.
  std::optional<KnownDims> ElementsOf(int i) const;

  // ---- attributes; the second argument is what an absent one means
  const ::onnx::AttributeProto* Attr(absl::string_view name) const;
  bool HasAttr(absl::string_view name) const { return Attr(name) != nullptr; }
  int64_t Int(absl::string_view name, int64_t absent);
  absl::string_view Str(absl::string_view name, absl::string_view absent);
  std::optional<std::vector<int64_t>> Ints(absl::string_view name);  // nullopt where absent
  std::optional<ElementType> TypeAttr(absl::string_view name, std::optional<ElementType> absent);
  // `axis` made non-negative; a failure and nullopt outside of [-rank, rank).
  std::optional<int64_t> Axis(int64_t axis, int64_t rank);
  std::optional<std::vector<int64_t>> Axes(std::vector<int64_t> axes, int64_t rank);  // each once

  // ---- what several rules say
  void Like(int out, int in) { Out(out).type = In(in).type, Out(out).shape = In(in).shape; }
  bool RankIs(int i, int64_t rank, absl::string_view what);  // false: not known; a failure where another
  void Meet(KnownDim& a, const KnownDim& b, absl::string_view what);  // both are equal in each run

  // The smaller of two sizes: where that is not decided, one symbol for it. A size cut to a number of 2 or
  // more broadcasts to itself only uncut, so Broadcast knows the result.
  KnownDim Min(const KnownDim& a, const KnownDim& b);
  KnownDim Broadcast(const KnownDim& a, const KnownDim& b) const;
  // `asked` elements from `start` on of an axis of `size`, or as many as there are: a symbol of the same
  // kind.
  KnownDim Cut(const KnownDim& asked, const KnownDim& start, const KnownDim& size);

  bool ok() const { return ok_; }
  const std::string& message() const { return message_; }
  void Fail(std::string message);

  // ---- subgraphs: the facts of its outputs; nullopt where there is none
  std::optional<std::vector<OnnxFact>> Body(absl::string_view attribute, std::vector<OnnxFact> inputs);
  const OnnxGraph* BodyGraph(absl::string_view attribute) const;

  OnnxFact FactOf(const ::onnx::TensorProto& tensor) const;

 private:
  const ::onnx::AttributeProto* Typed(absl::string_view name, int type);

  const OnnxNode& node_;
  InferFrame& frame_;
  OnnxInference& inference_;
  absl::InlinedVector<const OnnxFact*, 6> inputs_;
  absl::InlinedVector<OnnxFact, 2> outs_;
  const ::onnx::TensorProto* constant_ = nullptr;
  OnnxFact beyond_;  // where outputs that nobody takes go
  bool ok_ = true;
  std::string message_;
};

using InferRule = void (*)(InferCall& call);

struct InferRow {
  absl::string_view name;
  InferRule rule;
  absl::string_view domain = "";
  int min_inputs = 0;         // of operators that operators.def does not have; -1 where any may be left out
  int64_t first_version = 0;  // filled from operators.def
};

// nullptr where no rule is known.
const InferRow* FindInferRule(absl::string_view domain, absl::string_view name);

// One per file of rules.
absl::Span<const InferRow> ElementwiseRules();
absl::Span<const InferRow> ShapeRules();
absl::Span<const InferRow> PartRules();
absl::Span<const InferRow> ReduceRules();
absl::Span<const InferRow> ProductRules();
absl::Span<const InferRow> AttentionRules();
absl::Span<const InferRow> ImageRules();
absl::Span<const InferRow> SignalRules();
absl::Span<const InferRow> ControlRules();

// Whether values of `type` are kept as elements: integers and bool.
bool HasElements(const std::optional<ElementType>& type);
// The extents of `shape` as a number of at most kFewElements elements.
std::optional<int64_t> FewElements(const std::optional<KnownDims>& shape);
// `a` broadcast to `b`; a failure where they do not.
std::optional<KnownDims> BroadcastKnown(InferCall& c, const std::optional<KnownDims>& a,
                                        const std::optional<KnownDims>& b);
std::string ShapeOfFact(const OnnxFact& fact);  // "[batch, ?]"

}  // namespace twinforge

#endif  // TWINFORGE_ONNX_INFER_RULE_H_
