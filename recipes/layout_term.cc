#include "recipes/layout_term.h"

#include <algorithm>

#include "absl/strings/match.h"

namespace twinforge {
namespace {

constexpr size_t kKernelRung = 4;

// Seconds at R4 of the layers' ops, or of the head.
double KernelSeconds(const Score& score, bool head) {
  double seconds = 0;
  for (size_t i = 0; i < score.ops.size(); ++i) {
    const bool counts = head ? score.ops[i].op == "lm_head" : absl::StartsWith(score.ops[i].path, "layers.");
    if (!counts) continue;
    for (size_t rung = 0; rung <= kKernelRung; ++rung) seconds += score.attribution[i][rung];
  }
  return seconds;
}

// The relative change of a layer's time (or the head's): least, middle and most time.
Interval ChangeOf(const std::vector<RewriteWord>& words, absl::string_view of) {
  Interval change;
  for (const RewriteWord& row : words) {
    if (row.of != of) continue;
    const CompiledWord& word = row.word;
    if (word.sign == 0) {
      change.high += std::max(0.0, word.high);
      continue;
    }
    change.low += word.low;
    change.mid = std::min(change.mid, (word.low + word.high) / 2);
  }
  double largest = 0;
  for (const RewriteWord& row : words) {
    if (row.of == of && row.word.sign < 0) largest = std::min(largest, row.word.high);
  }
  change.high += largest;
  return change;
}

}  // namespace

std::optional<Interval> LayoutGain(const std::vector<RewriteWord>& words, const Forecast& twin) {
  bool gains = false;
  for (const RewriteWord& row : words) {
    if (row.word.source == CompiledSource::kUnknown || row.word.sign > 0) return std::nullopt;
    gains |= row.word.sign < 0;
  }
  if (!gains || !twin.feasible || twin.seconds.mid <= 0) return std::nullopt;
  const double step = twin.seconds.mid;
  const double layers = KernelSeconds(twin.score, false), head = KernelSeconds(twin.score, true);
  const Interval layer = ChangeOf(words, "layer"), logits = ChangeOf(words, "head");
  const auto gain = [&](double of_layer, double of_head) {
    return step / std::max(twin.bound, step + layers * of_layer + head * of_head);
  };
  return Interval{gain(layer.high, logits.high), gain(layer.mid, logits.mid), gain(layer.low, logits.low)};
}

}  // namespace twinforge
