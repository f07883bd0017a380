// What a twin's rounding amounts to: each rounded tensor measured against the bound that is claimed, and the
// whole model three ways.
//
//   exact      the source in f64
//   source     the source at the twin's dtype: what the model itself loses there
//   twin       the twin at its dtype: may lose no more than a stated multiple of that
//
// Tensors are measured on the checkpoint's own values, streamed; the three-way comparison is made with made
// values on the model that the algebra computed.
#ifndef TWINFORGE_PROOF_ROUNDING_H_
#define TWINFORGE_PROOF_ROUNDING_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "exporters/manifest.h"
#include "exporters/prove.h"
#include "ir/graph.h"
#include "weights/read.h"

namespace twinforge {

// The twin's error beside the source's own at the same dtype. A step of a recipe rounds a weight once more
// (at most as much as its storage did), and roundings of activations fall otherwise when sums are ordered
// otherwise; both errors are medians over tokens of the same two models. Each further rounding of a weight
// may add the source's own error once more.
inline constexpr double kMultipleOfOwnError = 4;

// One tensor of the twin whose program computes, and therefore rounds.
struct RoundedTensor {
  std::string name;
  double claimed = 0;  // what its roundings may take, as a part of the magnitudes that it is computed from
  double largest = 0;  // what they took
  double mean = 0;
  Verdict verdict =
      Verdict::kProven;  // every element within its own bound (weights/rounding.h, ErrorBoundOf)
  std::string detail;    // of an element that is not; why it can't be told
};

// Every tensor of `tensors` whose program does more than move values, beside the same program in f64, and
// what a selection chose from beside the same.
absl::StatusOr<std::vector<RoundedTensor>> MeasureRounding(const std::vector<ManifestTensor>& tensors,
                                                           const TensorReader& reader);

struct ThreeWay {
  Verdict verdict = Verdict::kIncomplete;
  std::string dtype;        // "bf16": the narrowest that the twin's weights went through
  double source_error = 0;  // median over tokens, as a part of the largest output
  double twin_error = 0;
  double multiple = kMultipleOfOwnError;
  std::string reason;  // why not proven
};
ThreeWay CompareThreeWays(const Graph& source, const Graph& twin, uint64_t seed);

}  // namespace twinforge

#endif  // TWINFORGE_PROOF_ROUNDING_H_
