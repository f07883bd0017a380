// Attention out of its parts, whichever operators wrote them: heads, turns, masks, sinks.
#ifndef TWINFORGE_IMPORTERS_ONNX_ATTEND_H_
#define TWINFORGE_IMPORTERS_ONNX_ATTEND_H_

#include <optional>
#include <string>
#include <vector>

#include "importers/onnx/rules.h"

namespace twinforge {

// MatMul of two flows: queries and keys make scores, softmax and values make attention.
bool MultiplyHeads(RaiseCall& c, const Flow& a, const Flow& b);

// One operand of attention; each letter of `axes` says what an axis of the flow's shape is: b, h, s or d.
struct HeadsOperand {
  Flow flow;
  std::string axes;
};

// Who sees whom: [batch, heads or 1, seq, keys], row-major.
struct SeenMask {
  int64_t heads = 1;
  std::vector<bool> seen;
};

struct AttendSpec {
  HeadsOperand q, k, v;
  double scale = 1, softcap = 0;
  bool causal = false;  // beside what the masks say
  int64_t window = 0;
  std::vector<OnnxTensor> masks;  // added (floating: 0 or very negative) or selecting (bool)
  WeightPtr sinks;                // [heads], or null
  std::vector<int64_t> numbers;
  Shape result;  // of the output, whose axes are q's
};
bool EmitAttend(RaiseCall& c, const AttendSpec& spec);

// The elements of one operand by head and place: which feature, times what at each position.
struct TurnedHeads {
  HeadPlaces places;
  std::vector<int64_t> partner;           // [heads, width]: the other place of its pair, or -1
  std::vector<std::vector<double>> near;  // [heads * width][seq]: of its own feature
  std::vector<std::vector<double>> far;   // of its partner's
};
// nullopt and the reason.
std::optional<TurnedHeads> HeadsOf(const OnnxTrace& trace, const HeadsOperand& operand, std::string& why);

// The rotary turn that the coefficients are, times one factor for all of them.
struct TurnFit {
  Rope rope;
  double factor = 1;
};
std::optional<TurnFit> FitTurn(const TurnedHeads& heads, std::string& why);

}  // namespace twinforge

#endif  // TWINFORGE_IMPORTERS_ONNX_ATTEND_H_
