#include "cli/compile_report.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "compiler/record_file.h"
#include "report/table.h"

namespace twinforge {
namespace {

constexpr double kAgree = 0.05;  // the memory that was predicted, against the compiler's
constexpr size_t kMostListed = 8;

int64_t PaddedSum(const CompiledModule& module) {
  int64_t sum = 0;
  for (const CompiledArray& array : module.arguments()) sum += array.padded_bytes();
  return sum;
}

int64_t CopiesOf(const CompiledModule& module) { return module.copies_size(); }

int64_t CollectivesOf(const CompiledModule& module) {
  int64_t count = 0;
  for (const CompiledCollective& collective : module.collectives()) count += collective.count();
  return count;
}

// The compiler's bytes over the predicted, less 1.
double Off(int64_t compiled, int64_t predicted) {
  return predicted == 0 ? 0 : static_cast<double>(compiled) / static_cast<double>(predicted) - 1;
}

Json ArrayJson(const CompiledArray& array) {
  return {{"name", array.name()},
          {"kind", array.kind()},
          {"shape", array.shape()},
          {"layout", array.layout()},
          {"bytes", array.bytes()},
          {"padded_bytes", array.padded_bytes()},
          {"predicted_bytes", array.predicted_bytes() > 0 ? Json(array.predicted_bytes()) : Json(nullptr)}};
}

Json CopyJson(const CompiledCopy& copy) {
  return {{"name", copy.name()}, {"shape", copy.shape()}, {"from", copy.from()},    {"to", copy.to()},
          {"of", copy.of()},     {"bytes", copy.bytes()}, {"cycles", copy.cycles()}};
}

Json CollectiveJson(const CompiledCollective& collective) {
  return {{"kind", collective.kind()},
          {"count", collective.count()},
          {"bytes", collective.bytes()},
          {"group", collective.group()}};
}

Json MemoryJson(const CompiledModule& module) {
  const int64_t predicted = PredictedArgumentBytes(module);
  Json json = {{"arguments", module.argument_bytes()},
               {"predicted_arguments", predicted > 0 ? Json(predicted) : Json(nullptr)}};
  if (predicted > 0) {
    json["off"] = Off(module.argument_bytes(), predicted);
    json["agrees"] = std::abs(Off(module.argument_bytes(), predicted)) <= kAgree;
  }
  json["differ"] = Json::array();
  for (const CompiledArray& array : module.arguments()) {
    if (array.predicted_bytes() > 0 && array.predicted_bytes() != array.padded_bytes())
      json["differ"].push_back(array.name());
  }
  return json;
}

Json ModuleJson(const CompiledModule& module) {
  Json json = {{"kind", module.kind()},
               {"count", module.count()},
               {"note", module.note()},
               {"program_sha256", module.program_sha256()},
               {"partitions", module.partitions()},
               {"compiled", module.error().empty()}};
  if (!module.error().empty()) {
    json["error"] = module.error();
    return json;
  }
  json["cycles"] = module.cycles();
  json["argument_bytes"] = module.argument_bytes();
  json["output_bytes"] = module.output_bytes();
  json["alias_bytes"] = module.alias_bytes();
  json["temp_bytes"] = module.temp_bytes();
  json["generated_code_bytes"] = module.generated_code_bytes();
  json["memory"] = MemoryJson(module);
  json["layouts"] = Json::array();
  for (const CompiledArray& array : module.arguments()) json["layouts"].push_back(ArrayJson(array));
  json["results"] = Json::array();
  for (const CompiledArray& array : module.results()) json["results"].push_back(ArrayJson(array));
  json["copies"] = Json::array();
  for (const CompiledCopy& copy : module.copies()) json["copies"].push_back(CopyJson(copy));
  json["copy_cycles"] = module.copy_cycles();
  json["moves"] = module.moves();
  json["collectives"] = Json::array();
  for (const CompiledCollective& collective : module.collectives())
    json["collectives"].push_back(CollectiveJson(collective));
  json["uncounted"] = Json::array();
  for (const UncountedOps& ops : module.uncounted())
    json["uncounted"].push_back({{"opcode", ops.opcode()}, {"count", ops.count()}});
  return json;
}

Json ModelJson(const CompiledModel& model) {
  if (!model.refused().empty()) return {{"refused", model.refused()}};
  Json json = {{"graph_sha256", model.graph_sha256()}, {"modules", Json::array()}};
  for (const CompiledModule& module : model.modules()) json["modules"].push_back(ModuleJson(module));
  const CompiledSums sums = SumsOf(model);
  Json layouts = {{"arrays", sums.arguments}, {"padding_bytes", sums.padding_bytes}};
  json["total"] = {{"compiled", sums.refused == 0},
                   {"cycles", sums.cycles},
                   {"argument_bytes", sums.argument_bytes},
                   {"output_bytes", sums.output_bytes},
                   {"temp_bytes", sums.temp_bytes},
                   {"layouts", layouts},
                   {"copies", sums.copies},
                   {"copy_cycles", sums.copy_cycles},
                   {"collectives", sums.collectives},
                   {"uncounted", sums.uncounted}};
  return json;
}

// ---- for people

std::vector<std::string> ModuleCells(absl::string_view who, const CompiledModule& module) {
  std::vector<std::string> cells = {absl::StrCat(who, module.kind()), Grouped(module.count())};
  if (!module.error().empty()) {
    cells.insert(cells.end(), {"refused", "", "", "", "", "", ""});
    return cells;
  }
  const int64_t predicted = PredictedArgumentBytes(module);
  int64_t bare = 0;
  for (const CompiledArray& array : module.arguments()) bare += array.bytes();
  cells.push_back(Grouped(module.cycles()));
  cells.push_back(HumanBytes(module.argument_bytes()));
  cells.push_back(
      predicted == 0 ? "" : absl::StrFormat("%+.2f %%", 100 * Off(module.argument_bytes(), predicted)));
  cells.push_back(HumanBytes(PaddedSum(module) - bare));
  cells.push_back(HumanBytes(module.temp_bytes()));
  cells.push_back(Grouped(CopiesOf(module)));
  cells.push_back(Grouped(CollectivesOf(module)));
  return cells;
}

void AppendRefusals(absl::string_view who, const CompiledModule& module, std::string& text) {
  if (!module.error().empty())
    absl::StrAppend(&text, "  ", who, module.kind(), ": the compiler refuses: ", module.error(), "\n");
}

void AppendCopies(absl::string_view who, const CompiledModule& module, std::string& text) {
  size_t listed = 0;
  for (const CompiledCopy& copy : module.copies()) {
    if (++listed > kMostListed) break;
    absl::StrAppend(&text, "  ", who, module.kind(), " copies ", copy.of().empty() ? copy.name() : copy.of(),
                    " ", copy.shape(), copy.from(), " -> ", copy.to(), ", ", Grouped(copy.cycles()),
                    " cycles\n");
  }
  if (CopiesOf(module) > static_cast<int64_t>(kMostListed))
    absl::StrAppend(&text, "  and ", CopiesOf(module) - static_cast<int64_t>(kMostListed), " copies more\n");
}

void AppendDifferences(absl::string_view who, const CompiledModule& module, std::string& text) {
  for (const CompiledArray& array : module.arguments()) {
    if (array.predicted_bytes() == 0 || array.predicted_bytes() == array.padded_bytes()) continue;
    absl::StrAppend(&text, "  ", who, module.kind(), ": ", array.name(), " ", array.shape(), array.layout(),
                    " takes ", Grouped(array.padded_bytes()), " bytes, the tile rule says ",
                    Grouped(array.predicted_bytes()), "\n");
  }
}

void AppendUncounted(absl::string_view who, const CompiledModule& module, std::string& text) {
  std::vector<std::string> ops;
  for (const UncountedOps& row : module.uncounted())
    ops.push_back(absl::StrCat(row.count(), " ", row.opcode()));
  if (!ops.empty())
    absl::StrAppend(&text, "  ", who, module.kind(),
                    " has ops without an estimate: ", absl::StrJoin(ops, ", "), "\n");
}

std::string Change(int64_t source, int64_t twin) {
  if (source == 0) return twin == 0 ? "none" : absl::StrCat("0 -> ", Grouped(twin));
  return absl::StrCat(Grouped(source), " -> ", Grouped(twin),
                      absl::StrFormat(" (%+.1f %%)", 100 * Off(twin, source)));
}

std::string ChangesText(const CompiledSums& source, const CompiledSums& twin) {
  if (source.refused > 0 || twin.refused > 0)
    return "what changed is not said: one of the two has no figures\n";
  return absl::StrCat("in the compiler's eyes: cycles ", Change(source.cycles, twin.cycles),
                      ", argument bytes ", Change(source.argument_bytes, twin.argument_bytes), ", copies ",
                      Change(source.copies, twin.copies), ", cycles of copies ",
                      Change(source.copy_cycles, twin.copy_cycles), ", collectives ",
                      Change(source.collectives, twin.collectives), "\n");
}

std::string HeadText(const CompileRecord& record) {
  std::string text =
      absl::StrCat(record.compiler(), " for ", record.topology(), " (", record.devices(), " devices)");
  if (!record.phase().empty()) {
    absl::StrAppend(&text, ", ", record.phase(), " of ", Grouped(record.batch()), " x ",
                    Grouped(record.context()),
                    record.shards() > 1 ? absl::StrCat(", split over ", record.shards()) : "");
  }
  return absl::StrCat(text, "\n");
}

}  // namespace

int64_t PredictedArgumentBytes(const CompiledModule& module) {
  int64_t sum = 0;
  for (const CompiledArray& array : module.arguments()) {
    if (array.predicted_bytes() == 0 && array.padded_bytes() > 0) return 0;
    if (__builtin_add_overflow(sum, array.predicted_bytes(), &sum)) return 0;
  }
  return sum;
}

Json CompileJson(const CompileRecord& record) {
  Json json = {{"topology", record.topology()},   {"chip", record.chip()},
               {"devices", record.devices()},     {"compiler", record.compiler()},
               {"interface", record.interface()}, {"platform_version", record.platform_version()},
               {"options", Json::object()}};
  for (const CompileRecord::Option& option : record.options())
    json["options"][option.name()] = option.value();
  if (!record.phase().empty()) {
    json["workload"] = {{"phase", record.phase()},
                        {"batch", record.batch()},
                        {"context", record.context()},
                        {"shards", record.shards()}};
  }
  json["evidence"] = "C";
  json["twin"] = ModelJson(record.twin());
  if (record.has_source()) json["source"] = ModelJson(record.source());
  return json;
}

std::string CompileText(const CompileRecord& record) {
  Table table(
      {"program", "times", "cycles", "arguments", "off", "padding", "temporary", "copies", "collectives"});
  std::string notes;
  const auto add = [&](absl::string_view who, const CompiledModel& model) {
    for (const CompiledModule& module : model.modules()) {
      table.Row(ModuleCells(who, module));
      AppendRefusals(who, module, notes);
      AppendCopies(who, module, notes);
      AppendDifferences(who, module, notes);
      AppendUncounted(who, module, notes);
    }
  };
  if (!record.source().refused().empty())
    absl::StrAppend(&notes, "  the source cannot be split so: ", record.source().refused(), "\n");
  if (record.has_source()) add("source ", record.source());
  add(record.has_source() ? "twin " : "", record.twin());
  std::string text = absl::StrCat(HeadText(record), table.Text(), notes);
  if (record.has_source()) text += ChangesText(SumsOf(record.source()), SumsOf(record.twin()));
  return absl::StrCat(
      text,
      "cycles are the compiler's own estimate, never a measurement; \"off\": arguments against the tile "
      "rule\n");
}

}  // namespace twinforge
