// twinforge export MODEL --to stablehlo: the model as code for a compiler, with the list of its arguments;
// --to onnx: the model as an ONNX file with its weights beside it.
// Of an ONNX file without a recipe: the same file again (onnx_again.h).

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "cli/export_as_onnx.h"
#include "cli/new_folder.h"
#include "cli/onnx_again.h"
#include "cli/open.h"
#include "cli/places.h"
#include "cli/verb.h"
#include "ir/text.h"
#include "onnx/read.h"
#include "reference/kept_groups.h"
#include "reference/stablehlo/stablehlo.h"
#include "weights/text.h"

namespace twinforge {
namespace {

struct ExportFlags {
  ModelFlags model;
  RecipeFlags recipe;
  OnnxExportFlags onnx;
  std::string to, phase = "both", logits = "each", dtype, out;
  int64_t batch = 1, context = 1024, sequence = 0;
  bool parts = false;
  WriteFlags write;
};

// Where a weight is found: the stored tensor that it is, or how it is made of several.
void AddSource(const StableHloArgument& argument, Json& row) {
  if (argument.program->kind() == WeightKind::kSource) {
    row["tensor"] = argument.program->source_name();
  } else {
    row["program"] = Text(argument.program);
  }
  row["roles"] = argument.roles;
}

Json ArgumentsJson(const StableHloModule& module, const StableHloOptions& options) {
  Json json = Json::object();
  json["schema"] = "twinforge.stablehlo.v1";
  json["module"] = module.name;
  json["phase"] = options.phase == StableHloPhase::kDecode ? "decode" : "prefill";
  json["batch"] = options.batch;
  json["sequence"] = options.sequence;
  json["context"] = options.context;
  json["mesh"] = Json::object();
  for (const auto& [name, size] : module.mesh) json["mesh"][name] = size;
  json["arguments"] = Json::array();
  for (const StableHloArgument& argument : module.arguments) {
    Json row = {{"name", argument.name},
                {"kind", std::string(StableHloKindName(argument.kind))},
                {"dtype", std::string(Name(argument.dtype))},
                {"shape", argument.shape}};
    if (!module.mesh.empty() && !argument.split.empty()) row["split"] = argument.split;
    if (argument.kind == StableHloArgument::Kind::kWeight) AddSource(argument, row);
    if (argument.result >= 0) row["result"] = argument.result;
    json["arguments"].push_back(std::move(row));
  }
  json["results"] = Json::array();
  for (const StableHloResult& result : module.results) {
    json["results"].push_back(
        {{"name", result.name}, {"dtype", std::string(Name(result.dtype))}, {"shape", result.shape}});
  }
  return json;
}

using NewFiles = std::vector<std::pair<std::string, std::string>>;  // names and texts

std::vector<StableHloOptions> OptionsOf(const ExportFlags& flags) {
  std::vector<StableHloOptions> all;
  StableHloOptions options;
  options.batch = flags.batch;
  options.context = flags.context;
  if (flags.logits == "last") options.logits = StableHloLogits::kLast;
  if (!flags.dtype.empty()) options.dtype = DTypeFromName(flags.dtype);
  if (flags.phase != "decode") {
    options.phase = StableHloPhase::kPrefill;
    options.sequence = flags.sequence == 0 ? flags.context : flags.sequence;
    all.push_back(options);
  }
  if (flags.phase != "prefill") {
    options.phase = StableHloPhase::kDecode;
    options.sequence = flags.sequence == 0 || flags.phase == "both" ? 1 : flags.sequence;
    all.push_back(options);
  }
  return all;
}

void Add(const StableHloModule& module, const StableHloOptions& options, Json extra, NewFiles& files,
         Outcome& outcome) {
  Json json = ArgumentsJson(module, options);
  for (auto& [key, value] : extra.items()) json[key] = value;
  files.push_back({module.name + ".mlir", module.text});
  files.push_back(
      {module.name + ".arguments.json", json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"});
  Json row = {
      {"file", module.name + ".mlir"}, {"bytes", module.text.size()}, {"arguments", module.arguments.size()}};
  for (auto& [key, value] : extra.items()) row[key] = value;
  outcome.json["modules"].push_back(std::move(row));
  absl::StrAppend(&outcome.human, module.name, ".mlir  ", module.arguments.size(), " arguments, ",
                  module.results.size(), " results, ", module.text.size(), " bytes\n");
}

// `notes`: what is said beside the modules.
absl::StatusOr<Model> ModelOf(const ExportFlags& flags, std::vector<std::string>& notes) {
  TWIN_ASSIGN_OR_RETURN(OpenedModel opened, OpenModelOrTwin(flags.model));
  if (flags.to != "onnx") {  // an ONNX graph is of no length
    TWIN_RETURN_IF_ERROR(CheckPlaces(opened.model.graph, flags.context, "--context"));
    notes = NotesOnPlaces(opened.model.config, flags.context);
  }
  if (flags.recipe.recipe.empty()) {
    if (flags.recipe.shards != 1)
      return Error(1003, "--shards", "does nothing without --recipe",
                   "a twin's folder is split as it was forged; --recipe tpu-exact-native splits a model");
    return std::move(opened.model);
  }
  TWIN_ASSIGN_OR_RETURN(Twin twin, MakeTwin(flags.recipe.recipe, TargetOf(flags.recipe), opened.model));
  return std::move(twin.model);
}

// A flag of the other target is refused, not passed over.
absl::Status CheckOfTarget(const CLI::App& verb) {
  const bool onnx = verb.get_option("--to")->as<std::string>() == "onnx";
  static constexpr const char* kOfOnnx[] = {"--opset", "--memory", "--threads"};
  static constexpr const char* kOfStableHlo[] = {"--phase",    "--batch",  "--context",
                                                 "--sequence", "--logits", "--parts"};
  for (const char* flag : onnx ? absl::MakeConstSpan(kOfStableHlo) : absl::MakeConstSpan(kOfOnnx)) {
    if (verb.count(flag) == 0) continue;
    return Error(1003, flag, absl::StrCat("does nothing with --to ", onnx ? "onnx" : "stablehlo"));
  }
  return absl::OkStatus();
}

// Weights of which few are kept, as the manifest of a twin tells: its tensors hold the zeros.
absl::StatusOr<std::map<std::string, KeptGroups>> KeptOf(const ExportFlags& flags) {
  std::map<std::string, KeptGroups> kept;
  if (flags.model.path.empty() || !flags.recipe.recipe.empty() || !IsTwin(flags.model.path)) return kept;
  TWIN_ASSIGN_OR_RETURN(const TwinManifest manifest, OpenManifest(flags.model.path));
  TWIN_ASSIGN_OR_RETURN(const Graph graph, ParseGraph(manifest.graph));
  for (const auto& [role, param] : graph.params()) {
    if (const auto groups = KeptGroupsOf(param)) kept.emplace(role, *groups);
  }
  return kept;
}

// An ONNX file goes out as it came in.
absl::StatusOr<Outcome> WriteOnnxAgain(const CLI::App& verb, const ExportFlags& flags) {
  for (const char* of_the_house :
       {"--chip", "--shards", "--kernel", "--skip-step", "--config", "--phase", "--batch", "--context",
        "--sequence", "--logits", "--dtype", "--parts", "--opset", "--memory", "--threads"}) {
    if (verb.count(of_the_house) > 0) {
      return Error(1003, of_the_house, "is not of an ONNX file that is written again",
                   "leave it out; --store and --data-layout say what may change");
    }
  }
  return ExportOnnxFile(flags.model.path, flags.onnx, flags.out);
}

absl::StatusOr<Outcome> RunExport(const CLI::App& verb, const ExportFlags& flags) {
  if (flags.to == "onnx" && IsOnnxPath(flags.model.path) && flags.recipe.recipe.empty())
    return WriteOnnxAgain(verb, flags);
  if (AnyIsSet(flags.onnx)) {
    return Error(1003, "--store, --data-layout and --integrity",
                 "are of an ONNX file that is written again: --to onnx without --recipe");
  }
  TWIN_RETURN_IF_ERROR(CheckOfTarget(verb));
  std::vector<std::string> notes;
  TWIN_ASSIGN_OR_RETURN(Model model, ModelOf(flags, notes));
  if (flags.to == "onnx") {
    WriteFlags write = flags.write;
    write.to = "onnx";
    write.onnx.dtype = flags.dtype;
    return ExportAsOnnx(model, write, flags.out);
  }
  const Graph graph = std::move(model.graph);
  Outcome outcome;
  outcome.json["modules"] = Json::array();
  NewFiles files;
  TWIN_ASSIGN_OR_RETURN(const auto kept, KeptOf(flags));
  for (StableHloOptions options : OptionsOf(flags)) {
    options.kept = kept;
    if (flags.parts) {
      TWIN_ASSIGN_OR_RETURN(const std::vector<StableHloPart> parts, WriteStableHloParts(graph, options));
      for (const StableHloPart& part : parts) {
        Add(part.module, options, Json{{"part", part.name}, {"members", part.members}}, files, outcome);
      }
    } else {
      TWIN_ASSIGN_OR_RETURN(const StableHloModule module, WriteStableHlo(graph, options));
      Add(module, options, Json::object(), files, outcome);
    }
  }
  TWIN_RETURN_IF_ERROR(WriteNewFolder(files, flags.out));
  outcome.done = absl::StrCat("the modules are written to ", flags.out);
  outcome.json["out"] = flags.out;
  absl::StrAppend(&outcome.human, "written to ", flags.out, "\n");
  outcome.json["notes"] = notes;
  for (const std::string& note : notes) absl::StrAppend(&outcome.human, "note: ", note, "\n");
  return outcome;
}

}  // namespace

void AddExport(CLI::App& app, Invocation& invocation) {
  static ExportFlags flags;
  constexpr int64_t kMost = int64_t{1} << 30;
  CLI::App* verb = AddVerb(
      app, invocation, "export",
      "the model as code for a compiler: StableHLO, and which tensor each argument is; or as an ONNX file",
      "  twinforge export ./twin --to stablehlo --batch 8 --context 2048 --out ./mlir\n"
      "  twinforge export --from-config config.json --recipe tpu-exact-native --shards 8 --to stablehlo "
      "--parts --out ./mlir\n"
      "  twinforge export ./twin --to onnx --out ./onnx\n"
      "  twinforge export model.onnx --to onnx --store '.*weight=bf16' --out ./small\n");
  AddModelFlags(verb, flags.model);
  AddRecipeFlags(verb, flags.recipe, false);
  verb->add_option("--to", flags.to,
                   "stablehlo or onnx; of an ONNX file without --recipe onnx is the same model again")
      ->required()
      ->check(CLI::IsMember({"stablehlo", "onnx"}));
  verb->add_option("--phase", flags.phase, "prefill, decode or both")
      ->check(CLI::IsMember({"prefill", "decode", "both"}));
  verb->add_option("--batch", flags.batch, "sequences")->check(CLI::Range(int64_t{1}, int64_t{1} << 24));
  verb->add_option("--context", flags.context, "places of the cache, those of the new tokens among them")
      ->check(CLI::Range(int64_t{1}, kMost));
  verb->add_option("--sequence", flags.sequence,
                   "new tokens of each sequence; prefill: as many as the context, decode: 1")
      ->check(CLI::Range(int64_t{1}, kMost));
  verb->add_option("--logits", flags.logits, "of each new token, or of the last one")
      ->check(CLI::IsMember({"each", "last"}));
  verb->add_option("--dtype", flags.dtype, "computes in f32, bf16, f16 or f64; default: the model's own")
      ->check(CLI::IsMember({"f64", "f32", "bf16", "f16"}));
  verb->add_flag("--parts", flags.parts,
                 "in place of the whole: what precedes the layers, one layer of each kind, "
                 "what follows them");
  AddOpsetFlag(verb, flags.write.onnx.opset);
  AddWorkFlags(verb, flags.write);
  AddOnnxExportFlags(verb, flags.onnx);
  verb->add_option("--out", flags.out, "folder to make; must not exist")->required();
  SetRun(verb, invocation, [verb] { return RunExport(*verb, flags); });
}

}  // namespace twinforge
