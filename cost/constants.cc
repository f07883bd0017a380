#include "cost/constants.h"

namespace twinforge {
namespace {

constexpr ConstantInfo kInfos[kConstants] = {
    {"matmul", "x", "R4", false},      {"expert_matmul", "x", "R4", false},
    {"attention", "x", "R4", false},   {"weight_read", "x", "R4", false},
    {"expert_read", "x", "R4", false}, {"cache_read", "x", "R4", false},
    {"vector", "x", "R4", false},      {"exposed", "share", "R4", false},
    {"link", "x", "R5", false},        {"message", "s", "R5", false},
    {"launch", "s", "R6", false},      {"expert_launch", "s", "R6", false},
    {"step", "s", "R6", true},         {"request", "s", "R8", true},
    {"prompt", "s", "R8", true},       {"share", "share", "R8", true},
    {"queue", "share", "R8", true},    {"first_queue", "share", "R8", true},
    {"first_prompt", "s", "R8", true},
};

}  // namespace

absl::Span<const ConstantInfo> AllConstants() { return kInfos; }

const ConstantInfo& Info(Constant constant) { return kInfos[static_cast<size_t>(constant)]; }

std::optional<Constant> ConstantFromName(absl::string_view name) {
  for (int i = 0; i < kConstants; ++i) {
    if (kInfos[i].name == name) return static_cast<Constant>(i);
  }
  return std::nullopt;
}

}  // namespace twinforge
