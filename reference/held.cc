#include "reference/held.h"

#include <numeric>
#include <optional>

#include "base/status_macros.h"
#include "reference/expression.h"
#include "weights/build.h"

namespace twinforge {
namespace {

// For each axis of `whole` the consecutive axes of `split` whose product it is; nullopt where they do not
// nest.
std::optional<std::vector<std::vector<int>>> Factors(const Shape& whole, const Shape& split) {
  std::vector<std::vector<int>> factors(whole.size());
  size_t at = 0;
  for (size_t i = 0; i < whole.size(); ++i) {
    int64_t product = 1;
    while (at < split.size() && (product < whole[i] || (i + 1 == whole.size() && split[at] == 1))) {
      product *= split[at];
      factors[i].push_back(static_cast<int>(at++));
    }
    if (product != whole[i]) return std::nullopt;
  }
  if (at != split.size()) return std::nullopt;
  return factors;
}

// transpose(X), or a reshape of one that splits its axes: X with its axes split, and their order.
void LeaveTranspose(HeldParam& held) {
  const WeightPtr& w = held.program;
  const bool reshaped = w->kind() == WeightKind::kReshape;
  const WeightPtr turned = reshaped ? w->child() : w;
  if (turned->kind() != WeightKind::kTranspose) return;
  const auto factors = Factors(turned->shape(), w->shape());
  if (!factors) return;
  std::vector<int> order;
  Shape shape;
  for (int64_t axis = 0; axis < turned->rank(); ++axis) {
    for (int64_t i = 0; i < turned->rank(); ++i) {
      if (turned->perm()[i] != axis) continue;
      for (const int part : (*factors)[i]) {
        order.push_back(part);
        shape.push_back(w->shape()[part]);
      }
    }
  }
  held.order = std::move(order);
  held.program = Reshape(turned->child(), std::move(shape));
}

}  // namespace

absl::StatusOr<HeldParam> HoldParam(const Param& param, const WeightPtr& program, bool keep_axes,
                                    int64_t layer) {
  HeldParam held{&param, program, std::vector<int>(param.type.axes.size()), "", std::nullopt};
  std::iota(held.order.begin(), held.order.end(), 0);
  if (!keep_axes) LeaveTranspose(held);
  TWIN_ASSIGN_OR_RETURN(held.expression, NumpyExpression(held.program, layer));
  return held;
}

}  // namespace twinforge
