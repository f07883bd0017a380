// A graph as an ONNX model: one graph for every batch and length, weights as they are stored.
//
//   input_ids [batch, sequence_length], attention_mask [batch, past_sequence_length + sequence_length],
//   position_ids [batch, sequence_length], past_key_values.0.key [batch, kv_heads, past_sequence_length,
//   width], ...
//   -> logits, present.0.key, ...
//
// Weights are initializers whose bytes lie in a file of their own, each at a multiple of 4,096, as the twin's
// native layout has them (ir/layout.h). Same graph, same options, same bytes.
#ifndef TWINFORGE_REFERENCE_ONNX_WRITE_ONNX_H_
#define TWINFORGE_REFERENCE_ONNX_WRITE_ONNX_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ir/graph.h"
#include "ir/layout.h"

namespace twinforge {

inline constexpr int kOldestOnnxOpset = 17;
inline constexpr int kNewestOnnxOpset = 27;
// onnx 1.16 of March 2024 has it, onnxruntime reads it since 1.18; the operators of 23 that mean a whole
// block are younger than many runtimes.
inline constexpr int kUsualOnnxOpset = 21;
inline constexpr int64_t kOnnxAlignment = 4096;
inline constexpr char kOnnxModelName[] = "model.onnx";
inline constexpr char kOnnxDataName[] = "model.onnx.data";

struct OnnxWriteOptions {
  int opset = kUsualOnnxOpset;
  // Computes in f32, bf16, f16 or f64; unset: as the weights are stored, but f32 for bf16, for which runtimes
  // on a CPU have no products.
  std::optional<DType> dtype;
  std::vector<std::pair<std::string, std::string>> metadata;  // after what the writer says itself
};

struct OnnxStoredWeight {
  TwinTensor tensor;
  int64_t offset = 0;  // in the file of weights
  int64_t bytes = 0;
};

// Where the weights of `graph` lie.
std::vector<OnnxStoredWeight> PlacedInOnnx(const Graph& graph);

struct WrittenOnnx {
  std::string model;                      // the bytes of model.onnx
  std::vector<OnnxStoredWeight> weights;  // what model.onnx.data holds, ascending by offset
  std::string computed_in;                // "f32"
};

// TF1622 where the graph holds what cannot be said: a recurrence, a convolution, an imported op, a weight of
// a type that the operator set does not know.
absl::StatusOr<WrittenOnnx> WriteOnnx(const Graph& graph, const OnnxWriteOptions& options);

}  // namespace twinforge

#endif  // TWINFORGE_REFERENCE_ONNX_WRITE_ONNX_H_
