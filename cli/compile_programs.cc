#include "cli/compile_programs.h"

#include "absl/strings/str_cat.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "reference/stablehlo/stablehlo.h"

namespace twinforge {
namespace {

std::string MembersText(const std::vector<std::string>& members) {
  if (members.size() < 2) return "";
  return absl::StrCat(members.front(), members.size() > 2 ? " ... " : " ", members.back());
}

bool SameArguments(const CompiledModule& module, const ProgramToCompile& program) {
  if (module.arguments_size() != static_cast<int>(program.arguments.size())) return false;
  for (int i = 0; i < module.arguments_size(); ++i) {
    const size_t at = static_cast<size_t>(i);
    if (module.arguments(i).name() != program.arguments[at] ||
        module.arguments(i).kind() != program.kinds[at])
      return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<std::vector<ProgramToCompile>> ProgramsOf(const Graph& graph,
                                                         const CompiledWorkload& workload) {
  const bool decodes = workload.phase == "decode";
  const StableHloOptions options = {.phase = decodes ? StableHloPhase::kDecode : StableHloPhase::kPrefill,
                                    .batch = workload.batch,
                                    .sequence = decodes ? 1 : workload.context,
                                    .context = workload.context};
  TWIN_ASSIGN_OR_RETURN(std::vector<StableHloPart> parts, WriteStableHloParts(graph, options));
  std::vector<ProgramToCompile> programs;
  for (StableHloPart& part : parts) {
    ProgramToCompile& program = programs.emplace_back();
    program.about.set_kind(part.name);
    program.about.set_count(static_cast<int64_t>(part.members.size()));
    program.about.set_note(MembersText(part.members));
    program.text = std::move(part.module.text);
    for (const StableHloArgument& argument : part.module.arguments) {
      program.arguments.push_back(argument.name);
      program.kinds.push_back(std::string(StableHloKindName(argument.kind)));
    }
  }
  return programs;
}

CompiledWorkload WorkloadOf(const CompileRecord& record) {
  return {.phase = record.phase(), .batch = record.batch(), .context = record.context()};
}

absl::StatusOr<std::optional<NotAttainable>> WhyNotAttainable(const CompileRecord& record,
                                                              const Graph& graph) {
  const auto other = [](std::string reason) -> std::optional<NotAttainable> {
    return NotAttainable{.code = 2109, .reason = std::move(reason)};
  };
  const CompiledWorkload workload = WorkloadOf(record);
  if ((workload.phase != "decode" && workload.phase != "prefill") || workload.batch < 1 ||
      workload.context < 1)
    return other("the record is of a program from a file, not of a model");
  TWIN_ASSIGN_OR_RETURN(const std::vector<ProgramToCompile> programs, ProgramsOf(graph, workload));
  const auto& modules = record.twin().modules();
  if (modules.size() != static_cast<int>(programs.size()))
    return other(absl::StrCat("the record has ", modules.size(), " programs, the twin ", programs.size()));
  for (int i = 0; i < modules.size(); ++i) {
    const ProgramToCompile& program = programs[static_cast<size_t>(i)];
    const std::string kind = program.about.kind();
    if (modules[i].program_sha256() != Sha256Hex(program.text) || modules[i].kind() != kind)
      return other(absl::StrCat("the record is of another program than the twin's ", kind));
    if (modules[i].count() != program.about.count())
      return other(absl::StrCat("the record counts ", kind, " ", modules[i].count(),
                                " times, the twin has it ", program.about.count(), " times"));
    if (!modules[i].error().empty())
      return NotAttainable{.reason = absl::StrCat("the compiler refuses ", kind, ": ", modules[i].error())};
    if (!SameArguments(modules[i], program))
      return other(absl::StrCat("the record has other arguments than the twin's ", kind));
  }
  return std::nullopt;
}

}  // namespace twinforge
