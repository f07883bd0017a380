#include "recipes/recipe.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/text_format.h>
#include <re2/re2.h>

#include <algorithm>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/diagnostic.h"
#include "base/embedded.h"
#include "base/file.h"
#include "base/first_mistake.h"
#include "base/status_macros.h"
#include "recipes/recipe.pb.h"
#include "recipes/sweep_axes.h"
#include "recipes/values.h"

namespace twinforge {

absl::Span<const EmbeddedFile> Embedded_recipes();

namespace {

using google::protobuf::Descriptor;
using google::protobuf::TextFormat;

constexpr int64_t kLargestRecipe = 1 << 20;
constexpr int kMaxSplices = 8;  // depth of `use` in `use`

std::vector<std::string> FieldNames(const Descriptor* type) {
  std::vector<std::string> names;
  for (int i = 0; i < type->field_count(); ++i) names.push_back(type->field(i)->name());
  return names;
}

// "did you mean" for: Message type "twinforge.PadVocab" has no field named "multipel".
std::string HintFor(const std::string& message) {
  std::string type_name, field;
  if (RE2::PartialMatch(message, R"re(Message type "([\w.]+)" has no field named "([^"]+)")re", &type_name,
                        &field)) {
    const Descriptor* type =
        google::protobuf::DescriptorPool::generated_pool()->FindMessageTypeByName(type_name);
    if (type == nullptr) return "";
    const std::vector<std::string> known = FieldNames(type);
    const std::string nearest = Nearest(field, known);
    if (!nearest.empty()) return absl::StrCat("did you mean \"", nearest, "\"?");
    return absl::StrCat("valid keys here: ", absl::StrJoin(known, ", "));
  }
  std::string value, key;
  if (RE2::PartialMatch(message, R"re(Unknown enumeration value of "([^"]+)" for field "([^"]+)")re", &value,
                        &key)) {
    return absl::StrCat("`twinforge recipe schema` lists the values of ", key);
  }
  return "";
}

// The parser reports where it stood when it gave up, behind the word; the word itself is the better place.
int ColumnOf(absl::string_view text, int line, int column, const std::string& message) {
  std::string word;
  if (!RE2::PartialMatch(message, R"re((?:no field named|Unknown enumeration value of) "([^"]+)")re", &word))
    return column;
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  if (line < 1 || line > static_cast<int>(lines.size())) return column;
  const size_t at = lines[line - 1].rfind(word, static_cast<size_t>(column));
  return at == std::string::npos ? column : static_cast<int>(at) + 1;
}

std::string Sentence(std::string message) {
  message = std::string(absl::StripSuffix(message, "."));
  RE2::GlobalReplace(&message, R"re(Message type "twinforge\.(\w+)" has no field named)re",
                     R"re(\1 has no key named)re");
  return message;
}

absl::StatusOr<Recipe> ParseProto(absl::string_view text, absl::string_view place,
                                  TextFormat::ParseInfoTree* places) {
  Recipe proto;
  FirstMistake errors;
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  parser.WriteLocationsTo(places);
  if (!parser.ParseFromString(std::string(text), &proto)) {
    const int column = ColumnOf(text, errors.line(), errors.column(), errors.message());
    return Error(1101, absl::StrCat(place, ":", errors.line(), ":", column), Sentence(errors.message()),
                 HintFor(errors.message()));
  }
  TWIN_RETURN_IF_ERROR(CheckValues(proto, *places, place));
  return proto;
}

std::string TransformName(const TransformStep& step) {
  const auto* oneof = TransformStep::descriptor()->FindOneofByName("transform");
  const auto* field = TransformStep::GetReflection()->GetOneofFieldDescriptor(step, oneof);
  return field == nullptr ? "" : field->name();
}

std::string OneLine(const TransformStep& step) {
  TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  std::string text;
  printer.PrintToString(step, &text);
  return std::string(absl::StripTrailingAsciiWhitespace(text));
}

absl::Status CheckPattern(const std::string& pattern, absl::string_view place, absl::string_view key) {
  if (pattern.empty()) return absl::OkStatus();
  RE2 re(pattern, RE2::Quiet);
  if (re.ok()) return absl::OkStatus();
  return Error(1102, place, absl::StrCat(key, ": \"", pattern, "\" is no regular expression: ", re.error()),
               "patterns are re2 and match a whole path; a literal dot is written \\\\.");
}

absl::Status CheckWhere(const TransformStep& step, absl::string_view place) {
  const Where& where = step.where();
  TWIN_RETURN_IF_ERROR(CheckPattern(where.path(), place, "where.path"));
  if (!where.op().empty() && !OpKindFromName(where.op()).has_value()) {
    std::vector<std::string> known;
    for (const OpInfo& info : AllOps()) known.push_back(std::string(info.name));
    const std::string nearest = Nearest(where.op(), known);
    return Error(1103, place, absl::StrCat("where.op: there is no op called \"", where.op(), "\""),
                 nearest.empty() ? "" : absl::StrCat("did you mean \"", nearest, "\"?"));
  }
  if (!where.dtype().empty() && !DTypeFromName(where.dtype()).has_value()) {
    return Error(1103, place, absl::StrCat("where.dtype: there is no dtype called \"", where.dtype(), "\""),
                 "dtypes are spelled f32, bf16, f16, f8_e4m3, ...");
  }
  if (where.expect() == Where::COUNT && where.count() <= 0) {
    return Error(1103, place, "where.expect: COUNT needs `count`, a positive number");
  }
  return absl::OkStatus();
}

absl::Status AppendSteps(const Recipe& proto, absl::string_view place,
                         const TextFormat::ParseInfoTree& places, int depth, std::vector<RecipeStep>& steps);

absl::Status Splice(const std::string& name, absl::string_view place, int depth,
                    std::vector<RecipeStep>& steps) {
  if (depth >= kMaxSplices) {
    return Error(1104, place, absl::StrCat("`use: \"", name, "\"` nests more than ", kMaxSplices, " recipes"),
                 "a recipe may not use itself");
  }
  TWIN_ASSIGN_OR_RETURN(std::string text,
                        LibraryRecipeText(std::string(absl::StripPrefix(name, "library/"))));
  TextFormat::ParseInfoTree places;
  TWIN_ASSIGN_OR_RETURN(Recipe proto, ParseProto(text, name, &places));
  return AppendSteps(proto, name, places, depth + 1, steps);
}

absl::Status AppendSteps(const Recipe& proto, absl::string_view place,
                         const TextFormat::ParseInfoTree& places, int depth, std::vector<RecipeStep>& steps) {
  const auto* field = Recipe::descriptor()->FindFieldByName("step");
  for (int i = 0; i < proto.step_size(); ++i) {
    const TransformStep& step = proto.step(i);
    const TextFormat::ParseLocation at = places.GetLocation(field, i);
    const std::string where = absl::StrCat(place, ":", at.line + 1, ":", at.column + 1);
    const std::string transform = TransformName(step);
    if (!step.use().empty()) {
      if (!transform.empty()) return Error(1104, where, "a step has either a transform or `use`, not both");
      if (step.has_where())
        return Error(1104, where, "`where` says where one transform works, and `use` brings many",
                     "write the recipe's steps out, each with its `where`");
      TWIN_RETURN_IF_ERROR(Splice(step.use(), where, depth, steps));
      continue;
    }
    if (transform.empty()) {
      return Error(1104, where, "a step names no transform",
                   "`twinforge recipe schema` lists the transforms");
    }
    TWIN_RETURN_IF_ERROR(CheckWhere(step, where));
    RecipeStep out;
    out.name = absl::StrCat(steps.size() + 1, " ", transform);
    out.place = where;
    out.text = OneLine(step);
    out.parameters = std::make_shared<TransformStep>(step);
    steps.push_back(std::move(out));
  }
  return absl::OkStatus();
}

Fidelity FidelityOf(Require require) {
  switch (require) {
    case MOVED:
      return Fidelity::kMoved;
    case BOUNDED:
      return Fidelity::kBounded;
    case RETRAIN:
      return Fidelity::kRetrain;
    default:
      return Fidelity::kReassociated;
  }
}

// A file that is no recipe is a mistake on the command line, not a damaged checkpoint.
absl::Status AsRecipeError(const absl::Status& status) {
  const std::optional<Diagnostic> d = DiagnosticOf(status);
  if (!d.has_value() || ExitCodeOf(status) != ExitCode::kCorrupt) return status;
  return Error(1112, d->place, d->message, "name a recipe's file, or one of `twinforge recipe list`");
}

}  // namespace

absl::StatusOr<LoadedRecipe> ParseRecipe(absl::string_view text, absl::string_view place) {
  TextFormat::ParseInfoTree places;
  TWIN_ASSIGN_OR_RETURN(Recipe proto, ParseProto(text, place, &places));
  LoadedRecipe recipe;
  recipe.name = proto.name().empty() ? std::string(place) : proto.name();
  recipe.description = proto.description();
  recipe.text = std::string(text);
  recipe.require = FidelityOf(proto.require());
  TWIN_RETURN_IF_ERROR(AppendSteps(proto, place, places, 0, recipe.steps));
  if (recipe.steps.empty()) {
    return Error(1104, place, "the recipe has no step", "write at least one `step { ... }`");
  }
  const auto* field = Recipe::descriptor()->FindFieldByName("sweep");
  for (int i = 0; i < proto.sweep_size(); ++i) {
    const TextFormat::ParseLocation at = places.GetLocation(field, i);
    TWIN_ASSIGN_OR_RETURN(SweepAxis axis,
                          AxisOf(proto.sweep(i), absl::StrCat(place, ":", at.line + 1, ":", at.column + 1)));
    TWIN_RETURN_IF_ERROR(AddAxis(std::move(axis), recipe.sweeps));
  }
  return recipe;
}

absl::StatusOr<LoadedRecipe> LoadRecipe(const std::string& name_or_file) {
  const bool is_file = absl::StrContains(name_or_file, "/") || absl::EndsWith(name_or_file, ".textproto");
  if (is_file) {
    absl::StatusOr<std::string> text = ReadTextFile(name_or_file, kLargestRecipe);
    if (!text.ok()) return AsRecipeError(text.status());
    return ParseRecipe(*text, name_or_file);
  }
  TWIN_ASSIGN_OR_RETURN(std::string text, LibraryRecipeText(name_or_file));
  return ParseRecipe(text, name_or_file);
}

absl::Status CheckRecipe(const LoadedRecipe& recipe, const TransformContext& context) {
  if (!recipe.sweeps.empty()) return SweptRecipe::Of(recipe, recipe.sweeps, context).status();
  for (const RecipeStep& step : recipe.steps) {
    absl::StatusOr<std::unique_ptr<Transform>> transform = MakeTransform(*step.parameters, context);
    if (!transform.ok()) return WithPlace(transform.status(), step.place);
    if ((*transform)->fidelity() < recipe.require) {
      return Error(
          1107, step.place,
          absl::StrCat("step ", step.name, " claims ", FidelityName((*transform)->fidelity()),
                       ", the recipe requires ", FidelityName(recipe.require)),
          absl::StrCat("write `require: ", FidelityName((*transform)->fidelity()), "` if that is meant"));
    }
  }
  return absl::OkStatus();
}

std::vector<std::string> AdapterPaths(const LoadedRecipe& recipe) {
  std::vector<std::string> paths;
  for (const RecipeStep& step : recipe.steps) {
    if (step.parameters->has_merge_lora()) paths.push_back(step.parameters->merge_lora().adapter());
  }
  return paths;
}

std::vector<LibraryRecipe> LibraryRecipes() {
  std::vector<LibraryRecipe> recipes;
  for (const EmbeddedFile& file : Embedded_recipes()) {
    const std::string name(absl::StripSuffix(file.name, ".textproto"));
    absl::StatusOr<LoadedRecipe> recipe = ParseRecipe(file.text, name);
    recipes.push_back({name, recipe.ok() ? recipe->description : std::string(recipe.status().message())});
  }
  return recipes;
}

namespace {

// A name without a folder may have been meant as a file's.
std::string FileHint(absl::string_view name) {
  if (absl::StrContains(name, "/"))
    return "; a file's steps are written out, as `use` knows the library alone";
  return absl::StrCat("; a file is named with its path, ./", name);
}

}  // namespace

absl::StatusOr<std::string> LibraryRecipeText(const std::string& name) {
  std::vector<std::string> known;
  for (const EmbeddedFile& file : Embedded_recipes()) {
    const std::string stem(absl::StripSuffix(file.name, ".textproto"));
    if (stem == name) return std::string(file.text);
    known.push_back(stem);
  }
  const std::string nearest = Nearest(name, known);
  return Error(1108, name, "the library has no recipe of this name",
               nearest.empty() ? absl::StrCat("it has: ", absl::StrJoin(known, ", "), FileHint(name))
                               : absl::StrCat("did you mean \"", nearest, "\"?"));
}

}  // namespace twinforge
