// What the standard says of an operator's name: its versions, how many inputs and outputs it takes.
#ifndef TWINFORGE_ONNX_OPERATORS_H_
#define TWINFORGE_ONNX_OPERATORS_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace twinforge {

inline constexpr int64_t kNewestOperatorSet = 28;  // of the default domain
inline constexpr int64_t kNewestIrVersion = 14;

struct OperatorInfo {
  absl::string_view domain, name;
  absl::string_view versions;  // "1 6 13": where its meaning or types changed, ascending
  int min_inputs, max_inputs;  // -1: any number
  int min_outputs, max_outputs;
};

// nullptr where the standard does not know the operator. The default domain is "".
const OperatorInfo* FindOperator(absl::string_view domain, absl::string_view name);

// The version whose text holds under the imported operator set `imported`; 0 where there was none yet.
int64_t SinceVersion(const OperatorInfo& info, int64_t imported);

}  // namespace twinforge

#endif  // TWINFORGE_ONNX_OPERATORS_H_
