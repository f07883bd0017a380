// The initializers of an ONNX model whose bytes lie in files beside it, as a checkpoint's tensors are.
#ifndef TWINFORGE_ONNX_EXTERNAL_WEIGHTS_H_
#define TWINFORGE_ONNX_EXTERNAL_WEIGHTS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "onnx/model.h"
#include "onnx/packed_tensor.h"

namespace twinforge {

class OnnxExternalWeights : public OnnxTensorReader {
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

 private:
  OnnxExternalWeights() = default;
  std::unique_ptr<const OnnxModel> model_;  // holds the files open
  std::vector<Tensor> tensors_;
};

}  // namespace twinforge

#endif  // TWINFORGE_ONNX_EXTERNAL_WEIGHTS_H_
