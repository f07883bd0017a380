// twinforge recipe list|show|check|schema: the recipe language and its library.
#include "recipes/recipe.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/embedded.h"
#include "base/status_macros.h"
#include "cli/verb.h"
#include "recipes/run.h"
#include "report/table.h"

namespace twinforge {

absl::Span<const EmbeddedFile> Embedded_recipe_schema();

namespace {

absl::StatusOr<Outcome> List() {
  Outcome outcome;
  Table table({"recipe", "what it does"});
  outcome.json["recipes"] = Json::array();
  for (const LibraryRecipe& recipe : LibraryRecipes()) {
    table.Row({recipe.name, recipe.description});
    outcome.json["recipes"].push_back({{"name", recipe.name}, {"description", recipe.description}});
  }
  outcome.human = table.Text();
  return outcome;
}

absl::StatusOr<Outcome> Show(const std::string& name) {
  Outcome outcome;
  TWIN_ASSIGN_OR_RETURN(LoadedRecipe recipe, LoadRecipe(name));
  outcome.human = recipe.text;
  outcome.json["name"] = recipe.name;
  outcome.json["text"] = recipe.text;
  return outcome;
}

absl::StatusOr<Outcome> Check(const std::string& name) {
  Outcome outcome;
  TWIN_ASSIGN_OR_RETURN(LoadedRecipe recipe, LoadRecipe(name));
  TWIN_RETURN_IF_ERROR(CheckRecipe(recipe, TransformContext()));
  outcome.human = absl::StrCat(recipe.name, ": ", recipe.steps.size(), " steps, requires ",
                               FidelityName(recipe.require), ", valid\n");
  outcome.json["name"] = recipe.name;
  outcome.json["require"] = std::string(FidelityName(recipe.require));
  for (const RecipeStep& step : recipe.steps) {
    absl::StrAppend(&outcome.human, "  ", step.name, "\n");
    outcome.json["steps"].push_back({{"step", step.name}, {"text", step.text}});
  }
  for (const SweepAxis& axis : recipe.sweeps) {
    absl::StrAppend(&outcome.human, "  sweeps ", axis.key, ": ", absl::StrJoin(axis.values, ", "), "\n");
    outcome.json["sweeps"].push_back({{"key", axis.key}, {"values", axis.values}});
  }
  return outcome;
}

absl::StatusOr<Outcome> Schema() {
  Outcome outcome;
  for (const EmbeddedFile& file : Embedded_recipe_schema()) {
    absl::StrAppend(&outcome.human, "// ", file.name, "\n", file.text, "\n");
    outcome.json[std::string(file.name)] = std::string(file.text);
  }
  for (const TransformInfo& info : AllTransforms()) {
    outcome.json["transforms"].push_back(
        {{"name", std::string(info.name)}, {"promise", std::string(info.promise)}});
  }
  return outcome;
}

}  // namespace

void AddRecipe(CLI::App& app, Invocation& invocation) {
  static std::string what = "list";
  static std::string name;
  CLI::App* verb = AddVerb(app, invocation, "recipe", "the recipe library and the recipe language",
                           "  twinforge recipe list\n  twinforge recipe show tpu-exact-native\n"
                           "  twinforge recipe check my.textproto\n  twinforge recipe schema\n");
  verb->add_option("WHAT", what, "list, show, check or schema")
      ->check(CLI::IsMember({"list", "show", "check", "schema"}));
  verb->add_option("RECIPE", name, "for show and check: a library name, or a file");
  SetRun(verb, invocation, []() -> absl::StatusOr<Outcome> {
    const bool of_one = what == "show" || what == "check";
    TWIN_RETURN_IF_ERROR(CheckArgument("twinforge recipe " + what, "RECIPE", of_one, name));
    if (what == "show") return Show(name);
    if (what == "check") return Check(name);
    return what == "schema" ? Schema() : List();
  });
}

}  // namespace twinforge
