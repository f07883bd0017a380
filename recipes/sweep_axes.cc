#include "recipes/sweep_axes.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/diagnostic.h"
#include "base/json_reader.h"
#include "base/status_macros.h"
#include "recipes/recipe.pb.h"

namespace twinforge {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr absl::string_view kStepAxes[] = {"batch", "mesh", "chips", "dtype", "activation-dtype", "kv-dtype"};
constexpr int64_t kMostValues = 10000;  // of one key

absl::Status BadAxis(const SweepAxis& axis, absl::string_view message, absl::string_view hint = "") {
  return Error(1113, absl::StrCat(axis.place, ": ", JsonQuoted(axis.key, 100)), message, hint);
}

absl::Status AddRange(int64_t from, int64_t to, int64_t by, SweepAxis& axis) {
  // The distance of any two numbers is one without a sign.
  const uint64_t span = static_cast<uint64_t>(to) - static_cast<uint64_t>(from);
  if (by < 1 || from > to || span / static_cast<uint64_t>(by) >= static_cast<uint64_t>(kMostValues))
    return BadAxis(
        axis, absl::StrCat(from, " to ", to, " by ", by, " is no range of 1 to ", kMostValues, " values"),
        "write range { from: 128 to: 512 by: 128 }, on the command line 128..512:128");
  const auto steps = static_cast<int64_t>(span / static_cast<uint64_t>(by));
  for (int64_t i = 0; i <= steps; ++i) axis.values.push_back(absl::StrCat(from + i * by));
  return absl::OkStatus();
}

absl::Status CheckAxis(const SweepAxis& axis) {
  if (axis.key.empty()) return BadAxis(axis, "a sweep has no key", "write key: \"pad_ffn.multiple\"");
  if (axis.values.empty())
    return BadAxis(axis, "has no values", "give one of number: [...], word: [...] and range { ... }");
  if (static_cast<int64_t>(axis.values.size()) > kMostValues)
    return BadAxis(axis, absl::StrCat("has more than ", kMostValues, " values"));
  std::set<std::string> seen;
  for (const std::string& value : axis.values) {
    if (value.empty()) return BadAxis(axis, "has an empty value", "write each value between commas, as 8,16");
    if (!seen.insert(value).second)
      return BadAxis(axis, absl::StrCat(JsonQuoted(value, 100), " is among its values twice"));
  }
  return absl::OkStatus();
}

// "128..512:128" -> three numbers.
bool ParseRange(absl::string_view text, int64_t& from, int64_t& to, int64_t& by) {
  const std::pair<absl::string_view, absl::string_view> ends = absl::StrSplit(text, absl::MaxSplits("..", 1));
  const std::pair<absl::string_view, absl::string_view> rest =
      absl::StrSplit(ends.second, absl::MaxSplits(':', 1));
  return absl::SimpleAtoi(ends.first, &from) && absl::SimpleAtoi(rest.first, &to) &&
         absl::SimpleAtoi(rest.second, &by);
}

std::string TransformNameOf(const RecipeStep& step) { return step.name.substr(step.name.find(' ') + 1); }

std::string Nearby(const std::string& word, const std::vector<std::string>& known, absl::string_view what) {
  const std::string nearest = Nearest(word, known);
  if (!nearest.empty()) return absl::StrCat("did you mean \"", nearest, "\"?");
  return absl::StrCat(what, ": ", absl::StrJoin(known, ", "));
}

// The keys that a sweep may name: one value each.
std::vector<std::string> SingleKeys(const Descriptor& type) {
  std::vector<std::string> keys;
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor* field = type.field(i);
    if (!field->is_repeated() && field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE)
      keys.push_back(field->name());
  }
  return keys;
}

const FieldDescriptor* TransformField(const TransformStep& step) {
  const auto* oneof = TransformStep::descriptor()->FindOneofByName("transform");
  return TransformStep::GetReflection()->GetOneofFieldDescriptor(step, oneof);
}

// A number stands in the place of a fact of the chip, and the other way round: `multiple` and `to_multiple`
// beside `multiple_of_chip`.
void ClearOtherSpelling(const std::string& key, Message& message) {
  const std::string stem(absl::StripSuffix(key, "_of_chip"));
  const std::string bare(absl::StripPrefix(stem, "to_"));
  for (const std::string& other : {bare, absl::StrCat("to_", bare), absl::StrCat(bare, "_of_chip")}) {
    const FieldDescriptor* field = message.GetDescriptor()->FindFieldByName(other);
    if (field != nullptr && other != key) message.GetReflection()->ClearField(&message, field);
  }
}

// Sets one key; whether the value means anything the parser says, which reads the step again.
absl::Status SetValue(const SweepAxis& axis, const FieldDescriptor& field, const std::string& value,
                      Message& message) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  const auto no_value = [&](absl::string_view what) {
    return BadAxis(axis, absl::StrCat(JsonQuoted(value, 100), " is ", what));
  };
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT64: {
      int64_t number = 0;
      if (!absl::SimpleAtoi(value, &number)) return no_value("no number");
      const bool layer = absl::EndsWith(field.name(), "_layer");
      if (number < (layer ? 0 : 1)) return no_value(layer ? "no layer's number" : "not positive");
      reflection.SetInt64(&message, &field, number);
      break;
    }
    case FieldDescriptor::CPPTYPE_ENUM: {
      const auto* choice = field.enum_type()->FindValueByName(value);
      if (choice == nullptr || absl::EndsWith(value, "UNSET"))
        return no_value(absl::StrCat("none of ", field.name(), "'s values"));
      reflection.SetEnum(&message, &field, choice);
      break;
    }
    case FieldDescriptor::CPPTYPE_BOOL:
      if (value != "true" && value != "false") return no_value("neither true nor false");
      reflection.SetBool(&message, &field, value == "true");
      break;
    case FieldDescriptor::CPPTYPE_STRING:
      reflection.SetString(&message, &field, value);
      break;
    default:
      return no_value("of a kind that no step takes");
  }
  ClearOtherSpelling(field.name(), message);
  return absl::OkStatus();
}

// The message that `keys` leads into, and the field at its end.
Message* MessageAt(const std::vector<std::string>& keys, TransformStep& step) {
  if (keys.size() == 2) return step.mutable_where();
  return TransformStep::GetReflection()->MutableMessage(&step, TransformField(step));
}

std::shared_ptr<const RecipeStep> WithParameters(const RecipeStep& step, TransformStep parameters) {
  google::protobuf::TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  RecipeStep out = step;
  printer.PrintToString(parameters, &out.text);
  out.text = std::string(absl::StripTrailingAsciiWhitespace(out.text));
  out.parameters = std::make_shared<TransformStep>(std::move(parameters));
  return std::make_shared<const RecipeStep>(std::move(out));
}

// A diagnostic about a step that nobody wrote: where the values stand says more.
absl::Status AtAxis(const absl::Status& status, const SweepAxis& axis, const std::string& value) {
  const std::optional<Diagnostic> d = DiagnosticOf(status);
  if (!d) return status;
  return Error(d->code, absl::StrCat(axis.place, ": ", axis.key, " ", JsonQuoted(value, 100)), d->message,
               d->hint);
}

}  // namespace

absl::StatusOr<SweepAxis> AxisOf(const Sweep& sweep, absl::string_view place) {
  SweepAxis axis{.key = sweep.key(), .place = std::string(place.data(), place.size())};
  const int kinds = (sweep.number_size() > 0) + (sweep.word_size() > 0) + sweep.has_range();
  if (kinds > 1) return BadAxis(axis, "has several kinds of values", "keep one of number, word and range");
  for (const int64_t number : sweep.number()) axis.values.push_back(absl::StrCat(number));
  axis.values.insert(axis.values.end(), sweep.word().begin(), sweep.word().end());
  const Sweep::Range& range = sweep.range();
  if (sweep.has_range()) TWIN_RETURN_IF_ERROR(AddRange(range.from(), range.to(), range.by(), axis));
  TWIN_RETURN_IF_ERROR(CheckAxis(axis));
  return axis;
}

absl::StatusOr<SweepAxis> ParseVary(absl::string_view text, absl::string_view place) {
  SweepAxis axis{.place = std::string(place.data(), place.size())};
  const size_t equals = text.find('=');
  if (equals == absl::string_view::npos || equals == 0 || equals + 1 == text.size())
    return Error(1113, place, absl::StrCat(JsonQuoted(std::string(text), 100), " is no KEY=VALUE,VALUE"),
                 "write pad_ffn.multiple=128,256 or batch=8,16");
  axis.key = std::string(text.substr(0, equals));
  const absl::string_view values = text.substr(equals + 1);
  int64_t from = 0, to = 0, by = 0;
  if (ParseRange(values, from, to, by)) {
    TWIN_RETURN_IF_ERROR(AddRange(from, to, by, axis));
  } else if (axis.key == "mesh") {
    axis.values.push_back(std::string(values));
  } else {
    axis.values = absl::StrSplit(values, ',');
  }
  TWIN_RETURN_IF_ERROR(CheckAxis(axis));
  return axis;
}

absl::Status AddAxis(SweepAxis axis, std::vector<SweepAxis>& axes) {
  for (const SweepAxis& earlier : axes) {
    if (earlier.key == axis.key)
      return BadAxis(axis, "is swept twice", absl::StrCat("the other stands at ", earlier.place));
  }
  axes.push_back(std::move(axis));
  return absl::OkStatus();
}

absl::Span<const absl::string_view> StepAxisNames() { return kStepAxes; }

bool IsStepAxis(const SweepAxis& axis) {
  const std::string name = absl::StrReplaceAll(axis.key, {{"_", "-"}});
  return std::find(std::begin(kStepAxes), std::end(kStepAxes), name) != std::end(kStepAxes);
}

absl::StatusOr<SweptRecipe> SweptRecipe::Of(LoadedRecipe recipe, std::vector<SweepAxis> axes,
                                            const TransformContext& context) {
  SweptRecipe swept;
  swept.recipe_ = std::move(recipe);
  swept.recipe_.sweeps.clear();
  for (SweepAxis& axis : axes) {
    if (IsStepAxis(axis)) continue;
    TWIN_ASSIGN_OR_RETURN(Bound bound, swept.Bind(axis));
    swept.bound_.push_back(std::move(bound));
    swept.axes_.push_back(std::move(axis));
  }
  // The first values, then every other one alone.
  std::vector<size_t> choice(swept.axes_.size(), 0);
  TWIN_RETURN_IF_ERROR(swept.Check(choice, 0, context));
  for (size_t i = 0; i < choice.size(); ++i) {
    for (choice[i] = 1; choice[i] < swept.axes_[i].values.size(); ++choice[i])
      TWIN_RETURN_IF_ERROR(swept.Check(choice, i, context));
    choice[i] = 0;
  }
  return swept;
}

absl::Status SweptRecipe::Check(absl::Span<const size_t> choice, size_t suspect,
                                const TransformContext& context) const {
  TWIN_ASSIGN_OR_RETURN(const auto steps, Steps(choice));
  for (size_t at = 0; at < steps.size(); ++at) {
    if (steps[at] == nullptr) continue;
    absl::Status checked =
        ParseRecipe(absl::StrCat("step { ", steps[at]->text, " }"), steps[at]->place).status();
    if (checked.ok())
      checked =
          CheckRecipe({.name = recipe_.name, .require = recipe_.require, .steps = {*steps[at]}}, context);
    if (checked.ok()) continue;
    // Of this step's axes the one that the message names, else the suspect, else any; without one the recipe
    // itself is at fault.
    const Diagnostic d = DiagnosticOf(checked).value_or(Diagnostic());
    const auto weight = [&](size_t i) {
      const bool named = !bound_[i].keys.empty() &&
                         absl::StrContains(absl::StrCat(d.place, d.message), bound_[i].keys.back());
      return (named ? 2 : 0) + (i == suspect ? 1 : 0);
    };
    size_t guilty = bound_.size();
    for (size_t i = 0; i < bound_.size(); ++i) {
      if (bound_[i].step == at && (guilty == bound_.size() || weight(i) > weight(guilty))) guilty = i;
    }
    if (guilty == bound_.size()) return checked;
    return AtAxis(checked, axes_[guilty], axes_[guilty].values[choice[guilty]]);
  }
  return absl::OkStatus();
}

absl::StatusOr<SweptRecipe::Bound> SweptRecipe::Bind(const SweepAxis& axis) const {
  std::vector<std::string> parts = absl::StrSplit(axis.key, '.');
  int64_t position = 0;  // from 1; 0: not said
  if (absl::SimpleAtoi(parts[0], &position)) {
    if (position < 1 || position > static_cast<int64_t>(recipe_.steps.size()))
      return BadAxis(axis, absl::StrCat("the recipe has no step ", position),
                     "`twinforge recipe check` numbers them");
    parts.erase(parts.begin());
  }
  const std::string transform = parts.empty() ? "" : parts[0];
  std::vector<size_t> found;
  std::vector<std::string> known(std::begin(kStepAxes), std::end(kStepAxes));
  for (size_t i = 0; i < recipe_.steps.size(); ++i) {
    known.push_back(TransformNameOf(recipe_.steps[i]));
    if (known.back() == transform && (position == 0 || position == static_cast<int64_t>(i) + 1))
      found.push_back(i);
  }
  if (found.empty())
    return BadAxis(axis, "is neither a step of the recipe nor a part of the question",
                   Nearby(transform, known, "what may be swept"));
  if (found.size() > 1)
    return BadAxis(axis, absl::StrCat("the recipe has ", found.size(), " steps of this name"),
                   absl::StrCat("put its position before it, ", found[0] + 1, ".", axis.key));
  Bound bound{.step = found[0], .keys = {parts.begin() + 1, parts.end()}};
  const TransformStep& step = *recipe_.steps[bound.step].parameters;
  const bool where = bound.keys.size() == 2 && bound.keys[0] == "where";
  if (bound.keys.size() > (where ? 2 : 1))
    return BadAxis(axis, "names no key of a step",
                   "write STEP.KEY, STEP.where.KEY, or STEP alone for on and off");
  if (bound.keys.empty()) {
    for (const std::string& value : axis.values) {
      if (value != "on" && value != "off")
        return BadAxis(axis, absl::StrCat(JsonQuoted(value, 100), " is neither on nor off"),
                       absl::StrCat("a key of it is written ", axis.key, ".KEY"));
    }
    return bound;
  }
  const Descriptor& type = where ? *Where::descriptor() : *TransformField(step)->message_type();
  const std::vector<std::string> keys = SingleKeys(type);
  if (std::find(keys.begin(), keys.end(), bound.keys.back()) == keys.end())
    return BadAxis(
        axis, absl::StrCat(transform, " has no key of one value called ", JsonQuoted(bound.keys.back(), 100)),
        Nearby(bound.keys.back(), keys, "keys that may be swept"));
  if (step.has_merge_lora() && !where)
    return BadAxis(axis, "an adapter is opened once", "score the recipe with each adapter");
  return bound;
}

absl::StatusOr<std::vector<std::shared_ptr<const RecipeStep>>> SweptRecipe::Steps(
    absl::Span<const size_t> choice) const {
  std::vector<std::shared_ptr<const RecipeStep>> steps;
  for (size_t at = 0; at < recipe_.steps.size(); ++at) {
    bool changed = false, on = true;
    TransformStep parameters;
    for (size_t i = 0; i < bound_.size(); ++i) {
      if (bound_[i].step != at) continue;
      const std::string& value = axes_[i].values[choice[i]];
      if (bound_[i].keys.empty()) {
        on &= value == "on";
        continue;
      }
      if (!std::exchange(changed, true)) parameters = *recipe_.steps[at].parameters;
      Message* const message = MessageAt(bound_[i].keys, parameters);
      const FieldDescriptor* field = message->GetDescriptor()->FindFieldByName(bound_[i].keys.back());
      TWIN_RETURN_IF_ERROR(SetValue(axes_[i], *field, value, *message));
    }
    if (!on)
      steps.push_back(nullptr);
    else if (changed)
      steps.push_back(WithParameters(recipe_.steps[at], std::move(parameters)));
    else
      steps.push_back(std::make_shared<const RecipeStep>(recipe_.steps[at]));
  }
  return steps;
}

size_t SweptRecipe::SharedSteps(absl::Span<const size_t> a, absl::Span<const size_t> b) const {
  size_t shared = recipe_.steps.size();
  for (size_t i = 0; i < bound_.size(); ++i) {
    if (a[i] != b[i]) shared = std::min(shared, bound_[i].step);
  }
  return shared;
}

}  // namespace twinforge
