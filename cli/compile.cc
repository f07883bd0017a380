// twinforge compile: what the TPU compiler makes of a twin's programs, without a TPU.
#include <functional>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "base/version.h"
#include "cli/certify.h"
#include "cli/compile_report.h"
#include "cli/verb.h"
#include "compiler/ask.h"
#include "compiler/hlo_record.h"
#include "compiler/record_file.h"
#include "cost/shape.h"

namespace twinforge {
namespace {

constexpr int64_t kLargestProgram = 256 << 20;

struct CompileFlags {
  std::string program;
  std::string source_program;
  std::string topology;
  std::string compiler;
  std::vector<std::string> options;
  int timeout = 600;
  std::string out;
};

// One program to compile, and what is known of it beforehand.
struct Job {
  CompiledModule about;  // kind, count, note
  std::string program;
  std::vector<std::string> arguments;
};

// cost/shape.h for an array that may lie as the compiler likes.
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
    if (flags.topology.empty())
      return Error(1003, "compile", "--topology is required",
                   "as --topology v6e:2x2: a generation and its chips");
    TWIN_ASSIGN_OR_RETURN(question.topology, ParseTopology(flags.topology));
    TWIN_ASSIGN_OR_RETURN(question.flags, ParseCompilerFlags(flags.options));
    TWIN_ASSIGN_OR_RETURN(question.library, FindCompilerLibrary(flags.compiler));
    question.seconds = flags.timeout;
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

  absl::Status Compile(const Job& job, CompiledModel& model) {
    question_.program = job.program;
    TWIN_ASSIGN_OR_RETURN(const CompilerAnswer answer, AskCompiler(question_));
    record_.set_interface(absl::StrCat(answer.interface_major(), ".", answer.interface_minor()));
    record_.set_platform_version(answer.platform_version());
    record_.set_devices(answer.topology_devices());
    TWIN_ASSIGN_OR_RETURN(CompiledModule module,
                          ReadAnswer(answer, {.names = job.arguments, .padded = PredictPadded}));
    TWIN_ASSIGN_OR_RETURN(const int64_t partitions, PartitionsOf(job.program));
    module.set_partitions(partitions);
    module.set_program_sha256(Sha256Hex(job.program));
    module.set_kind(job.about.kind());
    module.set_count(job.about.count());
    module.set_note(job.about.note());
    *model.add_modules() = std::move(module);
    return absl::OkStatus();
  }

 private:
  CompilerQuestion question_;
  CompileRecord record_;
};

absl::StatusOr<Job> JobOfFile(const std::string& path) {
  Job job;
  TWIN_ASSIGN_OR_RETURN(job.program, ReadTextFile(path, kLargestProgram));
  job.about.set_kind("program");
  job.about.set_count(1);
  return job;
}

absl::Status CompilePrograms(const CompileFlags& flags, Compiling& compiling) {
  TWIN_ASSIGN_OR_RETURN(const Job program, JobOfFile(flags.program));
  TWIN_RETURN_IF_ERROR(compiling.Compile(program, *compiling.record().mutable_twin()));
  if (flags.source_program.empty()) return absl::OkStatus();
  TWIN_ASSIGN_OR_RETURN(const Job source, JobOfFile(flags.source_program));
  return compiling.Compile(source, *compiling.record().mutable_source());
}

absl::StatusOr<Outcome> RunCompile(const CompileFlags& flags) {
  if (flags.program.empty()) return Error(1003, "compile", "--program is required");
  TWIN_RETURN_IF_ERROR(CheckFileIsNew(flags.out));
  TWIN_ASSIGN_OR_RETURN(Compiling compiling, Compiling::Begin(flags));
  TWIN_RETURN_IF_ERROR(CompilePrograms(flags, compiling));
  const CompileRecord& record = compiling.record();
  Outcome outcome = {.human = CompileText(record), .json = CompileJson(record)};
  // Of the source a refusal is news; of the twin it is a finding.
  if (SumsOf(record.twin()).refused > 0) outcome.exit = ExitCode::kFindings;
  if (flags.out.empty()) return outcome;
  TWIN_RETURN_IF_ERROR(WriteNewFile(flags.out, CompileRecordText(record)));
  outcome.done = absl::StrCat("the compile record is written to ", flags.out);
  absl::StrAppend(&outcome.human, "record: ", flags.out, "\n");
  return outcome;
}

}  // namespace

void AddCompile(CLI::App& app, Invocation& invocation) {
  static CompileFlags flags;
  CLI::App* verb =
      AddVerb(app, invocation, "compile",
              "what the TPU compiler makes of a program, without a TPU: cycles, memory, layouts, copies",
              "  twinforge compile --program layer.mlir --topology v6e:2x2\n");
  verb->add_option("--program", flags.program, "a StableHLO module, as text");
  verb->add_option("--source-program", flags.source_program, "another, to compare the first with");
  verb->add_option("--topology", flags.topology, "devices to compile for: v6e:2x2, v5p:2x2x1, v6e:1x1");
  verb->add_option("--compiler", flags.compiler, "libtpu.so; else it is looked for where pip puts it");
  verb->add_option("--option", flags.options, "a flag of the compiler, NAME=VALUE; may be repeated");
  verb->add_option("--timeout", flags.timeout, "seconds for each program")->check(CLI::Range(1, 86400));
  verb->add_option("--out", flags.out, "file to make: the compile record");
  SetRun(verb, invocation, [] { return RunCompile(flags); });
}

}  // namespace twinforge
