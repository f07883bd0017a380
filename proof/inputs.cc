#include "proof/inputs.h"

#include <algorithm>
#include <cstdlib>
#include <random>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "eval/whole_sequence.h"

namespace twinforge {
namespace {

constexpr int64_t kSequences = 2;
constexpr uint64_t kRouters = 4;
constexpr int64_t kUsual = 9;         // tokens: more than a window of 8 and one
constexpr int64_t kFarthest = 96;     // an edge beyond it is not reached for
constexpr int64_t kSteps[] = {1, 2};  // tokens at once, after the first
constexpr int64_t kBeyond = 6;        // an edge is passed at once, and again token by token

// Lengths at which `node` changes what it does: a window's, a chunk's, the trained one's of a scaled rope.
std::vector<int64_t> EdgesOf(const Node& node) {
  if (node.op != OpKind::kAttention && node.op != OpKind::kLatentAttention) return {};
  const bool latent = node.op == OpKind::kLatentAttention;
  const Rope& rope = latent ? node.attrs->latent_attention().rope() : node.attrs->attention().rope();
  std::vector<int64_t> edges;
  if (!latent) edges = {node.attrs->attention().window(), node.attrs->attention().chunk()};
  switch (rope.scaling().kind()) {
    case RopeScaling::DYNAMIC:
      edges.push_back(rope.max_position_embeddings());
      break;
    case RopeScaling::LONGROPE:
      edges.push_back(rope.scaling().original_max_position_embeddings());
      break;
    default:
      break;
  }
  return edges;
}

// Places of the smallest table of positions, or kFarthest.
int64_t Places(const Graph& graph) {
  int64_t places = 2 * kFarthest;
  for (const Node& node : graph.nodes()) {
    if (!node.Has("position_table")) continue;
    const int64_t rows = graph.param(node, "position_table").type.axes[0].logical;
    places = std::min(places, rows - node.attrs->embedding().position_offset());
  }
  return places;
}

// Whether every block that looks at other tokens looks at earlier ones alone: then a token may follow.
bool IsCausal(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    if (node.op == OpKind::kAttention && !node.attrs->attention().causal()) return false;
  }
  return true;
}

// The least number of rows of the tables that whole numbers choose from.
int64_t Choices(const Graph& graph, absl::string_view slot) {
  int64_t rows = 0;
  for (const Node& node : graph.nodes()) {
    if (node.op != OpKind::kEmbedding || !node.Has(slot)) continue;
    const int64_t own = graph.param(node, slot).type.axes[0].logical;
    rows = rows == 0 ? own : std::min(rows, own);
  }
  return rows;
}

class InputMaker {
 public:
  InputMaker(const Graph& graph, bool token_types, uint64_t seed)
      : graph_(graph), token_types_(token_types), random_(seed) {}

  absl::StatusOr<NamedTensors> Make(int64_t seq) {
    NamedTensors inputs;
    for (NodeId id : graph_.inputs()) {
      const Node& node = graph_.node(id);
      TWIN_ASSIGN_OR_RETURN(const Shape shape, ShapeOf(node, seq));
      inputs[node.path] = IsInteger(node.type.dtype) ? Whole(node.type.dtype, shape, Choices(graph_, "table"))
                                                     : Real(node.type.dtype, shape);
    }
    if (const int64_t types = Choices(graph_, "type_table"); types > 0 && token_types_)
      inputs["token_types"] = Whole(DType::kI32, {kSequences, seq}, types);
    return inputs;
  }

 private:
  static absl::StatusOr<Shape> ShapeOf(const Node& node, int64_t seq) {
    Shape shape;
    for (const Axis& axis : node.type.axes) {
      const auto size = axis.size.Bind({{"batch", kSequences}, {"seq", seq}, {"past", 0}});
      if (!size) return Error(1901, node.path, absl::StrCat("axis ", axis.name, " has no size to try"));
      shape.push_back(*size);
    }
    return shape;
  }

  // Both ends first, then anything.
  Tensor Whole(DType dtype, const Shape& shape, int64_t choices) {
    choices = std::max<int64_t>(choices, 2);
    std::uniform_int_distribution<int64_t> any(0, choices - 1);
    std::vector<double> values(ElementCount(shape));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<double>(i == 1 ? choices - 1 : i == 2 ? 0 : any(random_));
    return Tensor(dtype, shape, std::move(values));
  }

  Tensor Real(DType dtype, const Shape& shape) {
    std::uniform_real_distribution<double> any(-2, 2);
    std::vector<double> values(ElementCount(shape));
    for (double& value : values) value = any(random_);
    return Tensor(DType::kF64, shape, std::move(values)).Converted(dtype);
  }

  const Graph& graph_;
  const bool token_types_;
  std::mt19937_64 random_;
};

bool ChoosesExperts(const Graph& graph) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(),
                     [](const Node& node) { return node.op == OpKind::kMoe || node.op == OpKind::kRouter; });
}

// Tokens at once; below 0, those that go on from the ones before.
std::vector<int64_t> Lengths(const Graph& graph, const Graph& twin) {
  const int64_t longest = LongestTrial(graph);
  int64_t after = 0;
  for (int64_t step : kSteps) after += step;
  const bool goes_on = FirstOverTokens(graph) == nullptr && FirstOverTokens(twin) == nullptr;
  if (!IsCausal(graph) || !goes_on || longest <= after) return {longest};
  std::vector<int64_t> lengths = {longest - after};
  for (int64_t step : kSteps) lengths.push_back(-step);
  return lengths;
}

}  // namespace

int64_t LongestTrial(const Graph& graph) {
  int64_t longest = kUsual;
  for (const Node& node : graph.nodes()) {
    for (int64_t edge : EdgesOf(node)) {
      if (edge > 0 && edge + kBeyond <= kFarthest) longest = std::max(longest, edge + kBeyond);
    }
  }
  return std::min(longest, Places(graph));
}

absl::StatusOr<std::vector<ProofTrial>> TrialsFor(const Graph& graph, const Graph& twin, uint64_t seed) {
  InputMaker maker(graph, TakesTokenTypes(twin), seed);
  std::vector<ProofTrial> trials;
  const uint64_t variants = ChoosesExperts(graph) ? kRouters : 1;
  for (uint64_t variant = 0; variant < variants; ++variant) {
    for (Loudness loudness : {Loudness::kQuiet, Loudness::kLoud}) {
      for (int64_t tokens : Lengths(graph, twin)) {
        ProofTrial trial;
        trial.continues = tokens < 0;
        trial.name = absl::StrCat(trial.continues ? "then " : "", kSequences, " x ", std::abs(tokens),
                                  trial.continues ? "" : " tokens");
        trial.seed = seed + variant;
        trial.loudness = loudness;
        TWIN_ASSIGN_OR_RETURN(trial.inputs, maker.Make(std::abs(tokens)));
        trials.push_back(std::move(trial));
      }
    }
  }
  return trials;
}

}  // namespace twinforge
