#include "onnx/external_weights.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/json_reader.h"
#include "base/status_macros.h"
#include "onnx/onnx-ml.pb.h"
#include "onnx/read.h"

namespace twinforge {

absl::StatusOr<std::shared_ptr<const OnnxExternalWeights>> OnnxExternalWeights::Open(
    const std::string& path) {
  std::shared_ptr<OnnxExternalWeights> weights(new OnnxExternalWeights());
  TWIN_ASSIGN_OR_RETURN(weights->model_, ReadOnnxModel(path));
  const OnnxModel& model = *weights->model_;
  for (const OnnxInitializer& initializer : model.graph.initializers) {
    const ::onnx::TensorProto* proto = initializer.dense;
    if (proto == nullptr || proto->data_location() != ::onnx::TensorProto::EXTERNAL) continue;
    const std::string place = absl::StrCat(path, ": ", JsonQuoted(proto->name(), 200));
    TWIN_ASSIGN_OR_RETURN(const PackedTensor tensor, PackedTensor::Of(*proto, *model.files, place));
    TWIN_CHECK(tensor.range().has_value(), "external data lies in a file");
    const FileRange& range = *tensor.range();
    TWIN_ASSIGN_OR_RETURN(WeightPtr source, weights->Add(proto->name(), tensor, place));
    weights->tensors_.push_back({proto->name(), std::move(source), range.location, range.offset});
  }
  return std::shared_ptr<const OnnxExternalWeights>(std::move(weights));
}

}  // namespace twinforge
