// The printed form of a graph, and its parser: canonical, and parse(print(g)) is g.
//
//   graph tiny(tokens: i32[batch, seq]) -> (logits: lm_head) {
//     embed = embedding(tokens) @embed {scale: 8}
//     layers.0.norm_in = rms_norm(embed) @layers.0.norm_in {eps: 1e-05}
//     layers.0.attn = attention(layers.0.norm_in) q=@layers.0.attn.q ... {scale: 0.25 ...} by "1 pad_heads"
//     ...
//   }
//   params {
//     @layers.0.attn.q: bf16[d_model=64 -> heads=4, head_dim=16] out_in = transpose(...)
//   }
//   bundles {
//     @layers.0.attn.qkv = concat(@layers.0.attn.q, @layers.0.attn.k, @layers.0.attn.v) shards 2
//   }
//
// Nodes are named by their paths; `by` names the step that made or last changed a node. Result types are not
// printed: they follow from the inputs and parameters. It is the test language, the body of a twin's
// manifest, and debug output at once. The parser treats input as hostile: a mistake is a diagnostic (TF1502)
// with line and column.
#ifndef TWINFORGE_IR_TEXT_H_
#define TWINFORGE_IR_TEXT_H_

#include <string>

#include "absl/status/statusor.h"
#include "ir/graph.h"

namespace twinforge {

std::string Text(const Graph& graph);
absl::StatusOr<Graph> ParseGraph(absl::string_view text);
// A value's type alone, as Text(const Type&) prints it.
absl::StatusOr<Type> ParseType(absl::string_view text);

}  // namespace twinforge

#endif  // TWINFORGE_IR_TEXT_H_
