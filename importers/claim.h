// Compares what a checkpoint stores with what a layout calls for: each tensor claimed once, of the right
// shape and dtype, none missing, none left over but those the family says to ignore.
#ifndef TWINFORGE_IMPORTERS_CLAIM_H_
#define TWINFORGE_IMPORTERS_CLAIM_H_

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "importers/checkpoint.h"
#include "importers/compile_layout.h"
#include "ir/model.h"

namespace twinforge {

// The layout of which fewest tensors are missing; the first of several.
size_t ChooseLayout(const std::vector<CompiledLayout>& layouts, const Checkpoint& checkpoint);

struct Claim {
  StoredTensors stored;               // sources of the layout's tensors
  std::vector<SourceTensor> sources;  // of all tensors, ascending by name
  DType dtype = DType::kBF16;         // that most claimed bytes have
};

// `tied` are roles that the config ties: their tensors may be absent, or be copies of their partner's
// (TF1413). Sets the dtypes of `types` to what is stored.
absl::StatusOr<Claim> ClaimTensors(const Layout& layout, const Checkpoint& checkpoint,
                                   const std::set<std::string>& tied,
                                   std::map<std::string, ParamType>& types);

}  // namespace twinforge

#endif  // TWINFORGE_IMPORTERS_CLAIM_H_
