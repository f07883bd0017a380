// Which values of a graph are a model's hidden states, by the names that transformers gives them.
//
//   hidden_states.0   what enters the first layer
//   hidden_states.i   what layer i - 1 leaves behind; the last one after the final norm, where the model has
//   one
#ifndef TWINFORGE_EVAL_HIDDEN_STATES_H_
#define TWINFORGE_EVAL_HIDDEN_STATES_H_

#include <map>
#include <string>

#include "ir/graph.h"

namespace twinforge {

// Empty for a graph without nodes under `layers.N.`.
std::map<NodeId, std::string> HiddenStates(const Graph& graph);

}  // namespace twinforge

#endif  // TWINFORGE_EVAL_HIDDEN_STATES_H_
