// Two tensors that should be equal, read side by side in bounded memory.
#ifndef TWINFORGE_EXPORTERS_COMPARE_H_
#define TWINFORGE_EXPORTERS_COMPARE_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "exporters/exporter.h"
#include "weights/read.h"

namespace twinforge {

struct Comparison {
  std::string name;
  WeightPtr expected;  // read through one reader
  WeightPtr stored;    // kSource, through the other; same dtype and shape
};

struct CompareRequest {
  const std::vector<Comparison>& pairs;
  const TensorReader& expected_reader;
  const TensorReader& stored_reader;
  const ExportOptions& options;  // memory, threads, tile size
};

// Per pair "", or the first element that differs: "element [3, 0]: 0.5 is stored, 0.25 expected".
// Bits are compared, so NaN equals the same NaN and 0 differs from -0.
absl::StatusOr<std::vector<std::string>> Compare(const CompareRequest& request,
                                                 const std::function<void(int64_t bytes)>& advance);

}  // namespace twinforge

#endif  // TWINFORGE_EXPORTERS_COMPARE_H_
