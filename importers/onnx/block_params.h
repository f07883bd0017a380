// Axes and parts of weights, as blocks say their parameters.
#ifndef TWINFORGE_IMPORTERS_ONNX_BLOCK_PARAMS_H_
#define TWINFORGE_IMPORTERS_ONNX_BLOCK_PARAMS_H_

#include <cstdint>
#include <vector>

#include "ir/type.h"
#include "weights/weight.h"

namespace twinforge {

// An axis without padding.
ParamAxis AxisNamed(const char* name, int64_t size);

// `weight` with these places of an axis, in this order; itself where they are all of them.
WeightPtr TakePlaces(const WeightPtr& weight, int64_t axis, const std::vector<int64_t>& places);

}  // namespace twinforge

#endif  // TWINFORGE_IMPORTERS_ONNX_BLOCK_PARAMS_H_
