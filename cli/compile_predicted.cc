#include "cli/compile_predicted.h"

#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "cli/score_report.h"
#include "cost/counts.h"
#include "cost/program_memory.h"
#include "report/table.h"

namespace twinforge {
namespace {

double OffBy(int64_t compiled, int64_t predicted) {
  return predicted == 0 ? 0 : static_cast<double>(compiled) / static_cast<double>(predicted) - 1;
}

Json PairJson(int64_t compiled, int64_t predicted) {
  Json json = {{"compiled", compiled}, {"predicted", predicted}};
  json["off"] = predicted == 0 ? Json(nullptr) : Json(OffBy(compiled, predicted));
  return json;
}

std::string PairText(absl::string_view what, int64_t compiled, int64_t predicted) {
  return absl::StrCat(what, " ", HumanBytes(compiled), " (counted ", HumanBytes(predicted),
                      predicted == 0 ? "" : absl::StrFormat(", %+.2f %%", 100 * OffBy(compiled, predicted)),
                      ")");
}

absl::StatusOr<int64_t> SumOf(Exact bytes) {
  if (!bytes.ok()) return Error(1707, "compile", "the model's bytes are beyond 2^63");
  return bytes.value();
}

}  // namespace

DeviceFigures CompiledFigures(const CompiledModel& model) {
  DeviceFigures figures;
  std::set<std::string> seen;  // an embedding that is the head, too, is there once
  for (const CompiledModule& module : model.modules()) {
    for (const CompiledArray& array : module.arguments()) {
      const int64_t bytes = module.count() * array.padded_bytes();
      if (array.kind() == "cache") figures.cache_bytes += bytes;
      if (array.kind() == "weight" && seen.insert(array.name()).second) figures.weight_bytes += bytes;
    }
    for (const CompiledCollective& collective : module.collectives())
      figures.collectives += module.count() * collective.count();
  }
  return figures;
}

absl::StatusOr<DeviceFigures> CountedFigures(const Graph& graph, const CompiledWorkload& workload,
                                             int64_t shards) {
  const bool decodes = workload.phase == "decode";
  if (decodes && workload.context < 2)
    return Error(1703, "compile", "a cache of one place holds nothing before the step");
  TWIN_ASSIGN_OR_RETURN(const StepCount count,
                        CountStep(graph, {.phase = decodes ? Phase::kDecode : Phase::kPrefill,
                                          .batch = workload.batch,
                                          .context = decodes ? workload.context - 1 : workload.context,
                                          .shards = shards}));
  DeviceFigures figures;
  for (const NodeUse& use : count.nodes)
    figures.collectives +=
        static_cast<int64_t>(count.kinds[static_cast<size_t>(use.kind)].collectives.size());
  // A prefill takes no cache: it gives one.
  const ProgramMemory memory = MemoryOfProgram(graph, count, workload.context);
  TWIN_ASSIGN_OR_RETURN(figures.weight_bytes, SumOf(memory.weights));
  TWIN_ASSIGN_OR_RETURN(figures.cache_bytes, SumOf(decodes ? memory.cache : Exact(0)));
  return figures;
}

void SayPredicted(const std::string& who, const CompiledModel& model, const Graph& graph,
                  const CompiledWorkload& workload, int64_t shards, Outcome& outcome) {
  const absl::StatusOr<DeviceFigures> counted = CountedFigures(graph, workload, shards);
  if (!counted.ok()) {
    const Diagnostic d = DiagnosticOf(counted.status()).value_or(Diagnostic());
    outcome.json[who]["predicted"] = {{"refused", RefusalJson(counted.status())}};
    absl::StrAppend(&outcome.human, who, ": not counted: ", d.place, ": ", d.message, "\n");
    return;
  }
  const DeviceFigures compiled = CompiledFigures(model);
  outcome.json[who]["predicted"] = {{"weights", PairJson(compiled.weight_bytes, counted->weight_bytes)},
                                    {"cache", PairJson(compiled.cache_bytes, counted->cache_bytes)},
                                    {"collectives", PairJson(compiled.collectives, counted->collectives)}};
  absl::StrAppend(&outcome.human, who,
                  ", a device: ", PairText("weights", compiled.weight_bytes, counted->weight_bytes), ", ",
                  PairText("cache", compiled.cache_bytes, counted->cache_bytes), ", collectives ",
                  Grouped(compiled.collectives), " (counted ", Grouped(counted->collectives), ")\n");
}

}  // namespace twinforge
