#include <utility>

#include "absl/container/flat_hash_map.h"
#include "onnx/infer/rule.h"
#include "onnx/operators.h"

namespace twinforge {

const InferRow* FindInferRule(absl::string_view domain, absl::string_view name) {
  using Key = std::pair<absl::string_view, absl::string_view>;
  static const auto& index = *[] {
    auto* map = new absl::flat_hash_map<Key, InferRow>;
    for (const auto rows : {ElementwiseRules(), ShapeRules(), PartRules(), ReduceRules(), ProductRules(),
                            AttentionRules(), ImageRules(), SignalRules(), ControlRules()}) {
      for (InferRow row : rows) {
        if (const OperatorInfo* info = FindOperator(row.domain, row.name)) {
          if (row.min_inputs >= 0) row.min_inputs = info->min_inputs;
          for (row.first_version = 1; SinceVersion(*info, row.first_version) == 0;) ++row.first_version;
        }
        map->emplace(Key(row.domain, row.name), row);
      }
    }
    return map;
  }();
  const auto found = index.find(Key(domain, name));
  return found == index.end() ? nullptr : &found->second;
}

}  // namespace twinforge
