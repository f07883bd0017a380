#include "cost/chip_file.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/check.h"
#include "base/diagnostic.h"
#include "base/embedded.h"
#include "base/file.h"
#include "base/first_mistake.h"
#include "base/json_reader.h"
#include "base/status_macros.h"
#include "cost/chip_units.h"
#include "cost/own_chip.h"
#include "google/protobuf/text_format.h"

namespace twinforge {

absl::Span<const EmbeddedFile> Embedded_chips();

namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::TextFormat;

constexpr int64_t kLargestChipFile = 1 << 20;

// The text between the quotes that follow `lead`.
std::string Quoted(const std::string& message, const std::string& lead) {
  const size_t at = message.find(lead + " \"");
  if (at == std::string::npos) return "";
  const size_t from = at + lead.size() + 2;
  return message.substr(from, message.find('"', from) - from);
}

// "did you mean" for: Message type "twinforge.Chip" has no field named "hbm_sise".
std::string HintFor(const std::string& message) {
  const Descriptor* type = google::protobuf::DescriptorPool::generated_pool()->FindMessageTypeByName(
      Quoted(message, "Message type"));
  if (type == nullptr) return "`twinforge chip show v6e --format json` holds a whole file as an example";
  std::vector<std::string> known;
  for (int i = 0; i < type->field_count(); ++i) known.push_back(type->field(i)->name());
  const std::string nearest = Nearest(Quoted(message, "has no field named"), known);
  if (!nearest.empty()) return absl::StrCat("did you mean ", nearest, "?");
  return absl::StrCat("known here: ", absl::StrJoin(known, ", "));
}

// The parser's words, in the house's form. What it cites is printed through Visible().
std::string Sentence(std::string message) {
  message = std::string(absl::StripSuffix(message, "."));
  const std::string type = Quoted(message, "Message type");
  const std::string field = Quoted(message, "has no field named");
  if (!field.empty())
    message = absl::StrCat(type.substr(type.rfind('.') + 1), " has no key named \"", field, "\"");
  return message.substr(0, 200);
}

// Whether text is UTF-8 without overlong forms and surrogates; JSON holds no other.
bool IsUtf8(absl::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto byte = [&](size_t at) { return at < text.size() ? static_cast<uint8_t>(text[at]) : 0; };
    const uint32_t lead = byte(i);
    const size_t length = lead < 0x80       ? 1
                          : lead >> 5 == 6  ? 2
                          : lead >> 4 == 14 ? 3
                          : lead >> 3 == 30 ? 4
                                            : 0;
    if (length == 0) return false;
    uint32_t code = length == 1 ? lead : lead & (0x7F >> length);
    for (size_t k = 1; k < length; ++k) {
      if (byte(i + k) >> 6 != 2) return false;
      code = code << 6 | (byte(i + k) & 0x3F);
    }
    constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
    if (code < kLeast[length] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return false;
    i += length;
  }
  return true;
}

// The place of the first string that is no UTF-8, which an escape can make of a clean file.
std::optional<TextFormat::ParseLocation> NoUtf8(const Message& message,
                                                const TextFormat::ParseInfoTree& places) {
  std::vector<const FieldDescriptor*> fields;
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const bool many = field->is_repeated();
    for (int i = 0; i < (many ? reflection.FieldSize(message, field) : 1); ++i) {
      const int index = many ? i : -1;
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
        if (!IsUtf8(many ? reflection.GetRepeatedString(message, field, i)
                         : reflection.GetString(message, field)))
          return places.GetLocation(field, index);
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        const TextFormat::ParseInfoTree* below = places.GetTreeForNested(field, index);
        if (below == nullptr) continue;
        const auto found = NoUtf8(
            many ? reflection.GetRepeatedMessage(message, field, i) : reflection.GetMessage(message, field),
            *below);
        if (found) return found;
      }
    }
  }
  return std::nullopt;
}

// "line:column" of a mistake, from 1. The parser reports an unknown word when it stands behind it, perhaps
// lines later; the word itself is the better place.
std::string PlaceOf(absl::string_view text, const FirstMistake& mistake) {
  size_t at = mistake.OffsetIn(text);
  const std::string& message = mistake.message();
  std::string word;
  for (const char* lead : {"has no field named", "Unknown enumeration value of", "Non-repeated field"}) {
    if (word.empty()) word = Quoted(message, lead);
  }
  const size_t found = word.empty() ? absl::string_view::npos : text.rfind(word, at - (at > 0 ? 1 : 0));
  if (found != absl::string_view::npos) at = found;
  const absl::string_view before = text.substr(0, at);
  const size_t line = std::count(before.begin(), before.end(), '\n');
  const size_t start = before.rfind('\n');
  return absl::StrCat(line + 1, ":", at - (start == absl::string_view::npos ? 0 : start + 1) + 1);
}

std::string PeakPath(const Chip::Peak& peak) {
  return absl::StrCat("peak ", peak.dtype(), peak.sparse24() ? " 2:4" : "");
}

std::vector<std::string> WordsOf(const Chip& chip) {
  std::vector<std::string> words = {FoldedChipName(chip.id()), FoldedChipName(chip.name())};
  for (const std::string& alias : chip.alias()) words.push_back(FoldedChipName(alias));
  return words;
}

// Chips of which a name begins with `word` or the other way round, then those that are a few letters away.
std::vector<std::string> NearestIds(absl::Span<const Chip> chips, const std::string& word) {
  constexpr size_t kMost = 3;
  std::vector<std::string> ids;
  const auto add = [&](const std::string& id) {
    if (ids.size() < kMost && std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  };
  for (const Chip& chip : chips) {
    for (const std::string& known : WordsOf(chip)) {
      if (!word.empty() && (absl::StartsWith(known, word) || absl::StartsWith(word, known))) add(chip.id());
    }
  }
  std::vector<std::string> known;
  std::vector<const Chip*> of;
  for (const Chip& chip : chips) {
    for (std::string& name : WordsOf(chip)) {
      known.push_back(std::move(name));
      of.push_back(&chip);
    }
  }
  while (ids.size() < kMost) {
    const std::string nearest = Nearest(word, known);
    if (nearest.empty()) return ids;
    const auto at = std::find(known.begin(), known.end(), nearest) - known.begin();
    add(of[at]->id());
    known.erase(known.begin() + at);
    of.erase(of.begin() + at);
  }
  return ids;
}

}  // namespace

absl::StatusOr<Chip> ParseChip(absl::string_view text, absl::string_view place) {
  FirstMistake mistake;
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&mistake);
  TextFormat::ParseInfoTree places;
  parser.WriteLocationsTo(&places);
  Chip chip;
  if (!parser.ParseFromString(std::string(text.data(), text.size()), &chip)) {
    return Error(1708, absl::StrCat(place, ":", PlaceOf(text, mistake)), Sentence(mistake.message()),
                 HintFor(mistake.message()));
  }
  if (const auto at = NoUtf8(chip, places)) {
    FirstMistake bytes;
    bytes.AddError(at->line, at->column, "a string is no UTF-8");
    return Error(1708, absl::StrCat(place, ":", PlaceOf(text, bytes)), bytes.message());
  }
  if (chip.id().empty()) {
    return Error(1708, absl::StrCat(place, ":1:1"), "names no id",
                 "write `id: \"mychip\"` in its first line");
  }
  return chip;
}

namespace {

// A file that is no chip file is a mistake on the command line, not a damaged checkpoint.
absl::StatusOr<std::string> ChipFileText(const std::string& path) {
  absl::StatusOr<std::string> text = ReadTextFile(path, kLargestChipFile);
  if (text.ok() || ExitCodeOf(text.status()) != ExitCode::kCorrupt) return text;
  return Error(1708, absl::StrCat(path, ":1:1"), DiagnosticOf(text.status())->message,
               "`twinforge chip show v6e --format json` holds a whole file as an example");
}

}  // namespace

absl::StatusOr<Chip> ReadChip(const std::string& path) {
  TWIN_ASSIGN_OR_RETURN(const std::string text, ChipFileText(path));
  return ParseChip(text, path);
}

namespace {

struct ChipStore {
  std::vector<Chip> chips;
  std::vector<std::string> texts;
};

// Embedded files are sorted by name, and a file is named after its chip.
ChipStore EmbeddedStore() {
  ChipStore store;
  for (const EmbeddedFile& file : Embedded_chips()) {
    Chip chip;
    TWIN_CHECK(TextFormat::ParseFromString(std::string(file.text.data(), file.text.size()), &chip),
               file.name);
    TWIN_CHECK(absl::StrCat(chip.id(), ".textproto") == file.name, file.name);
    store.chips.push_back(std::move(chip));
    store.texts.emplace_back(file.text.data(), file.text.size());
  }
  return store;
}

// The file's chip, which the store takes in when it is made.
struct OwnChip {
  bool taken = false;
  bool too_late = false;  // the store is made
  Chip chip;
  std::string text;
};
OwnChip& Own() {
  static OwnChip& own = *new OwnChip;
  return own;
}

// In the place of the chip that has its id.
void TakeIn(const Chip& chip, const std::string& text, ChipStore& store) {
  for (size_t i = 0; i < store.chips.size(); ++i) {
    if (store.chips[i].id() != chip.id()) continue;
    store.chips[i] = chip;
    store.texts[i] = text;
    return;
  }
  store.chips.push_back(chip);
  store.texts.push_back(text);
}

const ChipStore& Store() {
  static const ChipStore* const store = [] {
    auto* all = new ChipStore(EmbeddedStore());
    if (Own().taken) TakeIn(Own().chip, Own().text, *all);
    Own().too_late = true;
    return all;
  }();
  return *store;
}

}  // namespace

absl::Span<const Chip> ShippedChips() { return Store().chips; }
absl::Span<const std::string> ChipTexts() { return Store().texts; }

absl::StatusOr<std::string> UseChipFile(const std::string& path) {
  TWIN_CHECK(!Own().taken && !Own().too_late, "a chip file is taken up before any chip is looked up");
  TWIN_ASSIGN_OR_RETURN(std::string text, ChipFileText(path));
  TWIN_ASSIGN_OR_RETURN(Chip chip, ParseChip(text, path));
  ChipStore all = EmbeddedStore();
  TakeIn(chip, text, all);
  std::vector<std::string> findings = LintChip(chip);
  for (std::string& finding : LintNames(all.chips)) findings.push_back(std::move(finding));
  if (!findings.empty())
    return Error(
        1719, path, findings[0],
        absl::StrCat("`twinforge chip lint --chip-file` says the same",
                     findings.size() > 1 ? absl::StrCat(", and ", findings.size() - 1, " more") : ""));
  Own() = {.taken = true, .chip = std::move(chip), .text = std::move(text)};
  return Own().chip.id();
}

std::string FoldedChipName(absl::string_view word) {
  std::string folded = absl::AsciiStrToLower(word);
  for (char& c : folded) c = c == '-' || c == ' ' || c == '.' ? '_' : c;
  return folded;
}

absl::StatusOr<const Chip*> FindIn(absl::Span<const Chip> chips, absl::string_view word) {
  const std::string folded = FoldedChipName(word);
  for (const Chip& chip : chips) {
    const std::vector<std::string> words = WordsOf(chip);
    if (std::find(words.begin(), words.end(), folded) != words.end()) return &chip;
  }
  const std::vector<std::string> nearest = NearestIds(chips, folded.substr(0, 64));
  return Error(1701, JsonQuoted(std::string(word.data(), word.size()), 100), "no such chip",
               nearest.empty() ? "`twinforge chip list` names those that are known"
                               : absl::StrCat("did you mean ", absl::StrJoin(nearest, ", "), "?"));
}

double InBaseUnits(const Chip::Number& number) {
  return number.value() * UnitScale(number.unit()).value_or(0);
}

std::vector<ChipNumber> NumbersOf(const Chip& chip) {
  std::vector<ChipNumber> numbers;
  std::vector<const FieldDescriptor*> fields;
  const google::protobuf::Reflection& reflection = *chip.GetReflection();
  reflection.ListFields(chip, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->message_type() != Chip::Number::descriptor()) continue;
    const Message& number = reflection.GetMessage(chip, field);
    numbers.push_back({field->name(), field->name(), static_cast<const Chip::Number*>(&number)});
  }
  for (const Chip::Peak& peak : chip.peak()) {
    if (peak.has_rate()) numbers.push_back({PeakPath(peak), "rate", &peak.rate()});
  }
  return numbers;
}

}  // namespace twinforge
