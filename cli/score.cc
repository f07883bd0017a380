// twinforge score MODEL --chip C: what a chip would charge for one step, source beside twin; or what an
// engine in steady state gives its clients.
#include "cost/score.h"

#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cli/asymmetry_report.h"
#include "cli/attainable.h"
#include "cli/certify.h"
#include "cli/ladder_report.h"
#include "cli/open.h"
#include "cli/score_flags.h"
#include "cli/score_notes.h"
#include "cli/score_report.h"
#include "cli/score_request.h"
#include "cli/score_sweep.h"
#include "cli/score_table.h"
#include "cli/verb.h"
#include "importers/importer.h"
#include "recipes/run.h"

namespace twinforge {
namespace {

struct Flags {
  ModelFlags model;
  RecipeFlags recipe;
  ScoreFlags score;
  std::string batch_file;
  std::string certificate;
  std::string against;
  std::vector<std::string> given;
  std::string chip_file;
  SweepFlags sweep;
  std::string compiled;
  bool ladder = false;
};

Json WorkloadJson(const ScoreFlags& flags, const ScoreRequest& request) {
  const Workload& w = request.workload;
  Json json = {{"phase", flags.phase}, {"routing", flags.routing}, {"dtype", request.format}};
  const absl::string_view estimated = RoutingWord(EstimatedRouting(w.routing));
  json["estimate_routing"] = std::string(estimated.data(), estimated.size());
  json["mesh"] = MeshText(w.mesh());
  json["shards"] = w.shards;
  if (!flags.kv_dtype.empty()) json["kv_dtype"] = flags.kv_dtype;
  if (!flags.stack.empty()) json["stack"] = flags.stack;
  if (request.serves) {
    json["input_len"] = request.serving.input_len;
    json["output_len"] = request.serving.output_len;
    json["concurrency"] = request.serving.concurrency;
  } else {
    json["batch"] = w.batch;
    json["context"] = w.context;
    if (w.chunk > 0) json["chunk"] = w.chunk;
    if (w.microbatches > 1) json["microbatches"] = w.microbatches;
  }
  return json;
}

// Each estimate's interval, the removal view and the mapping gaps, of a step that fits.
absl::Status AddViews(absl::string_view who, const Forecast& forecast, const ScoreRequest& request,
                      Json& json, std::string& human) {
  if (!forecast.feasible) return absl::OkStatus();
  TWIN_ASSIGN_OR_RETURN(const LadderViews views,
                        ViewsOf(forecast, request.chip, request.stack, request.format));
  AddViewsJson(views, json);
  absl::StrAppend(&human, ViewsText(who, views));
  return absl::OkStatus();
}

absl::StatusOr<Json> Scored(const Graph& graph, const ScoreRequest& request) {
  if (request.serves) {
    TWIN_ASSIGN_OR_RETURN(const ServingForecast forecast,
                          ForecastServing(graph, request.chip, request.workload, request.serving,
                                          request.stack, request.format));
    return ServingJson(forecast);
  }
  TWIN_ASSIGN_OR_RETURN(const Forecast forecast,
                        ForecastStep(graph, nullptr, request.chip, request.workload, request.stack,
                                     request.format, request.deploys));
  Json json = ForecastJson(forecast);
  json.erase("ops");  // of thousands of rows nobody reads them
  std::string human;
  TWIN_RETURN_IF_ERROR(AddViews("", forecast, request, json, human));
  return json;
}

// A refused flag, at the cell that gave it.
absl::Status AtItsFlag(const absl::Status& status, const CsvTable& table, const CsvTable::Row& row) {
  const std::optional<Diagnostic> d = DiagnosticOf(status);
  return d ? Error(d->code, PlaceOfFlag(table, row, d->place), d->message, d->hint) : status;
}

// One JSON line for each row; a row that is refused says so and the others go on. Where all are, nothing was
// scored, and the exit status says that.
absl::StatusOr<Outcome> RunBatch(const Flags& flags) {
  TWIN_ASSIGN_OR_RETURN(const CsvTable table, ReadScoreTable(flags.batch_file));
  std::map<std::string, absl::StatusOr<Model>> models;
  const auto score = [&](const CsvTable::Row& row) -> absl::StatusOr<Json> {
    std::string config = flags.model.from_config;
    TWIN_ASSIGN_OR_RETURN(const ScoreFlags own, FlagsOfRow(flags.score, table, row, config));
    // Flags of the command line are for those rows that take them, where rows have phases of their own.
    std::vector<std::string> given = own.given;
    if (table.Find("phase") < 0) given.insert(given.end(), flags.given.begin(), flags.given.end());
    if (absl::Status fits = CheckPhase(given, own.phase); !fits.ok()) return AtItsFlag(fits, table, row);
    if (config.empty())
      return Error(1003, PlaceOfFlag(table, row, "--from-config"), "no model is named",
                   "give --from-config, or a column of that name");
    if (own.chip.empty())
      return Error(1003, PlaceOfFlag(table, row, "--chip"), "no chip is named",
                   "give --chip, or a column of that name");
    const auto known = models.find(config);
    const absl::StatusOr<Model>& model =
        known != models.end() ? known->second : models.emplace(config, ModelFromConfig(config)).first->second;
    TWIN_RETURN_IF_ERROR(model.status());
    TWIN_ASSIGN_OR_RETURN(const ScoreRequest request, RequestOf(own, model->config));
    TWIN_ASSIGN_OR_RETURN(Json json, Scored(model->graph, request));
    json["chip"] = request.chip;
    json["workload"] = WorkloadJson(own, request);
    AddNotes(model->config, request, json);
    return json;
  };
  Outcome outcome;
  bool scored_any = false, all_usage = true;
  for (size_t i = 0; i < table.rows.size(); ++i) {
    const absl::StatusOr<Json> scored = score(table.rows[i]);
    Json line = scored.ok() ? *scored : Json{{"refused", RefusalJson(scored.status())}};
    scored_any |= scored.ok();
    all_usage &= !scored.ok() && ExitCodeOf(scored.status()) == ExitCode::kUsage;
    line["row"] = i + 1;
    outcome.lines.push_back(std::move(line));
  }
  if (!scored_any) outcome.exit = all_usage ? ExitCode::kUsage : ExitCode::kUnsupported;
  return outcome;
}

absl::StatusOr<Outcome> RunServing(const Graph& graph, const ScoreFlags& flags, const ScoreRequest& request) {
  TWIN_ASSIGN_OR_RETURN(
      const ServingForecast forecast,
      ForecastServing(graph, request.chip, request.workload, request.serving, request.stack, request.format));
  Outcome outcome{.human = ServingText(request.chip, forecast), .json = ServingJson(forecast)};
  outcome.json["chip"] = request.chip;
  outcome.json["workload"] = WorkloadJson(flags, request);
  return outcome;
}

// A twin may be shardable where its source is not (28 heads on 8 devices): then the source's refusal is the
// news.
absl::StatusOr<Outcome> RunSteps(const Graph& source, const std::optional<Graph>& twin_graph,
                                 const ScoreFlags& flags, const ScoreRequest& request) {
  const auto forecast = [&](const Graph& graph, const Graph* useful) {
    return ForecastStep(graph, useful, request.chip, request.workload, request.stack, request.format,
                        request.deploys);
  };
  const absl::StatusOr<Forecast> of_source = forecast(source, nullptr);
  std::optional<Forecast> of_twin;
  if (twin_graph) {
    TWIN_ASSIGN_OR_RETURN(of_twin, forecast(*twin_graph, &source));
  }
  if (!of_source.ok() && !of_twin) return of_source.status();
  Outcome outcome;
  std::string views;
  if (of_source.ok()) {
    outcome.json = ForecastJson(*of_source);
    TWIN_RETURN_IF_ERROR(AddViews(of_twin ? "source" : "", *of_source, request, outcome.json, views));
  }
  outcome.json["chip"] = request.chip;
  outcome.json["workload"] = WorkloadJson(flags, request);
  if (of_twin) {
    outcome.json["twin"] = ForecastJson(*of_twin);
    TWIN_RETURN_IF_ERROR(AddViews("twin", *of_twin, request, outcome.json["twin"], views));
  }
  if (of_source.ok()) {
    outcome.human = ForecastText(*of_source, of_twin) + views;
    return outcome;
  }
  outcome.json["source_refused"] = RefusalJson(of_source.status());
  const Diagnostic d = DiagnosticOf(of_source.status()).value_or(Diagnostic());
  outcome.human = absl::StrCat("source: ", d.place, ": ", d.message, "\n",
                               ForecastText(*of_twin, std::nullopt, "twin"), views);
  return outcome;
}

// The twin's gain on this chip beside its gain on another. Where a chip refuses source or twin there is no
// ratio, and the ladder above stands.
void AddAsymmetry(const Graph& source, const Graph& twin, const std::string& against,
                  const ScoreRequest& request, Outcome& outcome) {
  const absl::StatusOr<Asymmetry> asymmetry =
      AsymmetryOf(source, twin, request.chip, against, request.workload, request.stack, request.format);
  if (asymmetry.ok()) {
    outcome.json["asymmetry"] = AsymmetryJson(*asymmetry);
    absl::StrAppend(&outcome.human, AsymmetryText(*asymmetry));
    return;
  }
  outcome.json["asymmetry"] = {{"refused", RefusalJson(asymmetry.status())}};
  const Diagnostic d = DiagnosticOf(asymmetry.status()).value_or(Diagnostic());
  absl::StrAppend(&outcome.human, "no asymmetry against ", against, ": ", d.place, ": ", d.message, "\n");
}

// --against asks what a twin gains: it needs a twin, and a chip that is known.
absl::Status CheckAgainst(const Flags& flags, bool has_twin) {
  if (flags.against.empty()) return absl::OkStatus();
  TWIN_RETURN_IF_ERROR(FindChip(flags.against).status());
  if (!has_twin)
    return Error(1003, "--against", "compares what a twin gains, and there is none",
                 "give --recipe, or a twin's folder");
  return absl::OkStatus();
}

absl::StatusOr<Outcome> RunScore(Flags flags) {
  // Rows of a table may each name their chip.
  const bool table = !flags.batch_file.empty();
  if (!table || !flags.chip_file.empty())
    TWIN_RETURN_IF_ERROR(TakeUpChip("score", flags.chip_file, flags.recipe.chip));
  flags.score.chip = flags.recipe.chip;
  flags.score.shards = flags.recipe.shards;
  TWIN_RETURN_IF_ERROR(CheckCompany(flags.given));
  if (table) return RunBatch(flags);
  TWIN_RETURN_IF_ERROR(CheckPhase(flags.given, flags.score.phase));
  TWIN_RETURN_IF_ERROR(CheckFileIsNew(flags.certificate));
  TWIN_ASSIGN_OR_RETURN(OpenedModel opened, OpenModelOrTwin(flags.model));
  if (flags.sweep.asked())
    return ScoreSweep(opened.model, flags.score, flags.recipe, flags.against, flags.sweep);
  TWIN_ASSIGN_OR_RETURN(const ScoreRequest request, RequestOf(flags.score, opened.model.config));
  const Graph source = opened.source_graph ? *opened.source_graph : opened.model.graph;
  std::optional<Graph> twin_graph;
  if (opened.source_graph) twin_graph = opened.model.graph;
  if (!flags.recipe.recipe.empty()) {
    TwinTarget target = TargetOf(flags.recipe);
    target.shards = request.workload.shards;
    TWIN_ASSIGN_OR_RETURN(Twin twin, MakeTwin(flags.recipe.recipe, target, opened.model));
    twin_graph = twin.model.graph;
  }
  TWIN_RETURN_IF_ERROR(CheckAgainst(flags, twin_graph.has_value()));
  TWIN_ASSIGN_OR_RETURN(Outcome outcome,
                        request.serves ? RunServing(twin_graph ? *twin_graph : source, flags.score, request)
                                       : RunSteps(source, twin_graph, flags.score, request));
  AddNotes(opened.model.config, request, outcome);
  const Graph& compiled = twin_graph ? *twin_graph : source;
  if (flags.ladder && flags.compiled.empty()) {
    const std::string folder = flags.recipe.recipe.empty() ? flags.model.path : "";
    TWIN_RETURN_IF_ERROR(SayLadder(folder, compiled, request.chip, request.workload, outcome));
  }
  TWIN_RETURN_IF_ERROR(SayCompiled(flags.compiled, compiled, request.chip, request.workload, outcome));
  TWIN_RETURN_IF_ERROR(WriteCertificate(flags.certificate, source, twin_graph, request, outcome));
  if (!flags.against.empty()) AddAsymmetry(source, *twin_graph, flags.against, request, outcome);
  return outcome;
}

void AddScoreFlags(CLI::App* verb, Flags& flags) {
  ScoreFlags& score = flags.score;
  constexpr int64_t kMost = int64_t{1} << 31;
  verb->add_option("--phase", score.phase,
                   "prefill, decode, mixed (a prompt's chunk beside decoding sequences), train, or serve: an "
                   "engine in steady state")
      ->check(CLI::IsMember({"prefill", "decode", "mixed", "serve", "train"}));
  verb->add_flag("--rematerialise", score.rematerialise,
                 "train: layers keep their input alone and run again");
  verb->add_option("--batch", score.batch, "sequences")->check(CLI::Range(int64_t{1}, int64_t{1} << 24));
  verb->add_option("--context", score.context,
                   "decode, mixed: cached tokens; prefill, train: new tokens of each sequence")
      ->check(CLI::Range(int64_t{1}, kMost));
  verb->add_option("--past", score.past, "prefill, mixed: tokens of the prompt cached before")
      ->check(CLI::Range(int64_t{0}, kMost));
  verb->add_option("--chunk", score.chunk, "mixed: new tokens of one prompt in each group of dp")
      ->check(CLI::Range(int64_t{1}, kMost));
  verb->add_option("--microbatches", score.microbatches,
                   "equal parts of the batch that pass pipeline stages one after the other")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24));
  verb->add_option("--chips", score.chips, "devices; without --mesh all of them are tensor-parallel")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  verb->add_option("--mesh", score.mesh,
                   "axes: tp=8, tp=1,dp=8,ep=8, tp=4,pp=2, sp=4; dp=2@dcn crosses slices");
  verb->add_option("--dtype", score.dtype,
                   "format of the layers' kernels: bf16, fp8, fp8_block, int8, int4, nvfp4, mxfp4");
  verb->add_option("--activation-dtype", score.activation_dtype,
                   "type that those kernels meet; as --dtype otherwise");
  verb->add_option("--kv-dtype", score.kv_dtype, "type of the cache; the model's otherwise");
  verb->add_option("--stack", score.stack,
                   "serving engine whose measured constants hold: vllm, trtllm, sglang, jax");
  verb->add_option("--input-len", score.serving.input_len, "serve: tokens of a prompt")
      ->check(CLI::Range(int64_t{1}, kMost));
  verb->add_option("--output-len", score.serving.output_len, "serve: tokens of an answer")
      ->check(CLI::Range(int64_t{1}, kMost));
  verb->add_option("--concurrency", score.serving.concurrency,
                   "serve: clients that each wait for their answer")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24));
  verb->add_option("--routing", score.routing,
                   "experts in the bounds: same (all tokens choose alike: the least), expected (at random) "
                   "or spread (as many as can be)")
      ->check(CLI::IsMember({"same", "expected", "spread"}));
  verb->add_option("--certificate", flags.certificate,
                   "file to make: what proves the bounds, for `twinforge check`");
  verb->add_option(
      "--compiled", flags.compiled,
      "a record that `twinforge compile` wrote of this model and step: the compiler's cycles, as a rung");
  verb->add_flag(
      "--ladder", flags.ladder,
      "the ladder with its compiled rung, from the record that lies in MODEL, or that of --compiled");
  verb->add_option("--against", flags.against,
                   "another chip: what the twin gains on --chip beyond what it gains there");
  verb->add_option("--chip-file", flags.chip_file,
                   "a chip file of yours: its chip, where --chip names no other");
  verb->add_flag("--sweep", flags.sweep.sweep,
                 "scores every combination of the recipe's `sweep { ... }`: what nothing beats");
  verb->add_option("--vary", flags.sweep.vary,
                   "sweeps this key too: pad_ffn.multiple=128,256, batch=8..64:8, mesh=tp=4,dp=2; may be "
                   "given again");
  verb->add_option("--threads", flags.sweep.threads, "sweep: workers; the result does not depend on it")
      ->check(CLI::Range(1, 256));
  verb->add_option("--batch-file", flags.batch_file,
                   "a CSV whose columns are named like these flags: a JSON line for each row");
}

}  // namespace

void AddScore(CLI::App& app, Invocation& invocation) {
  static Flags flags;
  CLI::App* verb = AddVerb(
      app, invocation, "score",
      "what a chip would charge: counts, bounds and estimates of a step, source beside twin; or steady-state "
      "serving",
      "  twinforge score ./model --chip v6e --phase decode --batch 8 --context 2048\n"
      "  twinforge score --from-config config.json --chip v5e --recipe tpu-exact-native --format json\n"
      "  twinforge score --from-config config.json --chip h200_sxm --chips 8 --mesh tp=8 --phase serve "
      "--stack vllm \\\n"
      "      --input-len 1024 --output-len 1024 --concurrency 64\n");
  AddModelFlags(verb, flags.model);
  AddRecipeFlags(verb, flags.recipe, false);
  AddScoreFlags(verb, flags);
  SetRun(verb, invocation, [verb] {
    flags.given = GivenOn(*verb);
    return RunScore(flags);
  });
}

}  // namespace twinforge
