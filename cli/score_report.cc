#include "cli/score_report.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/diagnostic.h"
#include "report/table.h"

namespace twinforge {
namespace {

constexpr size_t kDoubtsShown = 10;

std::string Text(absl::string_view view) { return std::string(view.data(), view.size()); }

Json CapacityJson(const Capacity& capacity) {
  return {{"parameter_bytes", capacity.parameter_bytes},
          {"cache_bytes", capacity.cache_bytes},
          {"usable_bytes", capacity.usable_bytes}};
}

Json DoubtsJson(const std::vector<Doubt>& doubts) {
  Json json = Json::array();
  for (size_t i = 0; i < std::min(doubts.size(), kDoubtsShown); ++i)
    json.push_back({{"constant", Text(Info(doubts[i].constant).name)}, {"share", doubts[i].share}});
  return json;
}

Json OpsJson(const Score& score) {
  Json ops = Json::array();
  for (size_t i = 0; i < score.ops.size(); ++i) {
    const OpCount& op = score.ops[i];
    ops.push_back({{"path", op.path},
                   {"op", op.op},
                   {"useful_flops", op.useful_flops},
                   {"issued_flops", op.issued_flops},
                   {"weight_bytes", op.weight_bytes},
                   {"cache_bytes", op.cache_bytes},
                   {"activation_bytes", op.activation_bytes},
                   {"tile_flops", op.tile_flops},
                   {"memory_bytes", op.memory_bytes},
                   {"note", op.note},
                   {"added_seconds", score.attribution[i]}});
  }
  return ops;
}

// What the counts assume, each said once.
std::vector<std::string> NotesOf(const Score& score) {
  std::vector<std::string> notes;
  for (const OpCount& op : score.ops) {
    if (!op.note.empty() && std::find(notes.begin(), notes.end(), op.note) == notes.end())
      notes.push_back(op.note);
  }
  return notes;
}

std::string DoubtsText(const std::vector<Doubt>& doubts) {
  std::string text = "  what to measure first:";
  for (size_t i = 0; i < std::min<size_t>(doubts.size(), 3); ++i) {
    absl::StrAppend(&text, i > 0 ? "," : "", " ", Text(Info(doubts[i].constant).name),
                    absl::StrFormat(" (%.0f %% of the doubt)", 100 * doubts[i].share));
  }
  return doubts.empty() ? "" : text + "\n";
}

std::string BandText(const Interval& interval) {
  return absl::StrCat(HumanSeconds(interval.low), " and ", HumanSeconds(interval.high));
}

std::string SecondsText(absl::string_view who, const Forecast& f) {
  if (!f.feasible) {
    return absl::StrCat("  ", Text(who), ": bound ", HumanSeconds(f.bound),
                        "; no estimate, since it does not fit: ", f.score.shortfall, "\n");
  }
  return absl::StrCat(
      "  ", Text(who), ": ", HumanSeconds(f.seconds.mid), ", four in five between ", BandText(f.seconds),
      "; bound ", HumanSeconds(f.bound), "; ", f.basis,
      f.certifiable ? "" : "; not certifiable: most of the doubt is in constants that no row speaks for",
      "\n");
}

double EstimatedTokens(const Forecast& f) {
  return f.feasible ? f.score.tokens_per_second * f.bound / f.seconds.mid : 0;
}

std::string MemoryText(absl::string_view who, const Forecast& f) {
  return absl::StrCat(
      "  ", Text(who), ": parameters ", HumanBytes(f.capacity.parameter_bytes), " + cache ",
      HumanBytes(f.capacity.cache_bytes), " of ", HumanBytes(f.capacity.usable_bytes),
      f.capacity.kv_tokens > 0 ? absl::StrCat("; room for ", f.capacity.kv_tokens, " cached tokens") : "",
      f.feasible
          ? absl::StrFormat("; %.1f tokens/s, at most %.1f\n", EstimatedTokens(f), f.score.tokens_per_second)
          : std::string("\n"));
}

std::string Title(const Score& score) {
  const Workload& w = score.workload;
  const Mesh mesh = w.mesh();
  return absl::StrCat(
      score.chip, mesh.chips() > 1 ? absl::StrCat(" x ", mesh.chips(), " (", MeshText(mesh), ")") : "", ", ",
      Text(PhaseWord(w)), ", batch ", w.batch, ", context ", w.context,
      w.chunk > 0 ? absl::StrCat(", chunk ", w.chunk, w.past > 0 ? absl::StrCat(" after ", w.past) : "") : "",
      w.microbatches > 1 ? absl::StrCat(", ", w.microbatches, " microbatches") : "",
      ": least time of a step under each further constraint\n");
}

}  // namespace

Json IntervalJson(const Interval& interval) {
  return {{"low", interval.low}, {"mid", interval.mid}, {"high", interval.high}};
}

Json ForecastJson(const Forecast& forecast) {
  const Score& score = forecast.score;
  Json json = Json::object();
  json["seconds"] = forecast.feasible ? IntervalJson(forecast.seconds) : Json::object();
  json["seconds"]["bound"] = forecast.bound;
  if (forecast.feasible) json["envelope"] = IntervalJson(forecast.envelope);
  // Named like serving's: as estimated. What no step can exceed has a name of its own.
  json["tokens_per_second"] = EstimatedTokens(forecast);
  json["tokens_per_second_bound"] = score.tokens_per_second;
  if (score.workload.training && forecast.feasible) {
    const double useful = score.ladder[1].seconds;
    json["mfu"] = IntervalJson(
        {useful / forecast.seconds.high, useful / forecast.seconds.mid, useful / forecast.seconds.low});
  }
  json["feasible"] = forecast.feasible;
  if (!forecast.feasible) json["shortfall"] = score.shortfall;
  json["kv_tokens"] = forecast.capacity.kv_tokens;
  json["memory"] = CapacityJson(forecast.capacity);
  json["memory"]["device_bytes"] = score.memory_bytes;
  if (forecast.feasible) {
    json["basis"] = forecast.basis;
    json["certifiable"] = forecast.certifiable;
    json["doubts"] = DoubtsJson(forecast.doubts);
  }
  json["ladder"] = Json::array();
  for (const RungRow& rung : score.ladder) {
    json["ladder"].push_back({{"rung", rung.rung},
                              {"name", rung.name},
                              {"seconds", rung.seconds},
                              {"class", std::string(1, rung.evidence)}});
  }
  json["ops"] = OpsJson(score);
  return json;
}

Json ServingJson(const ServingForecast& forecast) {
  Json json = Json::object();
  json["tpot"] = IntervalJson(forecast.tpot);
  json["tpot"]["bound"] = forecast.tpot_bound;
  json["ttft"] = IntervalJson(forecast.ttft);
  json["running"] = forecast.running;
  json["tokens_per_second"] = forecast.tokens_per_second;
  json["feasible"] = true;
  json["kv_tokens"] = forecast.capacity.kv_tokens;
  json["memory"] = CapacityJson(forecast.capacity);
  json["basis"] = forecast.basis;
  json["doubts"] = DoubtsJson(forecast.doubts);
  return json;
}

Json RefusalJson(const absl::Status& status) {
  const Diagnostic d = DiagnosticOf(status).value_or(Diagnostic());
  return {{"code", absl::StrCat("TF", d.code)}, {"message", d.place + ": " + d.message}, {"hint", d.hint}};
}

std::string ForecastText(const Forecast& source, const std::optional<Forecast>& twin, absl::string_view who) {
  std::string out = Title(source.score);
  Table table(twin ? std::vector<std::string>{"rung", "constraint", "class", "source", "twin", "source/twin"}
                   : std::vector<std::string>{"rung", "constraint", "class", "seconds"});
  const std::vector<RungRow>& own = source.score.ladder;
  const std::vector<RungRow> other = twin ? twin->score.ladder : std::vector<RungRow>();
  // One of the two may not fit, and then ends at its bounds.
  for (size_t i = 0; i < std::max(own.size(), other.size()); ++i) {
    const RungRow& rung = i < own.size() ? own[i] : other[i];
    std::vector<std::string> row = {rung.rung, rung.name, std::string(1, rung.evidence)};
    row.push_back(i < own.size() ? HumanSeconds(own[i].seconds) : "-");
    if (twin) {
      row.push_back(i < other.size() ? HumanSeconds(other[i].seconds) : "-");
      const bool both = i < own.size() && i < other.size();
      row.push_back(both ? absl::StrFormat("%.3f", own[i].seconds / other[i].seconds) : "-");
    }
    table.Row(row);
  }
  absl::StrAppend(&out, table.Text(),
                  "  B: a proved bound; E: an estimate. R7: no sustained clock is published\n",
                  SecondsText(who, source));
  if (twin) absl::StrAppend(&out, SecondsText("twin  ", *twin));
  absl::StrAppend(&out, DoubtsText(source.doubts), MemoryText(who, source));
  if (twin) absl::StrAppend(&out, MemoryText("twin  ", *twin));
  if (twin && twin->bound == source.bound) {
    absl::StrAppend(&out,
                    "  no bound moves: orientation and fusing change what kernels and layouts cost, which "
                    "bounds do not see\n");
  }
  for (const std::string& note : NotesOf(source.score)) absl::StrAppend(&out, "  note: ", note, "\n");
  return out;
}

std::string ServingText(const std::string& chip, const ServingForecast& forecast) {
  std::string out = absl::StrCat(chip, ", serving in steady state\n");
  Table table({"", "mid", "four in five between"});
  table.Row({"TPOT", HumanSeconds(forecast.tpot.mid), BandText(forecast.tpot)});
  table.Row({"TTFT", HumanSeconds(forecast.ttft.mid), BandText(forecast.ttft)});
  absl::StrAppend(
      &out, table.Text(),
      absl::StrFormat(
          "  %.1f sequences generate at a time, %.0f tokens/s in all; room for %d cached tokens\n",
          forecast.running, forecast.tokens_per_second, forecast.capacity.kv_tokens),
      "  ", forecast.basis, "\n", DoubtsText(forecast.doubts));
  return out;
}

}  // namespace twinforge
