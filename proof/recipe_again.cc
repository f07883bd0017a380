#include "proof/recipe_again.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/diagnostic.h"
#include "base/json_reader.h"
#include "base/status_macros.h"
#include "base/version.h"
#include "ir/text.h"
#include "proof/departure.h"

namespace twinforge {
namespace {

constexpr absl::string_view kCheck = "recipe";
constexpr int64_t kQuoted = 120;

ProofRow RecipeRow(absl::string_view subject, Verdict verdict, std::string detail) {
  return {std::string(kCheck), std::string(subject), verdict, std::move(detail)};
}

std::string WhyNot(const absl::Status& status) {
  const std::optional<Diagnostic> d = DiagnosticOf(status);
  if (!d.has_value()) return std::string(status.message());
  return absl::StrCat("TF", d->code, " ", d->place, d->place.empty() ? "" : ": ", d->message);
}

// "" for equal texts, else their first line that differs.
std::string Difference(absl::string_view said, absl::string_view found) {
  if (said == found) return "";
  const std::vector<absl::string_view> a = absl::StrSplit(said, '\n'), b = absl::StrSplit(found, '\n');
  size_t line = 0;
  while (line < a.size() && line < b.size() && a[line] == b[line]) ++line;
  if (line < a.size() && line < b.size())
    return absl::StrCat("line ", line + 1, ": ", PartedLines(a[line], b[line]));
  return absl::StrCat("line ", line + 1, ": the manifest says ",
                      line < a.size() ? JsonQuoted(a[line], kQuoted) : "nothing", ", it is ",
                      line < b.size() ? JsonQuoted(b[line], kQuoted) : "nothing");
}

ProofRow Compared(absl::string_view subject, absl::string_view said, absl::string_view found) {
  std::string difference = Difference(said, found);
  const Verdict verdict = difference.empty() ? Verdict::kProven : Verdict::kRefuted;
  return RecipeRow(subject, verdict, std::move(difference));
}

TwinTarget TargetIn(const TwinManifest& manifest) {
  const Provenance& from = manifest.provenance;
  TwinTarget target;
  target.chip = from.chip;
  target.shards = from.shards;
  target.kernel = from.kernel;
  target.skip.insert(from.skipped.begin(), from.skipped.end());
  target.published = manifest.target == Target::kHf;
  return target;
}

// The version of the tool that wrote a manifest cannot be derived. What a later one means by its rows, this
// one cannot know.
ProofRow CheckVersion(absl::string_view said) {
  const auto number = [](absl::string_view text, std::vector<int64_t>& parts) {
    for (absl::string_view part : absl::StrSplit(text, '.')) {
      if (part.empty() || part.size() > 9 || !absl::c_all_of(part, absl::ascii_isdigit) ||
          !absl::SimpleAtoi(part, &parts.emplace_back())) {
        return false;
      }
    }
    return parts.size() == 3;
  };
  std::vector<int64_t> theirs, ours;
  if (!number(said, theirs)) {
    return RecipeRow("tool_version", Verdict::kRefuted,
                     absl::StrCat(JsonQuoted(said, kQuoted), " is no version of this tool"));
  }
  if (number(kVersion, ours) && theirs > ours) {
    return RecipeRow("tool_version", Verdict::kIncomplete,
                     absl::StrCat("the manifest is of version ", said, ", and this is ", kVersion,
                                  ": prove it with that one"));
  }
  return RecipeRow("tool_version", Verdict::kProven, "taken on trust");
}

ProofRow CheckKernel(absl::string_view said) {
  if (said.empty() || said == "paged") return RecipeRow("kernel", Verdict::kProven, "");
  return RecipeRow("kernel", Verdict::kRefuted, absl::StrCat(JsonQuoted(said, kQuoted), " is no kernel"));
}

// What the recipe makes of the source now, beside what the manifest says that it made.
void CompareWithTwin(const TwinManifest& manifest, const Twin& twin, std::vector<ProofRow>& rows) {
  const Provenance& from = manifest.provenance;
  rows.push_back(Compared("graph", manifest.graph, Text(twin.model.graph)));
  rows.push_back(Compared("name", from.recipe_name, twin.recipe.name));
  rows.push_back(
      Compared("steps", absl::StrJoin(from.steps, "\n"), absl::StrJoin(StepLines(twin.report), "\n")));
  rows.push_back(
      Compared("fidelity", absl::StrCat(from.fidelity, " ", from.bound),
               absl::StrCat(FidelityName(twin.report.fidelity), " ", BoundText(twin.report.bound))));
}

}  // namespace

RecipeAgain RunRecipeAgain(const TwinManifest& manifest, const std::vector<std::string>& adapters,
                           const Model& source) {
  const Provenance& from = manifest.provenance;
  RecipeAgain again;
  again.rows.push_back(CheckVersion(manifest.tool_version));
  again.rows.push_back(CheckKernel(from.kernel));
  again.rows.push_back(Compared("source_graph", from.source_graph, Text(source.graph)));
  absl::StatusOr<LoadedRecipe> recipe = ParseRecipe(from.recipe_text, from.recipe_name);
  if (!recipe.ok()) {
    again.rows.push_back(RecipeRow("text", Verdict::kRefuted, WhyNot(recipe.status())));
    return again;
  }
  TwinTarget target = TargetIn(manifest);
  const std::vector<std::string> paths = AdapterPaths(*recipe);
  if (paths.size() != adapters.size()) {
    again.rows.push_back(RecipeRow("adapters", Verdict::kIncomplete,
                                   absl::StrCat("the recipe merges ", paths.size(), ", and ", adapters.size(),
                                                " were given with --adapter: it was not run again")));
    return again;
  }
  for (size_t i = 0; i < paths.size(); ++i) target.adapters[paths[i]] = adapters[i];
  absl::StatusOr<Twin> twin = MakeTwinBy(*std::move(recipe), target, source);
  if (!twin.ok()) {
    const Verdict verdict = source.has_bytes() ? Verdict::kRefuted : Verdict::kIncomplete;
    again.rows.push_back(
        RecipeRow("text", verdict, absl::StrCat("it does not run on the source: ", WhyNot(twin.status()))));
    return again;
  }
  CompareWithTwin(manifest, *twin, again.rows);
  again.twin = *std::move(twin);
  return again;
}

}  // namespace twinforge
