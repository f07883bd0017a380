// twinforge chip list|show|lint: the chip files, and one more that --chip-file names.
#include "cost/chip.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "cli/verb.h"
#include "cost/chip_file.h"
#include "cost/score.h"
#include "google/protobuf/text_format.h"
#include "report/table.h"

namespace twinforge {
namespace {

std::string Figure(double value) { return absl::StrFormat("%.10g", value); }

std::string Figure(const Chip::Number& number) {
  std::string text = Figure(number.value());
  if (number.low() != 0 || number.high() != 0)
    absl::StrAppend(&text, " (", Figure(number.low()), "-", Figure(number.high()), ")");
  return text;
}

// ---- list

// The fastest dense rate of a type that multiplies with itself and whose name begins with `dtype`.
std::string RateCell(const Chip& chip, const std::string& dtype, bool name) {
  const Chip::Peak* best = nullptr;
  for (const Chip::Peak& peak : chip.peak()) {
    if (peak.dtype().rfind(dtype, 0) != 0 || peak.sparse24() || peak.use() != Chip::Peak::ALONE) continue;
    if (peak.has_rate() && (best == nullptr || best->rate().value() < peak.rate().value())) best = &peak;
  }
  if (best == nullptr) return "-";
  return absl::StrCat(Figure(best->rate().value()), name ? absl::StrCat(" ", best->dtype().substr(3)) : "");
}

std::string NetworkCell(const Chip& chip) {
  const std::string both = Figure(chip.network_bandwidth_both_ways().value());
  const std::string domain =
      chip.has_pod_chips() ? absl::StrCat(" of ", Figure(chip.pod_chips().value())) : std::string();
  const std::string rate = chip.has_network_bandwidth_both_ways() ? absl::StrCat(", ", both, " GB/s") : "";
  switch (chip.fabric()) {
    case Chip::TORUS:
      return absl::StrCat(chip.torus_axes(), "D torus", domain, rate);
    case Chip::SWITCH:
      return absl::StrCat("switch", domain, rate);
    case Chip::FULL_MESH:
      return absl::StrCat("full mesh", domain, rate);
    case Chip::HOST_BUS:
      return "host bus";
    default:
      return chip.topology().empty() ? "-" : absl::StrCat(chip.topology(), rate);
  }
}

std::string NumberCell(bool has, const Chip::Number& number) { return has ? Figure(number.value()) : "-"; }

// Why no score is made of this chip; empty where one is.
std::string Refusal(const Chip& chip) {
  const std::optional<Diagnostic> diagnostic = DiagnosticOf(CheckFigures(FiguresOf(chip)));
  return diagnostic ? absl::StrCat("not scored (TF", diagnostic->code, "): ", diagnostic->message)
                    : std::string();
}

Json ListRow(const Chip& chip) {
  Json row = {{"id", chip.id()},
              {"name", chip.name()},
              {"aliases", std::vector<std::string>(chip.alias().begin(), chip.alias().end())},
              {"vendor", chip.vendor()},
              {"generation", chip.generation()}};
  if (chip.has_hbm_size()) row["hbm_gib"] = chip.hbm_size().value();
  if (chip.has_hbm_bandwidth()) row["hbm_gbps"] = chip.hbm_bandwidth().value();
  for (const Chip::Peak& peak : chip.peak()) {
    if (peak.has_rate() && !peak.sparse24() && peak.use() == Chip::Peak::ALONE)
      row["peak_tops"][peak.dtype()] = peak.rate().value();
  }
  row["interconnect"] = NetworkCell(chip);
  if (const std::string refusal = Refusal(chip); !refusal.empty()) row["refusal"] = refusal;
  return row;
}

Outcome List(const std::vector<Chip>& chips) {
  Outcome outcome;
  Table table({"id", "also", "vendor", "HBM GiB", "GB/s", "bf16 TFLOP/s", "fp8", "interconnect", ""});
  outcome.json["chips"] = Json::array();
  for (const Chip& chip : chips) {
    table.Row({chip.id(), absl::StrJoin(chip.alias(), " "), chip.vendor(),
               NumberCell(chip.has_hbm_size(), chip.hbm_size()),
               NumberCell(chip.has_hbm_bandwidth(), chip.hbm_bandwidth()), RateCell(chip, "bf16", false),
               RateCell(chip, "f8_", true), NetworkCell(chip), Refusal(chip).substr(0, 19)});
    outcome.json["chips"].push_back(ListRow(chip));
  }
  outcome.human = table.Text();
  return outcome;
}

// ---- show

std::string Word(Chip::Confidence confidence) {
  return confidence == Chip::HIGH     ? "high"
         : confidence == Chip::MEDIUM ? "medium"
         : confidence == Chip::LOW    ? "low"
                                      : "-";
}

std::string Word(const Chip::Peak& peak) {
  if (peak.use() == Chip::Peak::MIXED) return "only in a mix";
  return peak.use() == Chip::Peak::PUBLISHED ? "published only" : "native";
}

std::string TypesText(const Chip& chip) {
  Table table({"type", "", "rate, or what it becomes", "note"});
  for (const Chip::Peak& peak : chip.peak()) {
    const std::string rate =
        peak.has_rate() ? absl::StrCat(Figure(peak.rate()), " ", peak.rate().unit()) : "rate unknown";
    table.Row({absl::StrCat(peak.dtype(), peak.sparse24() ? " 2:4" : ""), Word(peak), rate, peak.note()});
  }
  for (const Chip::Mix& mix : chip.mix()) table.Row({absl::StrJoin(mix.dtype(), " x "), "meet", "", ""});
  for (const Chip::Conversion& conversion : chip.conversion())
    table.Row({conversion.dtype(), "converts", conversion.as(), conversion.note()});
  return table.Text();
}

// Sources are long and repeat, so a row carries a number and the list follows.
class SourceList {
 public:
  std::string Mark(const std::string& source) {
    const auto at = std::find(sources_.begin(), sources_.end(), source);
    const size_t index = at - sources_.begin();
    if (at == sources_.end()) sources_.push_back(source);
    return absl::StrCat("[", index + 1, "]");
  }
  std::string Text() const {
    std::string text;
    for (size_t i = 0; i < sources_.size(); ++i)
      absl::StrAppend(&text, "  [", i + 1, "] ", sources_[i], "\n");
    return text;
  }

 private:
  std::vector<std::string> sources_;
};

std::string NumbersText(const Chip& chip) {
  Table table({"number", "value", "unit", "trust", "date", "source", "note"});
  SourceList sources;
  for (const ChipNumber& row : NumbersOf(chip)) {
    const Chip::Number& number = *row.number;
    table.Row({row.path, Figure(number), number.unit(), Word(number.confidence()), number.date(),
               sources.Mark(number.source()), number.note()});
    for (const Chip::Rival& rival : number.rival())
      table.Row(
          {"  elsewhere", Figure(rival.value()), number.unit(), "", "", sources.Mark(rival.source()), ""});
  }
  for (const Chip::Missing& missing : chip.missing())
    table.Row({missing.column(), "-", "", "", "", "", missing.word()});
  return absl::StrCat(table.Text(), "\n", sources.Text());
}

std::string ShowText(const Chip& chip) {
  std::string text = absl::StrFormat("%s: %s (%s, %d), generation %s; also %s\n", chip.id(), chip.name(),
                                     chip.vendor(), chip.year(), chip.generation(),
                                     chip.alias_size() == 0 ? "-" : absl::StrJoin(chip.alias(), ", "));
  if (const std::string refusal = Refusal(chip); !refusal.empty()) absl::StrAppend(&text, refusal, "\n");
  absl::StrAppend(&text, "\n", TypesText(chip), "\n", NumbersText(chip), "\n");
  if (!chip.topology().empty()) absl::StrAppend(&text, "network: ", chip.topology(), "\n");
  if (!chip.price_kind().empty())
    absl::StrAppend(&text, "price: ", chip.price_kind(), " ", chip.price_region(), "\n");
  if (!chip.other_prices().empty()) absl::StrAppend(&text, "other prices: ", chip.other_prices(), "\n");
  if (!chip.notes().empty()) absl::StrAppend(&text, "notes: ", chip.notes(), "\n");
  return text;
}

Json NumberJson(const Chip::Number& number) {
  Json json = {{"value", number.value()}, {"unit", number.unit()}, {"source", number.source()}};
  if (number.low() != 0 || number.high() != 0) json["range"] = {number.low(), number.high()};
  if (!number.date().empty()) json["date"] = number.date();
  json["confidence"] = Word(number.confidence());
  if (!number.note().empty()) json["note"] = number.note();
  if (!number.column().empty()) json["column"] = number.column();
  for (const Chip::Rival& rival : number.rival())
    json["rivals"].push_back({{"value", rival.value()}, {"source", rival.source()}});
  return json;
}

Json ShowJson(const Chip& chip) {
  Json json = ListRow(chip);
  json.erase("peak_tops");
  json["year"] = chip.year();
  json["topology"] = chip.topology();
  json["price_kind"] = chip.price_kind();
  json["price_region"] = chip.price_region();
  json["numbers"] = Json::object();
  for (const ChipNumber& row : NumbersOf(chip)) {
    if (row.field != "rate") json["numbers"][row.path] = NumberJson(*row.number);
  }
  json["peaks"] = Json::array();
  for (const Chip::Peak& peak : chip.peak()) {
    Json entry = {{"dtype", peak.dtype()},
                  {"sparse24", peak.sparse24()},
                  {"use", Word(peak)},
                  {"source", peak.source()}};
    entry["rate"] = peak.has_rate() ? NumberJson(peak.rate()) : Json();
    json["peaks"].push_back(std::move(entry));
  }
  json["conversions"] = Json::array();
  for (const Chip::Conversion& conversion : chip.conversion())
    json["conversions"].push_back({{"dtype", conversion.dtype()},
                                   {"as", conversion.as()},
                                   {"source", conversion.source()},
                                   {"note", conversion.note()}});
  json["mixes"] = Json::array();
  for (const Chip::Mix& mix : chip.mix())
    json["mixes"].push_back(std::vector<std::string>(mix.dtype().begin(), mix.dtype().end()));
  json["missing"] = Json::object();
  for (const Chip::Missing& missing : chip.missing()) json["missing"][missing.column()] = missing.word();
  json["notes"] = chip.notes();
  json["sources"] = chip.sources();
  std::string text;
  google::protobuf::TextFormat::PrintToString(chip, &text);
  json["text"] = text;
  return json;
}

// ---- lint

Outcome Lint(const std::vector<Chip>& chips, const std::string& only) {
  std::vector<std::string> findings;
  for (const Chip& chip : chips) {
    if (!only.empty() && chip.id() != only) continue;
    for (std::string& finding : LintChip(chip)) findings.push_back(std::move(finding));
  }
  for (std::string& finding : LintNames(chips)) findings.push_back(std::move(finding));
  Outcome outcome;
  outcome.exit = findings.empty() ? ExitCode::kDone : ExitCode::kFindings;
  const size_t count = only.empty() ? chips.size() : 1;
  outcome.human = findings.empty()
                      ? absl::StrCat(count, count == 1 ? " chip" : " chips", ", nothing to report\n")
                      : absl::StrCat(absl::StrJoin(findings, "\n"), "\n");
  outcome.json["findings"] = findings;
  return outcome;
}

struct ChipFlags {
  std::string what = "list";
  std::string id;
  std::string file;
};

// The shipped chips; a file's chip stands in the place of the one that has its id.
absl::StatusOr<std::vector<Chip>> ChipsOf(const std::string& file, std::string& own) {
  std::vector<Chip> chips(ShippedChips().begin(), ShippedChips().end());
  if (file.empty()) return chips;
  TWIN_ASSIGN_OR_RETURN(Chip chip, ReadChip(file));
  own = chip.id();
  const auto same = std::find_if(chips.begin(), chips.end(), [&](const Chip& c) { return c.id() == own; });
  if (same == chips.end()) {
    chips.push_back(std::move(chip));
  } else {
    *same = std::move(chip);
  }
  return chips;
}

absl::StatusOr<Outcome> ChipOutcome(const ChipFlags& flags) {
  const bool show = flags.what == "show";
  if (!show || flags.file.empty())
    TWIN_RETURN_IF_ERROR(CheckArgument("twinforge chip " + flags.what, "ID", show, flags.id));
  std::string own;
  TWIN_ASSIGN_OR_RETURN(const std::vector<Chip> chips, ChipsOf(flags.file, own));
  if (flags.what == "list") return List(chips);
  if (!show) return Lint(chips, own);
  TWIN_ASSIGN_OR_RETURN(const Chip* chip, FindIn(chips, flags.id.empty() ? own : flags.id));
  Outcome outcome;
  outcome.human = ShowText(*chip);
  outcome.json = ShowJson(*chip);
  return outcome;
}

}  // namespace

void AddChip(CLI::App& app, Invocation& invocation) {
  static ChipFlags flags;
  CLI::App* verb = AddVerb(app, invocation, "chip", "the chips that scores know, each number with its source",
                           "  twinforge chip list\n  twinforge chip show v6e\n  twinforge chip lint\n"
                           "  twinforge chip lint --chip-file mine.textproto\n");
  verb->add_option("WHAT", flags.what, "list, show or lint")->check(CLI::IsMember({"list", "show", "lint"}));
  verb->add_option("ID", flags.id, "for show: a chip's id, alias or name");
  verb->add_option("--chip-file", flags.file, "a chip file of yours, listed, shown or checked beside ours");
  SetRun(verb, invocation, [] { return ChipOutcome(flags); });
}

}  // namespace twinforge
