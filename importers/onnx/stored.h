// The initializers and constants of an ONNX model as stored tensors: read in ranges, never copied whole.
#ifndef TWINFORGE_IMPORTERS_ONNX_STORED_H_
#define TWINFORGE_IMPORTERS_ONNX_STORED_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "base/file.h"
#include "ir/model.h"
#include "onnx/model.h"
#include "onnx/packed_tensor.h"
#include "onnx/tensor.h"

namespace twinforge {

// The type of the house that holds these elements as they are: the floating ones of 16 bits and more.
std::optional<DType> StoredType(ElementType type);

class OnnxStored : public OnnxTensorReader {
 public:
  // `model` lives as long as this; its own file is watched for changes.
  static absl::StatusOr<std::shared_ptr<OnnxStored>> Make(std::shared_ptr<const OnnxModel> model);

  // The tensor that stands for this slot of the main graph; null where it is none, or of another type.
  WeightPtr Find(int32_t slot) const;
  // All of them, ascending by name, with the file that holds each.
  std::vector<SourceTensor> Sources() const;
  std::vector<SourceFile> SourceFiles() const;
  // Whether the name is an initializer's, and not a constant node's.
  bool IsInitializer(const std::string& name) const { return rows_.at(name).initializer; }

  absl::Status CheckUnchanged() const override;
  std::vector<std::string> Files() const override;

 private:
  struct Row {
    std::string file;  // that holds it, as the model spells it
    WeightPtr source;
    bool initializer = false;
  };
  absl::Status Add(int32_t slot, const ::onnx::TensorProto& proto, bool initializer);

  std::shared_ptr<const OnnxModel> model_;
  std::unique_ptr<ReadableFile> file_;
  absl::flat_hash_map<int32_t, std::string> names_;
  std::map<std::string, Row> rows_;
};

// All elements of `program`, as a tensor of its type.
absl::StatusOr<OnnxTensor> ElementsOf(const WeightPtr& program, const TensorReader& reader);

}  // namespace twinforge

#endif  // TWINFORGE_IMPORTERS_ONNX_STORED_H_
