// One node while it runs: what a kernel sees of its inputs and attributes, and where it puts its outputs.
//
//   void Relu(OpCall& c) {
//     ONNX_EXPECT(c, c.In(0).carrier() != ElementCarrier::kUint64, "takes no UINT64");
//     ...
//     c.Out(0, result);
//   }
//
// Failures stick: the first one is kept, later calls return something harmless, and the runner reports it
// with the node's name. A kernel is called only with its required inputs present and, unless its row says
// that it takes any value, with tensors in all places.
#ifndef TWINFORGE_ONNX_OP_CALL_H_
#define TWINFORGE_ONNX_OP_CALL_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "onnx/model.h"
#include "onnx/value.h"

namespace twinforge {

class OnnxRunner;
struct OnnxFrame;

class OpCall {
 public:
  OpCall(const OnnxNode& node, std::vector<OnnxValue> inputs, OnnxFrame& frame, OnnxRunner& runner);

  const OnnxNode& node() const { return node_; }
  absl::string_view op() const;
  int64_t opset() const { return node_.opset; }  // the imported version of the operator's domain

  // ---- inputs and outputs
  int inputs() const { return static_cast<int>(inputs_.size()); }
  bool Has(int i) const { return i < inputs() && !inputs_[i].is_nothing(); }
  const OnnxValue& Value(int i) const { return inputs_[i]; }
  const OnnxTensor& In(int i) const { return inputs_[i].tensor(); }  // REQUIRES: Has(i), a tensor
  int outputs() const { return static_cast<int>(node_.outputs.size()); }
  bool Wants(int i) const { return i < outputs() && node_.outputs[i] >= 0; }
  void Out(int i, OnnxValue value);
  std::vector<OnnxValue>& results() { return results_; }

  // Elements of input i; a failure and nothing where they are of another kind.
  std::vector<double> Doubles(int i);  // floating types, integers, bool
  std::vector<int64_t> Ints(int i);    // integers and bool
  int64_t IntScalar(int i, int64_t absent);
  double DoubleScalar(int i, double absent);

  // ---- attributes; the second argument is what an absent one means
  bool HasAttr(absl::string_view name) const;
  int64_t Int(absl::string_view name, int64_t absent);
  double Float(absl::string_view name, double absent);
  std::string Str(absl::string_view name, absl::string_view absent);
  std::vector<int64_t> IntsAttr(absl::string_view name, std::vector<int64_t> absent = {});
  std::vector<double> FloatsAttr(absl::string_view name, std::vector<double> absent = {});
  std::vector<std::string> StrsAttr(absl::string_view name);
  std::optional<OnnxTensor> TensorAttr(absl::string_view name);  // dense, or sparse written out
  // Of an axis attribute or input: made non-negative; a failure and 0 outside of [-rank, rank).
  int64_t Axis(int64_t axis, int64_t rank);

  // ---- failures
  bool ok() const { return status_.ok(); }
  const absl::Status& status() const { return status_; }
  void Fail(absl::string_view message);    // inputs or attributes are not valid: TF2008
  void Refuse(absl::string_view message);  // valid, and not known here: TF2007
  void Fail(absl::Status status);
  // Whether a tensor of this shape may be made; a failure where not (TF1902, or TF2008 for a negative
  // extent).
  bool Affordable(const Shape& shape);
  bool Spend(double work);  // so many multiplications; TF1902 beyond the run's bound

  // Runs a subgraph attribute on `inputs`. A failure and nothing where that fails.
  std::vector<OnnxValue> RunBody(absl::string_view attribute, std::vector<OnnxValue> inputs);
  const OnnxGraph* Body(absl::string_view attribute) const;

 private:
  const ::onnx::AttributeProto* Find(absl::string_view name, int type);

  const OnnxNode& node_;
  std::vector<OnnxValue> inputs_;
  std::vector<OnnxValue> results_;
  OnnxFrame& frame_;
  OnnxRunner& runner_;
  absl::Status status_;
};

// Leaves a kernel, and reports the node with `message`, unless `condition` holds and nothing failed before.
#define ONNX_EXPECT(call, condition, message) \
  do {                                        \
    if (!(call).ok()) return;                 \
    if (!(condition)) {                       \
      (call).Fail(message);                   \
      return;                                 \
    }                                         \
  } while (false)

}  // namespace twinforge

#endif  // TWINFORGE_ONNX_OP_CALL_H_
