#include "cost/score.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "cost/chip.h"
#include "cost/counts.h"
#include "cost/exact.h"
#include "cost/ladder.h"
#include "cost/terms.h"
#include "cost/units.h"

namespace twinforge {
namespace {

constexpr int kRungs = 4;
constexpr absl::string_view kRungNames[kRungs] = {"peak", "dtype", "shape", "memory"};
using Times = std::array<double, kRungs>;  // seconds of one op at each rung, never decreasing

Exact Useful(const NodeCount& node) {
  Exact sum;
  for (const Product& product : node.products) sum += product.useful;
  return sum;
}

struct Scored {
  OpCount op;
  Times times;
  double least = 0;  // at R3, were all its parameters and caches on chip
};

class Scorer {
 public:
  Scorer(const ChipFigures& chip, const Graph& graph, const StepTerms& terms)
      : chip_(chip), graph_(graph), terms_(terms) {}

  // `useful`: multiply-adds of the source's node, or nullopt where this graph is its own source.
  absl::StatusOr<Scored> Op(NodeId id, std::optional<Exact> useful) const;

  // A node that only the source has: useful work, at every rung.
  absl::StatusOr<Scored> Lost(const Node& node, Exact useful) const;

 private:
  double PeakSeconds(Exact useful) const {
    const double share = static_cast<double>(useful.value()) / static_cast<double>(terms_.devices);
    return (Flops(2 * share) / chip_.best_rate).value();
  }

  const ChipFigures& chip_;
  const Graph& graph_;
  const StepTerms& terms_;
};

absl::StatusOr<Scored> Scorer::Op(NodeId id, std::optional<Exact> useful) const {
  const Node& of = graph_.nodes()[id];
  const NodeTerms& node = terms_.kinds[terms_.step.nodes[id].kind];
  Scored scored{.op = node.counts, .times = {0, node.dtype, node.shape, node.memory}, .least = node.spilled};
  scored.op.path = of.path;
  scored.op.op = std::string(Info(of.op).name.data(), Info(of.op).name.size());
  if (useful) {
    const Exact flops = Exact(2) * *useful * terms_.microbatches;
    if (!flops.ok()) return CountOverflow(of.path);
    scored.op.useful_flops = flops.value();
  }
  // Each rung adds a constraint to the ones before it, so its time is never less.
  scored.times[0] = PeakSeconds(useful ? *useful : node.useful);
  for (int rung = 1; rung < kRungs; ++rung) {
    scored.times[rung] = std::max(scored.times[rung], scored.times[rung - 1]);
  }
  scored.least = std::max(scored.least, scored.times[kRungs - 2]);
  const StageTerms& stage = terms_.stages[terms_.step.nodes[id].stage];
  for (double& seconds : scored.times) seconds *= static_cast<double>(stage.passes);
  scored.least *= static_cast<double>(stage.passes);
  return scored;
}

absl::StatusOr<Scored> Scorer::Lost(const Node& node, Exact useful) const {
  const Exact flops = Exact(2) * useful * terms_.microbatches;
  if (!flops.ok()) return CountOverflow(node.path);
  Scored lost;
  lost.op = {.path = node.path,
             .op = std::string(Info(node.op).name.data(), Info(node.op).name.size()),
             .useful_flops = flops.value(),
             .note = "only in the source"};
  // Its stage is not known: as often as any counts at least.
  int64_t passes = terms_.microbatches;
  for (const StageTerms& stage : terms_.stages) passes = std::min(passes, stage.passes);
  lost.times.fill(static_cast<double>(passes) * PeakSeconds(useful));
  lost.least = lost.times.back();
  return lost;
}

// All nodes of the twin, then those that only the source has.
absl::StatusOr<std::vector<Scored>> ScoreNodes(const Graph& graph, const Graph* source,
                                               const StepCount& source_step, const Scorer& scorer) {
  std::vector<Scored> scored;
  scored.reserve(graph.nodes().size());
  for (const Node& node : graph.nodes()) {
    std::optional<Exact> useful;
    if (source != nullptr) {
      const Node* same = source->FindNode(node.path);
      useful = same == nullptr ? Exact(0) : Useful(source_step.KindOf(same->id));
    }
    TWIN_ASSIGN_OR_RETURN(Scored op, scorer.Op(node.id, useful));
    scored.push_back(std::move(op));
  }
  if (source == nullptr) return scored;
  for (const Node& node : source->nodes()) {
    const NodeCount& kind = source_step.KindOf(node.id);
    if (kind.products.empty() || graph.FindNode(node.path) != nullptr) continue;
    TWIN_ASSIGN_OR_RETURN(Scored lost, scorer.Lost(node, Useful(kind)));
    scored.push_back(std::move(lost));
  }
  return scored;
}

// On-chip memory may hold some of what a stage reads, since its pass before: nobody knows which, so the time
// that this spares at most is taken from all its nodes that wait for bytes, in proportion.
void Spare(const StepTerms& terms, std::vector<Scored>& scored) {
  const std::vector<NodeUse>& nodes = terms.step.nodes;
  std::vector<double> waiting(terms.stages.size());
  for (size_t i = 0; i < nodes.size(); ++i)
    waiting[nodes[i].stage] += scored[i].times.back() - scored[i].least;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const StageTerms& stage = terms.stages[nodes[i].stage];
    const double all = waiting[nodes[i].stage];
    if (all <= 0) continue;
    const double share = std::min(1.0, static_cast<double>(stage.passes) * terms.spared / all);
    Scored& op = scored[i];
    op.times.back() = std::max(op.least, op.times.back() - share * (op.times.back() - op.least));
  }
}

void FillMemory(const ChipFigures& chip, const Graph& graph, const StepTerms& terms, Score& score) {
  for (const StageTerms& stage : terms.stages) score.passes.push_back(stage.passes);
  score.parameter_bytes = terms.parameter_bytes.value();
  score.cache_bytes = terms.cache_bytes.value();
  score.memory_bytes = chip.memory_bytes;
  const int64_t needed = (terms.parameter_bytes + terms.cache_bytes).value();
  score.feasible = needed <= chip.memory_bytes;
  if (score.feasible) return;
  NoteShortfall(chip, graph, 1, 1, score);
  score.shortfall =
      absl::StrFormat("needs %.1f GB of a device's %.1f GB; %s", static_cast<double>(needed) / 1e9,
                      static_cast<double>(chip.memory_bytes) / 1e9, score.shortfall);
}

double Tokens(const Workload& workload) {
  const double batch = static_cast<double>(workload.batch);
  if (workload.phase == Phase::kPrefill) return batch * static_cast<double>(workload.context);
  return batch + static_cast<double>(workload.dp) * static_cast<double>(workload.chunk);
}

}  // namespace

absl::StatusOr<Score> ScoreTerms(const ChipFigures& chip, const StepTerms& terms, const Graph& graph,
                                 const Graph* useful, const Workload& workload) {
  StepCount source;
  if (useful != nullptr) {
    Workload whole = workload;
    whole.shards = 1;  // useful work does not depend on devices, and the source need not divide
    whole.ep = whole.sp = whole.pp = whole.microbatches = 1;
    whole.batch /= workload.microbatches;
    TWIN_ASSIGN_OR_RETURN(source, CountStep(*useful, whole));
  }
  TWIN_ASSIGN_OR_RETURN(std::vector<Scored> scored,
                        ScoreNodes(graph, useful, source, Scorer(chip, graph, terms)));
  Spare(terms, scored);

  Score score{.chip = chip.summary.id, .workload = workload};
  std::vector<std::vector<double>> times;
  times.reserve(scored.size());
  score.ops.reserve(scored.size() + 1);  // an estimate adds the step's own
  for (Scored& op : scored) {
    times.emplace_back(op.times.begin(), op.times.end());
    score.ops.push_back(std::move(op.op));
  }
  std::vector<RungRow> rungs;
  for (int i = 0; i < kRungs; ++i) {
    rungs.push_back(
        {.rung = absl::StrCat("R", i), .name = std::string(kRungNames[i].data(), kRungNames[i].size())});
  }
  FillLadder(std::move(rungs), std::move(times), score);
  FillMemory(chip, graph, terms, score);
  const double seconds = score.ladder.back().seconds;
  if (score.feasible && seconds > 0) score.tokens_per_second = Tokens(workload) / seconds;
  return score;
}

absl::StatusOr<Score> ScoreGraph(const Graph& graph, const Graph* useful, const std::string& chip,
                                 const Workload& workload) {
  TWIN_ASSIGN_OR_RETURN(const ChipFigures* facts, FindChipFacts(chip));
  TWIN_RETURN_IF_ERROR(CheckFigures(*facts));
  TWIN_ASSIGN_OR_RETURN(const StepTerms terms, TermsOf(*facts, graph, workload));
  return ScoreTerms(*facts, terms, graph, useful, workload);
}

}  // namespace twinforge
