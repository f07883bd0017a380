// Graphs that stand for a whole sequence: primitives see the tokens that they are given and know of no
// others.
//
// A composite carries from call to call what attention remembers, and is told where its tokens stand. A block
// that was written out counts from 0 and remembers nothing: to go on with it would be to compute something
// else.
#ifndef TWINFORGE_EVAL_WHOLE_SEQUENCE_H_
#define TWINFORGE_EVAL_WHOLE_SEQUENCE_H_

#include "ir/graph.h"

namespace twinforge {

// The first primitive that counts tokens, or brings several together; nullptr where there is none, and tokens
// may come in parts. What axes of a size without a number hold counts as tokens.
const Node* FirstOverTokens(const Graph& graph);

// Whether some node looks up `token_types`: an embedding that was written out takes type 0.
bool TakesTokenTypes(const Graph& graph);

}  // namespace twinforge

#endif  // TWINFORGE_EVAL_WHOLE_SEQUENCE_H_
