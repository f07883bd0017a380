#include <algorithm>

#include "cost/compiled.h"
#include "cost/compiled.pb.h"
#include "cost/compiled_rows.h"

namespace twinforge {
namespace {

const KernelFile* FindKernel(absl::string_view name) {
  for (const KernelFile& kernel : Facts().kernel()) {
    if (kernel.name() == name) return &kernel;
  }
  return nullptr;
}

}  // namespace

KernelAnswer KernelAccepts(absl::string_view kernel, int64_t head_dim) {
  const KernelFile* facts = FindKernel(kernel);
  if (facts == nullptr || head_dim <= 0) return KernelAnswer::kUnknown;
  if (facts->any_shape()) return KernelAnswer::kAccepts;
  const auto in = [&](const auto& list) {
    return std::find(list.begin(), list.end(), head_dim) != list.end();
  };
  if (in(facts->accepts())) return KernelAnswer::kAccepts;
  return in(facts->refuses()) ? KernelAnswer::kRefuses : KernelAnswer::kUnknown;
}

int64_t KernelHeadDim(absl::string_view kernel, int64_t head_dim) {
  const KernelFile* facts = FindKernel(kernel);
  if (facts == nullptr || head_dim <= 0) return 0;
  if (facts->any_shape()) return head_dim;
  int64_t best = 0;
  for (const int64_t accepted : facts->accepts()) {
    if (accepted >= head_dim && (best == 0 || accepted < best)) best = accepted;
  }
  return best;
}

}  // namespace twinforge
