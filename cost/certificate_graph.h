// What a certificate calls a model: its graph as text, without where the weights are read.
//
//   @layers.0.attn.q: bf16[d_model=64 -> heads=4, head_dim=16] out_in
//   @lm_head: bf16[d_model=64 -> vocab=320] out_in = transposed @embed
//
// So a twin has the same text while its recipe plans it, and when it is opened from its own files, whose
// tensors are others than the source's. Parameters that share their bytes do so here.
#ifndef TWINFORGE_COST_CERTIFICATE_GRAPH_H_
#define TWINFORGE_COST_CERTIFICATE_GRAPH_H_

#include <string>

#include "ir/graph.h"

namespace twinforge {

std::string CertifiedText(const Graph& graph);
std::string CertifiedHash(const Graph& graph);  // SHA-256 of it

}  // namespace twinforge

#endif  // TWINFORGE_COST_CERTIFICATE_GRAPH_H_
