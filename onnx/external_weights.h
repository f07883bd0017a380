// The initializers of an ONNX model whose bytes lie in files beside it, read by ranges as a checkpoint's
// tensors are.
#ifndef TWINFORGE_ONNX_EXTERNAL_WEIGHTS_H_
#define TWINFORGE_ONNX_EXTERNAL_WEIGHTS_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/file.h"
#include "weights/read.h"

namespace twinforge {

class OnnxExternalWeights : public TensorReader {
 public:
  // The model at `path`, read and checked (read.h); none of its weights' bytes are.
  static absl::StatusOr<std::shared_ptr<const OnnxExternalWeights>> Open(const std::string& path);

  struct Tensor {
    std::string name;
    WeightPtr source;  // a kSource of its name
    std::string file;  // as the model names it
    int64_t offset = 0;
  };
  const std::vector<Tensor>& tensors() const { return tensors_; }  // in the model's order

  absl::Status ReadElements(const Weight& source, int64_t first, int64_t count,
                            std::byte* out) const override;
  absl::Status CheckUnchanged() const override;
  std::vector<std::string> Files() const override;

 private:
  OnnxExternalWeights() = default;
  std::vector<Tensor> tensors_;
  std::map<std::string, size_t> by_name_;
  std::map<std::string, std::unique_ptr<ReadableFile>> files_;
};

}  // namespace twinforge

#endif  // TWINFORGE_ONNX_EXTERNAL_WEIGHTS_H_
