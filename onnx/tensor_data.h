// The bytes of a TensorProto, in all its spellings, as a tensor; and a tensor as a TensorProto.
//
//   raw_data         little-endian; sub-byte types packed from the low bits up: a view where a byte is an
//                    element; read when asked for where it was left in the file (read_message.h)
//   float_data ...   one field per width; FLOAT16 and narrower lie in int32_data as bit patterns, sub-byte
//                    types as one packed byte per int32: a view where widths agree
//   string_data      strings, and nothing else
//   external data    read when asked for (external_files.h)
//   sparse           values at ascending places, linear or by coordinates
//
// CheckTensor allocates nothing and finds all that is wrong with a tensor but the bytes themselves: an
// unknown type, a shape whose size overflows, data of another size, data in two places (TF2003).
#ifndef TWINFORGE_ONNX_TENSOR_DATA_H_
#define TWINFORGE_ONNX_TENSOR_DATA_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "onnx/external_files.h"
#include "onnx/tensor.h"

namespace onnx {
class TensorProto;
class SparseTensorProto;
}  // namespace onnx

namespace twinforge {

// Bytes of `count` elements as files pack them. REQUIRES: no strings; the product does not overflow.
int64_t PackedBytes(ElementType type, int64_t count);

absl::Status CheckTensor(const ::onnx::TensorProto& tensor, ExternalFiles& files, const std::string& place);
absl::Status CheckSparseTensor(const ::onnx::SparseTensorProto& tensor, ExternalFiles& files,
                               const std::string& place);

// The tensor; `owner` keeps `tensor` alive, and views into it are held through it.
absl::StatusOr<OnnxTensor> TensorFromProto(const ::onnx::TensorProto& tensor,
                                           std::shared_ptr<const void> owner, ExternalFiles& files,
                                           const std::string& place);
// Its zeros written out; TF1902 above `most_elements`.
absl::StatusOr<OnnxTensor> DenseFromSparse(const ::onnx::SparseTensorProto& tensor, ExternalFiles& files,
                                           int64_t most_elements, const std::string& place);

// The elements as files pack them, what raw_data would hold. REQUIRES: no strings.
std::string PackedData(const OnnxTensor& tensor);
// As the standard writes tensors: raw_data, or string_data.
void TensorToProto(const OnnxTensor& tensor, ::onnx::TensorProto& out);

}  // namespace twinforge

#endif  // TWINFORGE_ONNX_TENSOR_DATA_H_
