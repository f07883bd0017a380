// twinforge compile: what the TPU compiler makes of a twin beside its source, without a TPU.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/json_reader.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "base/version.h"
#include "cli/certify.h"
#include "cli/compile_predicted.h"
#include "cli/compile_programs.h"
#include "cli/compile_report.h"
#include "cli/new_folder.h"
#include "cli/open.h"
#include "cli/places.h"
#include "cli/score_flags.h"
#include "cli/verb.h"
#include "compiler/answer_store.h"
#include "compiler/hlo_record.h"
#include "compiler/option_names.h"
#include "compiler/record_file.h"
#include "cost/certificate_graph.h"
#include "cost/shape.h"
#include "recipes/recipe.h"
#include "recipes/run.h"
#include "reference/stablehlo/device_mesh.h"

namespace twinforge {
namespace {

constexpr int64_t kLargestProgram = 256 << 20;

// The source, cut as the twin is and changed in nothing else.
constexpr char kSplitOnly[] =
    "name: \"split-only\" description: \"The source, split over devices.\" require: MOVED "
    "step { shard_by_role { shards_of_chip: SHARDS } }";

struct CompileFlags {
  ModelFlags model;
  RecipeFlags recipe;
  std::string program, source_program;
  std::string topology, compiler, out, cache;
  std::vector<std::string> options;
  CompiledWorkload workload;
  int timeout = 600;
  std::vector<std::string> given;
};

// cost/shape.h for an array that may lie as the compiler likes; 0: it says nothing.
int64_t PredictPadded(int64_t bits, absl::Span<const int64_t> dims) {
  if (bits != 4 && bits % 8 != 0) return 0;
  for (const int64_t dim : dims)
    if (dim == 0) return 0;
  const Exact bytes = PaddedBytes(bits, dims);
  return bytes.ok() ? bytes.value() : 0;
}

class Compiling {
 public:
  static absl::StatusOr<Compiling> Begin(const CompileFlags& flags) {
    Compiling compiling;
    CompilerQuestion& question = compiling.question_;
    TWIN_ASSIGN_OR_RETURN(question.topology, ParseTopology(flags.topology));
    TWIN_ASSIGN_OR_RETURN(question.flags, ParseCompilerFlags(flags.options));
    TWIN_ASSIGN_OR_RETURN(question.library, FindCompilerLibrary(flags.compiler));
    question.seconds = flags.timeout;
    compiling.cache_ = flags.cache;
    CompileRecord& record = compiling.record_;
    record.set_tool_version(kVersion);
    record.set_compiler(question.library.version);
    record.set_topology(question.topology.name);
    record.set_chip(question.topology.chip);
    for (const auto& [name, value] : question.flags) {
      CompileRecord::Option& option = *record.add_options();
      option.set_name(name);
      option.set_value(value);
    }
    return compiling;
  }

  CompileRecord& record() { return record_; }

  absl::Status Compile(const ProgramToCompile& program, CompiledModel& model) {
    question_.program = program.text;
    TWIN_ASSIGN_OR_RETURN(const CompilerAnswer answer, AskOrRecall(question_, cache_));
    record_.set_interface(absl::StrCat(answer.interface_major(), ".", answer.interface_minor()));
    record_.set_platform_version(answer.platform_version());
    record_.set_devices(answer.topology_devices());
    TWIN_ASSIGN_OR_RETURN(CompiledModule module,
                          ReadAnswer(answer, {.names = program.arguments, .padded = PredictPadded}));
    TWIN_RETURN_IF_ERROR(CheckOptions(module.error(), question_.flags, question_.library.path));
    TWIN_ASSIGN_OR_RETURN(const int64_t partitions, PartitionsOf(program.text));
    const int known = std::min<int>(module.arguments_size(), static_cast<int>(program.kinds.size()));
    for (int i = 0; i < known; ++i)
      module.mutable_arguments(i)->set_kind(program.kinds[static_cast<size_t>(i)]);
    module.set_partitions(partitions);
    module.set_program_sha256(Sha256Hex(program.text));
    module.set_kind(program.about.kind());
    module.set_count(program.about.count());
    module.set_note(program.about.note());
    *model.add_modules() = std::move(module);
    return absl::OkStatus();
  }

  absl::Status CompileGraph(const Graph& graph, const CompiledWorkload& workload, CompiledModel& model) {
    TWIN_ASSIGN_OR_RETURN(const std::vector<ProgramToCompile> programs, ProgramsOf(graph, workload));
    model.set_graph_sha256(CertifiedHash(graph));
    for (const ProgramToCompile& program : programs) TWIN_RETURN_IF_ERROR(Compile(program, model));
    return absl::OkStatus();
  }

 private:
  CompilerQuestion question_;
  std::string cache_;
  CompileRecord record_;
};

// ---- programs from files

absl::StatusOr<ProgramToCompile> ProgramOfFile(const std::string& path) {
  ProgramToCompile program;
  TWIN_ASSIGN_OR_RETURN(program.text, ReadTextFile(path, kLargestProgram));
  program.about.set_kind("program");
  program.about.set_count(1);
  return program;
}

// The compiler's words for a text that it cannot read, which is no refusal of a program.
absl::Status CheckIsProgram(const CompiledModule& module, const std::string& path) {
  for (const absl::string_view unread :
       {"Failed to parse using StableHLO", "requires module with `main` function"}) {
    if (!absl::StrContains(module.error(), unread)) continue;
    const std::string first = module.error().substr(0, module.error().find('\n'));
    return Error(2112, path, absl::StrCat("is no StableHLO module: ", JsonQuoted(first, 300)),
                 "`twinforge export --to stablehlo` writes modules");
  }
  return absl::OkStatus();
}

absl::Status CompileFile(const std::string& path, Compiling& compiling, CompiledModel& model) {
  TWIN_ASSIGN_OR_RETURN(const ProgramToCompile program, ProgramOfFile(path));
  TWIN_RETURN_IF_ERROR(compiling.Compile(program, model));
  return CheckIsProgram(model.modules(0), path);
}

absl::Status CompileFiles(const CompileFlags& flags, Compiling& compiling) {
  TWIN_RETURN_IF_ERROR(CompileFile(flags.program, compiling, *compiling.record().mutable_twin()));
  if (flags.source_program.empty()) return absl::OkStatus();
  return CompileFile(flags.source_program, compiling, *compiling.record().mutable_source());
}

// ---- models

struct GraphsToCompile {
  Graph twin;
  std::optional<Graph> source;  // beside a twin
  std::string source_refused;   // why the source cannot be split as the twin is
};

absl::StatusOr<Graph> SplitOnly(Model source, const CompileFlags& flags) {
  if (flags.recipe.shards == 1) return std::move(source.graph);
  TWIN_ASSIGN_OR_RETURN(LoadedRecipe recipe, ParseRecipe(kSplitOnly, "split-only"));
  TWIN_ASSIGN_OR_RETURN(Twin split, MakeTwinBy(std::move(recipe), TargetOf(flags.recipe), std::move(source)));
  for (const StepReport& step : split.report.steps) {
    for (const Refusal& refusal : step.refused) return Error(1702, refusal.path, refusal.reason);
  }
  return std::move(split.model.graph);
}

// Over how many devices a graph is split already.
absl::StatusOr<int64_t> ShardsOf(const Graph& graph) {
  TWIN_ASSIGN_OR_RETURN(const DeviceMesh mesh, MeshOf(graph));
  int64_t devices = 1;
  for (const auto& [axis, size] : mesh.axes) devices *= size;
  return devices;
}

absl::StatusOr<GraphsToCompile> GraphsOf(CompileFlags& flags) {
  TWIN_ASSIGN_OR_RETURN(OpenedModel opened, OpenModelOrTwin(flags.model));
  TWIN_RETURN_IF_ERROR(CheckPlaces(opened.model.graph, flags.workload.context, "--context"));
  GraphsToCompile graphs;
  Model source = opened.model;
  if (!flags.recipe.recipe.empty()) {
    TWIN_ASSIGN_OR_RETURN(Twin twin,
                          MakeTwin(flags.recipe.recipe, TargetOf(flags.recipe), std::move(opened.model)));
    graphs.twin = std::move(twin.model.graph);
  } else if (opened.source_graph) {
    graphs.twin = std::move(opened.model.graph);
    TWIN_ASSIGN_OR_RETURN(const int64_t devices, ShardsOf(graphs.twin));
    if (flags.recipe.shards != 1 && flags.recipe.shards != devices)
      return Error(1003, "--shards", absl::StrCat("the twin is split over ", devices),
                   "leave it out, or forge a twin for other devices");
    flags.recipe.shards = devices;
    source.graph = *std::move(opened.source_graph);
  } else {
    TWIN_ASSIGN_OR_RETURN(graphs.twin, SplitOnly(std::move(source), flags));
    return graphs;
  }
  absl::StatusOr<Graph> split = SplitOnly(std::move(source), flags);
  if (split.ok()) {
    graphs.source = *std::move(split);
  } else {
    const Diagnostic d = DiagnosticOf(split.status()).value_or(Diagnostic());
    graphs.source_refused = absl::StrCat(d.place, ": ", d.message);
  }
  return graphs;
}

absl::Status CompileModel(const CompileFlags& flags, const GraphsToCompile& graphs, Compiling& compiling) {
  CompileRecord& record = compiling.record();
  record.set_phase(flags.workload.phase);
  record.set_batch(flags.workload.batch);
  record.set_context(flags.workload.context);
  record.set_shards(flags.recipe.shards);
  TWIN_RETURN_IF_ERROR(compiling.CompileGraph(graphs.twin, flags.workload, *record.mutable_twin()));
  if (!graphs.source_refused.empty()) record.mutable_source()->set_refused(graphs.source_refused);
  if (!graphs.source) return absl::OkStatus();
  return compiling.CompileGraph(*graphs.source, flags.workload, *record.mutable_source());
}

// ---- the record

// Beside the twin an older record is replaced at once; elsewhere the name must be new.
absl::Status WriteRecord(const CompileFlags& flags, const std::string& path, const CompileRecord& record) {
  const std::string text = CompileRecordText(record);
  if (!flags.out.empty()) return WriteNewFile(path, text);
  const std::string fresh = absl::StrCat(path, ".new");
  std::remove(fresh.c_str());
  TWIN_RETURN_IF_ERROR(WriteNewFile(fresh, text));
  if (std::rename(fresh.c_str(), path.c_str()) == 0) return absl::OkStatus();
  const int why = errno;
  std::remove(fresh.c_str());
  return Error(1607, path, absl::StrCat("the compile record cannot be written: ", std::strerror(why)));
}

std::string RecordPath(const CompileFlags& flags) {
  if (!flags.out.empty()) return flags.out;
  const bool beside = flags.program.empty() && flags.recipe.recipe.empty() && !flags.model.path.empty();
  return beside && IsTwin(flags.model.path) ? absl::StrCat(flags.model.path, "/", kCompileRecordName) : "";
}

// A program from a file is what it is: flags that make or cut one say nothing of it.
absl::Status CheckBesideProgram(const std::vector<std::string>& given) {
  for (const absl::string_view flag : {"--config", "--recipe", "--chip", "--shards", "--kernel",
                                       "--skip-step", "--phase", "--batch", "--context"}) {
    if (std::find(given.begin(), given.end(), flag) != given.end())
      return Error(1003, flag, "does not go with --program",
                   "the program has its step and its sizes already; give a MODEL to make one");
  }
  return absl::OkStatus();
}

absl::Status CheckCompileFlags(const CompileFlags& flags) {
  const bool has_model = !flags.model.path.empty() || !flags.model.from_config.empty();
  if (has_model == !flags.program.empty())
    return Error(1003, "compile", "takes a MODEL (or --from-config), or --program FILE", "give one of them");
  if (!flags.source_program.empty() && flags.program.empty())
    return Error(1003, "--source-program", "is compared with --program, and there is none");
  if (flags.topology.empty())
    return Error(1003, "compile", "--topology is required",
                 "as --topology v6e:2x2: a generation and its chips");
  if (!flags.program.empty()) TWIN_RETURN_IF_ERROR(CheckBesideProgram(flags.given));
  return CheckFileIsNew(flags.out);
}

// Compiles what was named and says what came of it.
absl::StatusOr<Outcome> Compiled(CompileFlags& flags, Compiling& compiling) {
  const CompileRecord& record = compiling.record();
  if (!flags.program.empty()) {
    TWIN_RETURN_IF_ERROR(CompileFiles(flags, compiling));
    return Outcome{.human = CompileText(record), .json = CompileJson(record)};
  }
  if (flags.recipe.chip.empty()) flags.recipe.chip = record.chip();
  TWIN_ASSIGN_OR_RETURN(const GraphsToCompile graphs, GraphsOf(flags));
  TWIN_RETURN_IF_ERROR(CompileModel(flags, graphs, compiling));
  Outcome outcome = {.human = CompileText(record), .json = CompileJson(record)};
  if (graphs.source)
    SayPredicted("source", record.source(), *graphs.source, flags.workload, flags.recipe.shards, outcome);
  SayPredicted("twin", record.twin(), graphs.twin, flags.workload, flags.recipe.shards, outcome);
  return outcome;
}

absl::StatusOr<Outcome> RunCompile(CompileFlags flags) {
  TWIN_RETURN_IF_ERROR(CheckCompileFlags(flags));
  TWIN_ASSIGN_OR_RETURN(Compiling compiling, Compiling::Begin(flags));
  TWIN_ASSIGN_OR_RETURN(Outcome outcome, Compiled(flags, compiling));
  const CompileRecord& record = compiling.record();
  // Of the source a refusal is news; of the twin it is a finding.
  if (SumsOf(record.twin()).refused > 0) outcome.exit = ExitCode::kFindings;
  const std::string path = RecordPath(flags);
  if (path.empty()) return outcome;
  TWIN_RETURN_IF_ERROR(WriteRecord(flags, path, record));
  outcome.done = absl::StrCat("the compile record is written to ", path);
  outcome.json["record"] = path;
  absl::StrAppend(&outcome.human, "record: ", path, "\n");
  return outcome;
}

}  // namespace

void AddCompile(CLI::App& app, Invocation& invocation) {
  static CompileFlags flags;
  CLI::App* verb = AddVerb(
      app, invocation, "compile",
      "what the TPU compiler makes of a model, without a TPU: cycles, memory, layouts, copies, collectives",
      "  twinforge compile ./twin --topology v6e:2x2 --batch 8 --context 2048\n"
      "  twinforge compile --from-config config.json --recipe tpu-exact-native --topology v5e:2x4 --shards "
      "8\n"
      "  twinforge compile --program layer.mlir --topology v6e:2x2\n");
  AddModelFlags(verb, flags.model);
  AddRecipeFlags(verb, flags.recipe, false);
  verb->add_option("--topology", flags.topology, "devices to compile for: v6e:2x2, v5p:2x2x1, v6e:1x1");
  verb->add_option("--phase", flags.workload.phase, "prefill or decode")
      ->check(CLI::IsMember({"prefill", "decode"}));
  verb->add_option("--batch", flags.workload.batch, "sequences")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24));
  verb->add_option("--context", flags.workload.context,
                   "decode: places of the cache; prefill: new tokens of each sequence")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  verb->add_option("--program", flags.program, "a StableHLO module, as text, in place of a model");
  verb->add_option("--source-program", flags.source_program, "another, to compare the first with");
  verb->add_option("--compiler", flags.compiler, "libtpu.so; else it is looked for where pip puts it");
  verb->add_option("--option", flags.options, "a flag of the compiler, NAME=VALUE; may be repeated");
  verb->add_option("--cache", flags.cache,
                   "a folder of the compiler's answers: what it has answered is not asked again");
  verb->add_option("--timeout", flags.timeout, "seconds for each program")->check(CLI::Range(1, 86400));
  verb->add_option("--out", flags.out,
                   "file to make: the compile record; of a twin's folder, it is laid there");
  SetRun(verb, invocation, [verb] {
    flags.given = GivenOn(*verb);
    return RunCompile(flags);
  });
}

}  // namespace twinforge
