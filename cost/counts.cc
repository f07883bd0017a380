#include "cost/counts.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/check.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "cost/count_node.h"
#include "weights/build.h"

namespace twinforge {
namespace {

bool HasCausalMixer(const Graph& graph) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(), [](const Node& node) {
    return node.op == OpKind::kLatentAttention || IsRecurrent(node.op) ||
           (node.op == OpKind::kAttention && node.attrs->attention().causal());
  });
}

// Sizes beyond this are typing errors; below it, single products of a size and a width can't overflow.
constexpr int64_t kMaxSize = int64_t{1} << 31;

// Microbatches are of one size, so that each takes a stage as long as the others.
absl::Status CheckMicrobatches(const Workload& workload) {
  const int64_t parts = workload.microbatches;
  if (parts < 1 || parts > kMaxSize)
    return Error(1703, "microbatches", absl::StrCat(parts, " is out of range"), "give a number from 1 on");
  if (workload.training && workload.pp > 1)
    return Error(1702, "pp", "training over pipeline stages is not counted",
                 "split by tp, dp and sp instead");
  if (parts == 1) return absl::OkStatus();
  if (workload.pp == 1)
    return Error(1703, "microbatches", "pass the stages of a pipeline, and there is one stage",
                 "give --mesh pp=2 or more stages");
  if (workload.chunk > 0)
    return Error(1703, "microbatches", "a mixed step passes its stages whole", "leave them at 1");
  if (workload.batch % (workload.dp * parts) == 0) return absl::OkStatus();
  return Error(1703, "microbatches",
               absl::StrCat(parts, " in each of ", workload.dp, " groups do not divide ", workload.batch,
                            " sequences"),
               absl::StrCat("a batch of ", CeilDiv(workload.batch, workload.dp * parts) * workload.dp * parts,
                            " would do"));
}

absl::Status CheckWorkload(const Workload& workload) {
  const bool decode = workload.phase == Phase::kDecode;
  const auto check = [](absl::string_view name, int64_t value, int64_t least) -> absl::Status {
    if (value >= least && value <= kMaxSize) return absl::OkStatus();
    return Error(1703, name, absl::StrCat(value, " is out of range"),
                 absl::StrCat("give a number from ", least, " on"));
  };
  TWIN_RETURN_IF_ERROR(check("batch", workload.batch, 1));
  TWIN_RETURN_IF_ERROR(check("context", workload.context, decode ? 0 : 1));
  TWIN_RETURN_IF_ERROR(check("past", workload.past, 0));
  if (workload.training && (decode || workload.past > 0))
    return Error(1703, "training", "a training step has no cache", "score a step of whole sequences");
  TWIN_RETURN_IF_ERROR(check("chunk", workload.chunk, 0));
  if (!decode && workload.chunk > 0)
    return Error(1703, "chunk", "a chunk stands beside decoding sequences", "score a decode step");
  Exact devices = 1;
  for (const auto& [name, value] :
       {std::pair("shards", workload.shards), std::pair("dp", workload.dp), std::pair("ep", workload.ep),
        std::pair("sp", workload.sp), std::pair("pp", workload.pp)}) {
    TWIN_RETURN_IF_ERROR(check(name, value, 1));
    if (absl::string_view(name) != "ep") devices = devices * value;
  }
  if (!devices.ok() || devices.value() > kMaxSize)
    return Error(1703, "mesh", "has more devices than are counted", "score a smaller mesh");
  return CheckMicrobatches(workload);
}

// Parameters of a graph, found faster than by its ordered map, and whether their bytes were met before: equal
// programs are one stored tensor, and a tied head is the transposed program of the embedding.
class Params {
 public:
  explicit Params(const Graph& graph) {
    by_role_.reserve(graph.params().size());
    seen_.reserve(graph.params().size());
    for (const auto& [role, param] : graph.params()) by_role_.emplace(role, &param);
  }

  void Of(const Node& node, std::vector<const Param*>& params) const {
    params.clear();
    for (const auto& [slot, role] : node.params) params.push_back(by_role_.at(role));
  }

  // A stage of its own has its own copy of what it shares with an earlier one.
  void Forget() { seen_.clear(); }

  bool IsNew(const Param& param, OpKind op) {
    if (!seen_.insert(param.program).second) return false;
    const bool may_be_tied = (op == OpKind::kEmbedding || op == OpKind::kLmHead) && param.type.is_kernel() &&
                             param.type.axes.size() == 2;
    return !may_be_tied || seen_.insert(Transpose(param.program, {1, 0})).second;
  }

 private:
  absl::flat_hash_map<absl::string_view, const Param*> by_role_;
  absl::flat_hash_set<WeightPtr> seen_;  // shared, since a program that dies may leave its address to another
};

// The attributes that counts depend on.
struct CountedAttrs {
  bool causal = false;
  int64_t window = 0;
  int64_t chunk = 0;
  int64_t top_k = 0;
  bool operator==(const CountedAttrs&) const = default;
};

CountedAttrs AttrsOf(const Node& node) {
  if (node.op == OpKind::kAttention) {
    const AttentionAttrs& attention = node.attrs->attention();
    return {.causal = attention.causal(), .window = attention.window(), .chunk = attention.chunk()};
  }
  return {.top_k = node.op == OpKind::kMoe ? node.attrs->moe().top_k() : 0};
}

// Layers repeat: a node like an earlier one is counted once.
class Kinds {
 public:
  Kinds(const Step& step, StepCount& count) : step_(step), count_(count) {}

  absl::StatusOr<int32_t> Of(const Node& node, const std::vector<const Param*>& params) {
    const std::optional<bool> opens = OpensLayer(node);
    std::vector<int32_t>& alike = by_op_[static_cast<size_t>(node.op)];
    for (const int32_t kind : alike) {
      if (models_[kind].opens == opens && Equal(models_[kind], node, params)) return kind;
    }
    NodeCount counted;
    TWIN_RETURN_IF_ERROR(CountNode(step_, node, params, counted));
    for (const NodeId operand : node.operands) {
      counted.operand_bytes.push_back(count_.KindOf(operand).result_bytes);
    }
    if (step_.workload.training)
      MakeTraining(step_.workload, opens.value_or(!counted.products.empty()), counted);
    const int32_t kind = static_cast<int32_t>(count_.kinds.size());
    count_.kinds.push_back(std::move(counted));
    models_.push_back({&node, params, opens});
    alike.push_back(kind);
    return kind;
  }

 private:
  struct Model {
    const Node* node;
    std::vector<const Param*> params;
    std::optional<bool> opens;
  };

  bool Equal(const Model& model, const Node& node, const std::vector<const Param*>& params) const {
    const Node& other = *model.node;
    if (other.operands.size() != node.operands.size() || model.params.size() != params.size()) return false;
    for (size_t i = 0; i < params.size(); ++i) {
      if (other.params[i].first != node.params[i].first || model.params[i]->type != params[i]->type)
        return false;
    }
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const NodeId a = other.operands[i];
      const NodeId b = node.operands[i];
      if (a == b) continue;
      const Exact x = count_.KindOf(a).result_bytes;
      const Exact y = count_.KindOf(b).result_bytes;
      if (!x.ok() || !y.ok() || x.value() != y.value()) return false;
      if (step_.graph.nodes()[a].type != step_.graph.nodes()[b].type) return false;
    }
    return AttrsOf(other) == AttrsOf(node) && other.type == node.type;
  }

  // In training, whether a layer begins here; nullopt for nodes of none.
  std::optional<bool> OpensLayer(const Node& node) {
    if (!step_.workload.training) return std::nullopt;
    const std::optional<int64_t> layer = LayerOfPath(node.path);
    const bool opens = layer != last_layer_;
    last_layer_ = layer;
    return layer ? std::optional<bool>(opens) : std::nullopt;
  }

  const Step& step_;
  StepCount& count_;
  std::optional<int64_t> last_layer_;
  std::vector<Model> models_;
  std::map<size_t, std::vector<int32_t>> by_op_;
};

}  // namespace

Exact CausalPairs(int64_t past, int64_t fresh, int64_t window) {
  // The first `ramp` queries see everything before them; later ones see `window` places.
  const int64_t ramp = window == 0 ? fresh : std::clamp<int64_t>(window - past, 0, fresh);
  return Exact(past) * ramp + Exact(ramp) * (ramp + 1) / 2 + Exact(fresh - ramp) * window;
}

Exact ChunkedPairs(int64_t past, int64_t fresh, int64_t window, int64_t chunk) {
  if (chunk == 0) return CausalPairs(past, fresh, window);
  const int64_t inside = past % chunk;  // places of the chunk that is under way
  const int64_t first = std::min(fresh, chunk - inside);
  const int64_t rest = fresh - first;
  return CausalPairs(inside, first, window) + CausalPairs(0, chunk, window) * Exact(rest / chunk) +
         CausalPairs(0, rest % chunk, window);
}

std::optional<int64_t> LayerOfPath(absl::string_view path) {
  int64_t layer = 0;
  if (!absl::ConsumePrefix(&path, "layers.")) return std::nullopt;
  if (!absl::SimpleAtoi(path.substr(0, path.find('.')), &layer) || layer < 0) return std::nullopt;
  return layer;
}

int64_t StageOfLayer(int64_t layer, int64_t layers, int64_t stages) {
  return (Exact(layer) * stages / layers).value();
}

namespace {

// Layers by path; what comes before the first lies on the first stage, what follows one on that one's.
class Stages {
 public:
  static absl::StatusOr<Stages> Of(const Graph& graph, int64_t stages) {
    Stages dealt;
    dealt.stages_ = stages;
    if (stages == 1) return dealt;
    for (const Node& node : graph.nodes())
      dealt.layers_ = std::max(dealt.layers_, LayerOfPath(node.path).value_or(-1) + 1);
    if (dealt.layers_ >= stages) return dealt;
    return Error(1702, "pp", absl::StrCat(stages, " stages for ", dealt.layers_, " layers"),
                 absl::StrCat("a pp of at most ", std::max<int64_t>(dealt.layers_, 1), " would do"));
  }

  int32_t Next(const Node& node) {
    const std::optional<int64_t> layer = stages_ > 1 ? LayerOfPath(node.path) : std::nullopt;
    if (layer) at_ = std::max(at_, static_cast<int32_t>(StageOfLayer(*layer, layers_, stages_)));
    return at_;
  }

 private:
  int64_t stages_ = 1;
  int64_t layers_ = 0;
  int32_t at_ = 0;
};

// New tokens as an engine pads them.
int64_t PaddedTokens(const Padding& padding, int64_t tokens) {
  if (padding.tokens_from == 0) return tokens;
  int64_t padded = padding.tokens_from;
  while (padded < tokens) padded *= 2;
  return padded;
}

std::vector<StepPart> PartsOf(const Workload& workload) {
  const bool decode = workload.phase == Phase::kDecode;
  const auto part = [&](int64_t sequences, int64_t all, int64_t fresh, int64_t past) {
    return StepPart{
        .sequences = sequences, .all = all, .fresh = fresh, .past = past, .own = CeilDiv(fresh, workload.sp)};
  };
  std::vector<StepPart> parts = {part(workload.local_batch(), workload.batch, decode ? 1 : workload.context,
                                      decode ? workload.context : workload.past)};
  if (workload.chunk > 0) parts.push_back(part(1, workload.dp, workload.chunk, workload.past));
  return parts;
}

absl::StatusOr<Step> StepOf(const Graph& graph, const Workload& workload) {
  // Training needs the logits of every place.
  Step step{.graph = graph,
            .workload = workload,
            .parts = PartsOf(workload),
            .causal = HasCausalMixer(graph) && !workload.training};
  Exact all_rows, sequences, all_sequences, rows;
  for (const StepPart& part : step.parts) {
    all_rows += Exact(part.all) * part.fresh;
    rows += Exact(part.sequences) * part.own;
    sequences += part.sequences;
    all_sequences += part.all;
  }
  if (!all_rows.ok() || all_rows.value() > kMaxSize)
    return Error(1703, "batch", "batch times context is out of range");
  step.sequences = sequences.value();
  step.all_sequences = all_sequences.value();
  step.rows = PaddedTokens(workload.padding, rows.value());
  step.all_rows = all_rows.value();
  return step;
}

}  // namespace

absl::StatusOr<StepCount> CountStep(const Graph& graph, const Workload& workload) {
  TWIN_RETURN_IF_ERROR(CheckWorkload(workload));
  const Workload one = OneMicrobatch(workload);
  TWIN_ASSIGN_OR_RETURN(const Step step, StepOf(graph, one));
  TWIN_ASSIGN_OR_RETURN(Stages stages, Stages::Of(graph, one.pp));
  StepCount count;
  count.nodes.reserve(graph.nodes().size());
  Params all(graph);
  Kinds kinds(step, count);
  std::vector<const Param*> params;
  for (const Node& node : graph.nodes()) {
    all.Of(node, params);
    TWIN_ASSIGN_OR_RETURN(const int32_t kind, kinds.Of(node, params));
    NodeUse use{.kind = kind, .stage = stages.Next(node)};
    if (!count.nodes.empty() && use.stage > count.nodes.back().stage) all.Forget();
    TWIN_CHECK(params.size() <= 64, "a node has more slots than its mask has bits");
    for (size_t i = 0; i < params.size(); ++i) {
      if (all.IsNew(*params[i], node.op)) use.keeps |= uint64_t{1} << i;
    }
    count.nodes.push_back(use);
  }
  return count;
}

absl::StatusOr<StepCount> RecountStep(const Graph& graph, const Workload& workload, const StepCount& alike) {
  if (workload.training) return CountStep(graph, workload);  // whose kinds know where layers begin
  TWIN_CHECK(alike.nodes.size() == graph.nodes().size(), "a count of another graph");
  TWIN_RETURN_IF_ERROR(CheckWorkload(workload));
  const Workload one = OneMicrobatch(workload);
  TWIN_ASSIGN_OR_RETURN(const Step step, StepOf(graph, one));
  StepCount count{.nodes = alike.nodes};
  count.kinds.reserve(alike.kinds.size());
  for (const Node& node : graph.nodes()) {
    // Kinds are numbered in the order in which nodes meet them.
    if (count.nodes[node.id].kind < static_cast<int32_t>(count.kinds.size())) continue;
    std::vector<const Param*> params;
    for (const auto& [slot, role] : node.params) params.push_back(graph.FindParam(role));
    NodeCount counted;
    TWIN_RETURN_IF_ERROR(CountNode(step, node, params, counted));
    for (const NodeId operand : node.operands)
      counted.operand_bytes.push_back(count.KindOf(operand).result_bytes);
    count.kinds.push_back(std::move(counted));
  }
  return count;
}

}  // namespace twinforge
