#include "importers/onnx/block_params.h"

#include <utility>

#include "weights/build.h"

namespace twinforge {

ParamAxis AxisNamed(const char* name, int64_t size) { return {name, size, size, 1}; }

WeightPtr TakePlaces(const WeightPtr& weight, int64_t axis, const std::vector<int64_t>& places) {
  std::vector<Run> runs;
  for (const int64_t place : places) runs.push_back({place, 1, 1});
  IndexMap map(std::move(runs));
  return map.IsIdentity(weight->shape()[axis]) ? weight : Take(weight, axis, std::move(map));
}

}  // namespace twinforge
