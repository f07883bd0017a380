#include "onnx/operators.h"

#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace twinforge {
namespace {

constexpr OperatorInfo kOperators[] = {
#define ONNX_OP(...) {__VA_ARGS__},
#include "onnx/operators.def"
#undef ONNX_OP
};

}  // namespace

const OperatorInfo* FindOperator(absl::string_view domain, absl::string_view name) {
  using Key = std::pair<absl::string_view, absl::string_view>;
  static const auto& index = *[] {
    auto* map = new absl::flat_hash_map<Key, const OperatorInfo*>;
    for (const OperatorInfo& info : kOperators) map->emplace(Key(info.domain, info.name), &info);
    return map;
  }();
  const auto found = index.find(Key(domain, name));
  return found == index.end() ? nullptr : found->second;
}

int64_t SinceVersion(const OperatorInfo& info, int64_t imported) {
  int64_t since = 0;
  for (const absl::string_view text : absl::StrSplit(info.versions, ' ')) {
    int64_t version = 0;
    if (absl::SimpleAtoi(text, &version) && version <= imported) since = version;
  }
  return since;
}

}  // namespace twinforge
