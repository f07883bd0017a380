// twinforge score MODEL --chip C: what a chip would charge for one step, source beside twin.
#include "cost/score.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "cli/certify.h"
#include "cli/open.h"
#include "cli/verb.h"
#include "recipes/run.h"
#include "report/table.h"

namespace twinforge {
namespace {

Json ScoreJson(const Score& score) {
  Json json = Json::object();
  json["seconds"] = {{"bound", score.ladder.back().seconds}};
  json["tokens_per_second"] = score.tokens_per_second;
  json["feasible"] = score.feasible;
  if (!score.shortfall.empty()) json["shortfall"] = score.shortfall;
  json["memory"] = {{"parameter_bytes", score.parameter_bytes},
                    {"cache_bytes", score.cache_bytes},
                    {"device_bytes", score.memory_bytes}};
  json["ladder"] = Json::array();
  for (const RungRow& rung : score.ladder) {
    json["ladder"].push_back({{"rung", rung.rung},
                              {"name", rung.name},
                              {"seconds", rung.seconds},
                              {"class", std::string(1, rung.evidence)}});
  }
  json["ops"] = Json::array();
  for (size_t i = 0; i < score.ops.size(); ++i) {
    const OpCount& op = score.ops[i];
    json["ops"].push_back({{"path", op.path},
                           {"op", op.op},
                           {"useful_flops", op.useful_flops},
                           {"issued_flops", op.issued_flops},
                           {"weight_bytes", op.weight_bytes},
                           {"cache_bytes", op.cache_bytes},
                           {"activation_bytes", op.activation_bytes},
                           {"tile_flops", op.tile_flops},
                           {"memory_bytes", op.memory_bytes},
                           {"note", op.note},
                           {"added_seconds", score.attribution[i]}});
  }
  return json;
}

// What the counts assume, each said once.
std::vector<std::string> NotesOf(const Score& score) {
  std::vector<std::string> notes;
  for (const OpCount& op : score.ops) {
    if (!op.note.empty() && std::find(notes.begin(), notes.end(), op.note) == notes.end())
      notes.push_back(op.note);
  }
  return notes;
}

std::string HumanScore(const Score& source, const std::optional<Score>& twin,
                       absl::string_view who = "source") {
  const Workload& w = source.workload;
  std::string out = absl::StrCat(
      source.chip, w.shards > 1 ? absl::StrCat(" x ", w.shards) : "", ", ",
      w.phase == Phase::kDecode ? "decode" : "prefill", ", batch ", w.batch, ", context ", w.context,
      ": least time of a step under each further constraint (bounds, no fitted constant)\n");
  Table table(twin ? std::vector<std::string>{"rung", "constraint", "source", "twin", "source/twin"}
                   : std::vector<std::string>{"rung", "constraint", "seconds"});
  for (size_t i = 0; i < source.ladder.size(); ++i) {
    std::vector<std::string> row = {source.ladder[i].rung, source.ladder[i].name,
                                    HumanSeconds(source.ladder[i].seconds)};
    if (twin) {
      row.push_back(HumanSeconds(twin->ladder[i].seconds));
      row.push_back(absl::StrFormat("%.3f", source.ladder[i].seconds / twin->ladder[i].seconds));
    }
    table.Row(row);
  }
  absl::StrAppend(&out, table.Text());
  const auto memory = [](absl::string_view who, const Score& s) {
    return absl::StrCat("  ", who, ": parameters ", HumanBytes(s.parameter_bytes), " + cache ",
                        HumanBytes(s.cache_bytes), " of ", HumanBytes(s.memory_bytes),
                        s.feasible ? absl::StrFormat("; at most %.1f tokens/s", s.tokens_per_second)
                                   : absl::StrCat(": does not fit, ", s.shortfall),
                        "\n");
  };
  absl::StrAppend(&out, memory(who, source));
  if (twin) absl::StrAppend(&out, memory("twin  ", *twin));
  if (twin && twin->ladder.back().seconds == source.ladder.back().seconds) {
    absl::StrAppend(&out,
                    "  no bound moves: orientation and fusing change what kernels and layouts cost, which "
                    "bounds do not see\n");
  }
  for (const std::string& note : NotesOf(source)) absl::StrAppend(&out, "  note: ", note, "\n");
  return out;
}

struct ScoreFlags {
  ModelFlags model;
  RecipeFlags recipe;
  std::string phase = "decode";
  int64_t batch = 1;
  int64_t context = 1024;
  std::string routing = "same";
  std::string certificate;
};

absl::StatusOr<Outcome> RunScore(const ScoreFlags& flags) {
  TWIN_RETURN_IF_ERROR(CheckFileIsNew(flags.certificate));
  TWIN_ASSIGN_OR_RETURN(OpenedModel opened, OpenModelOrTwin(flags.model));
  const Graph source = opened.source_graph ? *opened.source_graph : opened.model.graph;
  Workload workload;
  workload.phase = flags.phase == "prefill" ? Phase::kPrefill : Phase::kDecode;
  workload.batch = flags.batch;
  workload.context = flags.context;
  workload.shards = flags.recipe.shards;
  workload.routing = flags.routing == "spread" ? Routing::kSpread : Routing::kSame;
  std::optional<Graph> twin_graph;
  if (opened.source_graph) twin_graph = opened.model.graph;
  if (!flags.recipe.recipe.empty()) {
    TWIN_ASSIGN_OR_RETURN(Twin twin, MakeTwin(flags.recipe.recipe, TargetOf(flags.recipe), opened.model));
    twin_graph = twin.model.graph;
  }
  // A twin may be shardable where its source is not (28 heads on 8 devices): then the source's refusal is the
  // news.
  absl::StatusOr<Score> source_score = ScoreGraph(source, nullptr, flags.recipe.chip, workload);
  std::optional<Score> twin_score;
  if (twin_graph) {
    TWIN_ASSIGN_OR_RETURN(twin_score, ScoreGraph(*twin_graph, &source, flags.recipe.chip, workload));
  }
  if (!source_score.ok() && !twin_score) return source_score.status();
  Outcome outcome;
  if (source_score.ok()) outcome.json = ScoreJson(*source_score);
  outcome.json["chip"] = flags.recipe.chip;
  outcome.json["workload"] = {{"phase", flags.phase},
                              {"batch", flags.batch},
                              {"context", flags.context},
                              {"routing", flags.routing},
                              {"shards", flags.recipe.shards}};
  if (twin_score) outcome.json["twin"] = ScoreJson(*twin_score);
  if (!source_score.ok()) {
    const Diagnostic d = DiagnosticOf(source_score.status()).value_or(Diagnostic());
    outcome.json["source_refused"] = {{"code", absl::StrCat("TF", d.code)},
                                      {"message", d.place + ": " + d.message}};
    outcome.human = absl::StrCat("source: ", d.place, ": ", d.message, "\n",
                                 HumanScore(*twin_score, std::nullopt, "twin"));
  } else {
    outcome.human = HumanScore(*source_score, twin_score);
  }
  TWIN_RETURN_IF_ERROR(
      WriteCertificate(flags.certificate, source, twin_graph, flags.recipe.chip, workload, outcome));
  return outcome;
}

}  // namespace

void AddScore(CLI::App& app, Invocation& invocation) {
  static ScoreFlags flags;
  CLI::App* verb = AddVerb(
      app, invocation, "score",
      "what a chip would charge for one step: counts and bounds, source beside twin",
      "  twinforge score ./model --chip v6e --phase decode --batch 8 --context 2048\n"
      "  twinforge score --from-config config.json --chip v5e --recipe tpu-exact-native --format json\n");
  AddModelFlags(verb, flags.model);
  AddRecipeFlags(verb, flags.recipe, false);
  verb->get_option("--chip")->required();
  verb->add_option("--phase", flags.phase, "prefill or decode")->check(CLI::IsMember({"prefill", "decode"}));
  verb->add_option("--batch", flags.batch, "sequences")->check(CLI::Range(int64_t{1}, int64_t{1} << 24));
  verb->add_option("--context", flags.context, "decode: cached tokens; prefill: new tokens of each sequence")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31));
  verb->add_option("--routing", flags.routing,
                   "experts: same (all tokens choose alike: the least) or spread (as many as can be)")
      ->check(CLI::IsMember({"same", "spread"}));
  verb->add_option("--certificate", flags.certificate,
                   "file to make: what proves the bounds, for `twinforge check`");
  SetRun(verb, invocation, [] { return RunScore(flags); });
}

}  // namespace twinforge
