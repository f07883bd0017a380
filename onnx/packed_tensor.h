// One dense tensor's elements as a file packs them, wherever the model keeps them.
//
//   TWIN_ASSIGN_OR_RETURN(const PackedTensor w, PackedTensor::Of(*initializer.dense, *model.files, place));
//   w.range()                    {file, offset, length}, or nullopt: the bytes lie in the message
//   w.ReadAt(first, count, out)  `count` bytes from byte `first` on, read when asked for
//
// Bytes are little-endian, row-major; types narrower than a byte are packed from the low bits up. What the
// message holds in typed fields (float_data, int32_data, ...) is repacked once, when Of is called.
#ifndef TWINFORGE_ONNX_PACKED_TENSOR_H_
#define TWINFORGE_ONNX_PACKED_TENSOR_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "onnx/element_type.h"
#include "onnx/external_files.h"
#include "weights/dtype.h"
#include "weights/read.h"
#include "weights/shape.h"
#include "weights/weight.h"

namespace twinforge {

// A stretch of a file that stays open as long as the model.
struct FileRange {
  const ReadableFile* file = nullptr;
  int64_t offset = 0;
  int64_t length = 0;
  std::string location;  // as the model spells it; "" of its own file
};

class PackedTensor {
 public:
  // TF2003 and TF2004 as CheckTensor, and TF2003 of strings, which no bytes are. Good as long as the model.
  static absl::StatusOr<PackedTensor> Of(const ::onnx::TensorProto& tensor, ExternalFiles& files,
                                         const std::string& place);

  ElementType type() const { return type_; }
  const Shape& shape() const { return shape_; }
  int64_t byte_size() const { return byte_size_; }
  const std::optional<FileRange>& range() const { return range_; }
  // REQUIRES: first + count <= byte_size().
  absl::Status ReadAt(int64_t first, int64_t count, std::byte* out) const;

 private:
  ElementType type_ = ElementType::kFloat;
  Shape shape_;
  int64_t byte_size_ = 0;
  std::optional<FileRange> range_;
  std::shared_ptr<const std::string> held_;  // where there is no range
};

// The type that weight programs have for `type`; nullopt for strings, complex128 and integers below a byte.
std::optional<DType> WeightTypeOf(ElementType type);
// And back; nullopt for the 6-bit types and those that the format does not know.
std::optional<ElementType> ElementTypeOf(DType dtype);

// Initializers as the stored tensors of weight programs.
class OnnxTensorReader : public TensorReader {
 public:
  // The program that is `tensor` as it is stored, under `name`. TF2003 where weights have no such type.
  absl::StatusOr<WeightPtr> Add(const std::string& name, PackedTensor tensor, const std::string& place);

  absl::Status ReadElements(const Weight& source, int64_t first, int64_t count,
                            std::byte* out) const override;
  absl::Status CheckUnchanged() const override;
  std::vector<std::string> Files() const override;

 private:
  std::map<std::string, PackedTensor> tensors_;
};

}  // namespace twinforge

#endif  // TWINFORGE_ONNX_PACKED_TENSOR_H_
