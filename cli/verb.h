// What every verb shares: how it is declared, what it returns, how it is printed.
//
// A verb file declares its flags on a CLI11 subcommand and leaves a function that does
// the work by calling the library; it holds no logic of its own. The result goes to
// stdout in the format asked for, everything else to stderr, and the exit status
// follows base/diagnostic.h.
#ifndef TWINFORGE_CLI_VERB_H_
#define TWINFORGE_CLI_VERB_H_

#include <CLI/CLI.hpp>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "base/diagnostic.h"
#include "ir/model.h"

namespace twinforge {

using Json = nlohmann::ordered_json;

struct Outcome {
  ExitCode exit = ExitCode::kDone;
  std::string done;  // what it has left on disk, in a sentence: "the twin is written to ./twin"; or ""
  std::string human;
  std::vector<Json> lines;     // in place of both where there are any: JSON lines
  Json json = Json::object();  // `schema` and `tool_version` are added by the printer
};

struct Invocation {
  std::string verb;
  std::string format = "human";
  std::function<absl::StatusOr<Outcome>()> run;
};

// Adds a subcommand with its examples in the help, and the --format flag.
CLI::App* AddVerb(CLI::App& app, Invocation& invocation, const std::string& name,
                  const std::string& description, const std::string& examples);
// Makes whole numbers of all verbs' flags decimal, whatever they begin with: 010 is ten, 0x10 is refused.
void ReadDecimals(CLI::App& app);
// Refuses flags whose value is empty, as a variable of the shell that was never set leaves it.
void RefuseEmptyValues(CLI::App& app);
// Makes `run` the work of `verb` when it is the one called.
void SetRun(CLI::App* verb, Invocation& invocation, std::function<absl::StatusOr<Outcome>()> run);

// The verbs, one file each.
void AddInspect(CLI::App& app, Invocation& invocation);
void AddPlan(CLI::App& app, Invocation& invocation);
void AddForge(CLI::App& app, Invocation& invocation);
void AddScore(CLI::App& app, Invocation& invocation);
void AddCheck(CLI::App& app, Invocation& invocation);
void AddCompile(CLI::App& app, Invocation& invocation);
void AddAdvise(CLI::App& app, Invocation& invocation);
void AddProve(CLI::App& app, Invocation& invocation);
void AddEval(CLI::App& app, Invocation& invocation);
void AddExport(CLI::App& app, Invocation& invocation);
void AddUnforge(CLI::App& app, Invocation& invocation);
void AddRecipe(CLI::App& app, Invocation& invocation);
void AddChip(CLI::App& app, Invocation& invocation);
void AddExplain(CLI::App& app, Invocation& invocation);
void AddDoctor(CLI::App& app, Invocation& invocation);

// ---- flags that several verbs share

// MODEL, or --from-config FILE, or MODEL with --config FILE.
struct ModelFlags {
  std::string path;
  std::string config;
  std::string from_config;
};
void AddModelFlags(CLI::App* verb, ModelFlags& flags);
// The same for verbs that need tensors: without --from-config.
void AddCheckpointFlags(CLI::App* verb, ModelFlags& flags);
absl::StatusOr<Model> OpenFlags(const ModelFlags& flags);

// --recipe, --chip, --shards, --kernel, --skip-step.
struct RecipeFlags {
  std::string recipe;
  std::string chip;
  int64_t shards = 1;
  std::string kernel;
  std::vector<std::string> skip;
};
void AddRecipeFlags(CLI::App* verb, RecipeFlags& flags, bool required);

// TF1003 where a form of a verb ("twinforge recipe show") has no `argument` and needs one, or has one that it
// does not take.
absl::Status CheckArgument(const std::string& form, const std::string& name, bool wanted,
                           const std::string& argument);

// "2GiB", "256MiB", "1000000": bytes. TF1002 otherwise.
absl::StatusOr<int64_t> ParseBytes(const std::string& text);

}  // namespace twinforge

#endif  // TWINFORGE_CLI_VERB_H_
