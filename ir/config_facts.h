// What a graph says of each fact that a config key may hold; the vocabulary of config.cc.
#ifndef TWINFORGE_IR_CONFIG_FACTS_H_
#define TWINFORGE_IR_CONFIG_FACTS_H_

#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/json.h"
#include "ir/graph.h"
#include "ir/layout.h"

namespace twinforge {

inline constexpr absl::string_view kConfigHint =
    "use the portable form of the step, or write the twin's own layout with --to twin";

// TF1602 at a node, naming the step that made it so.
absl::Status CannotSay(const Node& node, absl::string_view reason);

// Whether two numbers are equal but for their last places: runtimes compute in double from a config, and
// not always in the order of a step.
bool Same(double a, double b);

bool IsAttention(const Node& node);
// Of an attention node of either kind.
double ScaleOf(const Node& node);
const Rope& RopeOf(const Node& node);
// The axis whose places turn: a head, or the rotary part of a latent one.
const ParamAxis& RotaryAxis(const Graph& graph, const Node& node);

// What one fact has to say: a fresh value, and whether a number that stands there says it already.
struct Saying {
  JsonValue fresh;
  std::function<bool(const JsonValue&)> said_by;
  std::string text;  // to compare and to report
};

Saying SayInteger(int64_t number);
Saying SayTruth(bool truth);
Saying SayWord(const std::string& word);

// What `node` says of the binding's fact; nothing where the node does not know it.
absl::StatusOr<std::optional<Saying>> SayingOf(const Graph& graph, const Node& node,
                                               const ConfigBinding& binding);

// The number of `layers.N.` prefixes among paths.
int64_t LayersOf(const Graph& graph);

// As torch spells the dtype that most bytes of parameters have; "" where torch has no such type.
std::string DTypeOf(const Graph& graph);

}  // namespace twinforge

#endif  // TWINFORGE_IR_CONFIG_FACTS_H_
