// Softmax attention over heads, as the standard's and the contributed operators share it.
#ifndef TWINFORGE_ONNX_KERNELS_ATTENTION_H_
#define TWINFORGE_ONNX_KERNELS_ATTENTION_H_

#include <vector>

#include "onnx/op_call.h"

namespace twinforge {

// q [batch, heads, queries, width], k [batch, kv_heads, keys, width], v [batch, kv_heads, keys, v_width].
// Each key head serves heads / kv_heads query heads in a row.
struct AttentionSizes {
  int64_t batch = 1, heads = 1, kv_heads = 1, queries = 0, keys = 0, width = 1, v_width = 1;
};

struct AttentionSpec {
  AttentionSizes sizes;
  double scale = 1;    // of q k'
  double softcap = 0;  // softcap * tanh(x / softcap); 0: none
  // Added to the scores, [batch, heads, queries, keys]; -infinity hides a key. Empty: nothing.
  std::vector<double> bias;
  // A logit per head that takes part in the softmax and leads nowhere. Empty: none.
  std::vector<double> sinks;
  // The type to which scores and probabilities are rounded as they are computed.
  ElementType score_type = ElementType::kDouble, softmax_type = ElementType::kDouble;
  // Which scores are kept: 0 scaled, 1 after softcap, 2 with bias, 3 probabilities; -1 none.
  int64_t keep = -1;
};

struct AttentionResult {
  std::vector<double> y;       // [batch, heads, queries, v_width]
  std::vector<double> scores;  // as `keep` says
};

// A query that sees no key gets zeros. A failure of the call where the work is too much.
AttentionResult AttentionOf(OpCall& c, const AttentionSpec& spec, const std::vector<double>& q,
                            const std::vector<double>& k, const std::vector<double>& v);

// An attribute that counts heads; a failure where it is beyond what any model has.
int64_t HeadCount(OpCall& c, absl::string_view attribute);

// [batch, length, heads * width] as [batch, heads, length, width], and back.
std::vector<double> SplitHeads(const std::vector<double>& x, int64_t batch, int64_t length, int64_t heads,
                               int64_t width);
std::vector<double> JoinHeads(const std::vector<double>& x, int64_t batch, int64_t length, int64_t heads,
                              int64_t width);

// Along the third axis: past [outer, before, width], then x [outer, length, width].
std::vector<double> Appended(const std::vector<double>& past, const std::vector<double>& x, int64_t outer,
                             int64_t before, int64_t length, int64_t width);

}  // namespace twinforge

#endif  // TWINFORGE_ONNX_KERNELS_ATTENTION_H_
