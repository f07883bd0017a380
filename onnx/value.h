// What a name stands for while a model runs: a tensor, a sequence, an optional, or nothing yet.
#ifndef TWINFORGE_ONNX_VALUE_H_
#define TWINFORGE_ONNX_VALUE_H_

#include <memory>
#include <utility>
#include <vector>

#include "onnx/tensor.h"

namespace twinforge {

class OnnxValue {
 public:
  enum class Kind : uint8_t { kNothing, kTensor, kSequence, kOptional };

  OnnxValue() = default;
  OnnxValue(OnnxTensor tensor)
      : kind_(Kind::kTensor), tensor_(std::move(tensor)) {}  // NOLINT: a tensor is one

  static OnnxValue Sequence(std::vector<OnnxValue> items) { return {Kind::kSequence, std::move(items)}; }
  static OnnxValue EmptyOptional() { return {Kind::kOptional, {}}; }
  static OnnxValue Optional(OnnxValue item) {
    std::vector<OnnxValue> items;
    items.push_back(std::move(item));
    return {Kind::kOptional, std::move(items)};
  }

  Kind kind() const { return kind_; }
  bool is_tensor() const { return kind_ == Kind::kTensor; }
  bool is_sequence() const { return kind_ == Kind::kSequence; }
  bool is_nothing() const { return kind_ == Kind::kNothing; }
  const OnnxTensor& tensor() const { return tensor_; }             // REQUIRES: is_tensor()
  const std::vector<OnnxValue>& items() const { return *items_; }  // REQUIRES: a sequence or an optional

 private:
  OnnxValue(Kind kind, std::vector<OnnxValue> items)
      : kind_(kind), items_(std::make_shared<const std::vector<OnnxValue>>(std::move(items))) {}

  Kind kind_ = Kind::kNothing;
  OnnxTensor tensor_;
  std::shared_ptr<const std::vector<OnnxValue>> items_;
};

}  // namespace twinforge

#endif  // TWINFORGE_ONNX_VALUE_H_
