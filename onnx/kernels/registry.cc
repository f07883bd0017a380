#include <utility>

#include "absl/container/flat_hash_map.h"
#include "onnx/kernels/kernel.h"

namespace twinforge {

const KernelRow* FindKernel(absl::string_view domain, absl::string_view name) {
  using Key = std::pair<absl::string_view, absl::string_view>;
  static const auto& index = *[] {
    auto* map = new absl::flat_hash_map<Key, const KernelRow*>;
    for (const auto rows : {UnaryKernels(),
                            BinaryKernels(),
                            CastKernels(),
                            ShapeKernels(),
                            SliceKernels(),
                            GatherKernels(),
                            ReduceKernels(),
                            SelectKernels(),
                            MatmulKernels(),
                            NormKernels(),
                            AttentionKernels(),
                            QuantiseKernels(),
                            ControlKernels(),
                            ConvKernels(),
                            PoolKernels(),
                            ResizeKernels(),
                            ImageKernels(),
                            LossKernels(),
                            RecurrentKernels(),
                            SignalKernels(),
                            TextKernels(),
                            ClassicKernels(),
                            MixerKernels(),
                            ContribNormKernels(),
                            ContribAttentionKernels(),
                            ContribQuantisedKernels()}) {
      for (const KernelRow& row : rows) map->emplace(Key(row.domain, row.name), &row);
    }
    return map;
  }();
  const auto found = index.find(Key(domain, name));
  return found == index.end() ? nullptr : found->second;
}

}  // namespace twinforge
