#include "cost/counts.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "cost/count_node.h"
#include "weights/build.h"

namespace twinforge {
namespace {

bool HasCausalAttention(const Graph& graph) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(), [](const Node& node) {
    return node.op == OpKind::kLatentAttention ||
           (node.op == OpKind::kAttention && node.attrs->attention().causal());
  });
}

// Sizes beyond this are typing errors; below it, single products of a size and a width can't overflow.
constexpr int64_t kMaxSize = int64_t{1} << 31;

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
  if (workload.pp != 1)
    return Error(1702, "pp", "pipeline stages are not counted yet", "split by tp, dp and ep instead");
  for (const auto& [name, value] :
       {std::pair("shards", workload.shards), std::pair("dp", workload.dp), std::pair("ep", workload.ep)}) {
    TWIN_RETURN_IF_ERROR(check(name, value, 1));
  }
  return absl::OkStatus();
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
  int64_t top_k = 0;
  bool operator==(const CountedAttrs&) const = default;
};

CountedAttrs AttrsOf(const Node& node) {
  if (node.op == OpKind::kAttention) {
    return {.causal = node.attrs->attention().causal(), .window = node.attrs->attention().window()};
  }
  return {.top_k = node.op == OpKind::kMoe ? node.attrs->moe().top_k() : 0};
}

// Layers repeat: a node like an earlier one is counted once.
class Kinds {
 public:
  Kinds(const Step& step, StepCount& count) : step_(step), count_(count) {}

  absl::StatusOr<int32_t> Of(const Node& node, const std::vector<const Param*>& params) {
    std::vector<int32_t>& alike = by_op_[static_cast<size_t>(node.op)];
    for (const int32_t kind : alike) {
      if (Equal(models_[kind], node, params)) return kind;
    }
    NodeCount counted;
    TWIN_RETURN_IF_ERROR(CountNode(step_, node, params, counted));
    for (const NodeId operand : node.operands) {
      counted.operand_bytes.push_back(count_.KindOf(operand).result_bytes);
    }
    if (step_.workload.training) MakeTraining(step_.workload, counted);
    const int32_t kind = static_cast<int32_t>(count_.kinds.size());
    count_.kinds.push_back(std::move(counted));
    models_.push_back({&node, params});
    alike.push_back(kind);
    return kind;
  }

 private:
  struct Model {
    const Node* node;
    std::vector<const Param*> params;
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

  const Step& step_;
  StepCount& count_;
  std::vector<Model> models_;
  std::map<size_t, std::vector<int32_t>> by_op_;
};

}  // namespace

Exact CausalPairs(int64_t past, int64_t fresh, int64_t window) {
  // The first `ramp` queries see everything before them; later ones see `window` places.
  const int64_t ramp = window == 0 ? fresh : std::clamp<int64_t>(window - past, 0, fresh);
  return Exact(past) * ramp + Exact(ramp) * (ramp + 1) / 2 + Exact(fresh - ramp) * window;
}

absl::StatusOr<StepCount> CountStep(const Graph& graph, const Workload& workload) {
  TWIN_RETURN_IF_ERROR(CheckWorkload(workload));
  // Training needs the logits of every place.
  Step step{.graph = graph, .workload = workload, .causal = HasCausalAttention(graph) && !workload.training};
  const bool decode = workload.phase == Phase::kDecode;
  step.fresh = decode ? 1 : workload.context;
  step.past = decode ? workload.context : workload.past;
  step.batch = workload.local_batch();
  const Exact rows = Exact(workload.batch) * step.fresh;
  if (!rows.ok() || rows.value() > kMaxSize)
    return Error(1703, "batch", "batch times context is out of range");
  step.rows = step.batch * step.fresh;
  step.all_rows = rows.value();
  step.symbols = {{"batch", step.batch}, {"seq", step.fresh}, {"past", step.past}};
  StepCount count;
  count.nodes.reserve(graph.nodes().size());
  Params all(graph);
  Kinds kinds(step, count);
  std::vector<const Param*> params;
  for (const Node& node : graph.nodes()) {
    all.Of(node, params);
    TWIN_ASSIGN_OR_RETURN(const int32_t kind, kinds.Of(node, params));
    NodeUse use{.kind = kind};
    TWIN_CHECK(params.size() <= 64, "a node has more slots than its mask has bits");
    for (size_t i = 0; i < params.size(); ++i) {
      if (all.IsNew(*params[i], node.op)) use.keeps |= uint64_t{1} << i;
    }
    count.nodes.push_back(use);
  }
  return count;
}

}  // namespace twinforge
