#include "cli/onnx_again.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "exporters/new_files.h"
#include "onnx/checksum.h"
#include "onnx/rewrite.h"
#include "onnx/store_as.h"
#include "report/table.h"

namespace twinforge {
namespace {

void AddStored(const std::vector<StoredAs>& rows, Outcome& outcome) {
  outcome.json["stored"] = Json::array();
  int64_t before = 0, after = 0;
  for (const StoredAs& row : rows) {
    outcome.json["stored"].push_back({{"name", row.name},
                                      {"from", row.from},
                                      {"to", row.to},
                                      {"bytes_before", row.bytes_before},
                                      {"bytes_after", row.bytes_after}});
    before += row.bytes_before, after += row.bytes_after;
  }
  if (rows.empty()) return;
  absl::StrAppend(&outcome.human, Grouped(static_cast<int64_t>(rows.size())),
                  " initializers stored otherwise, each rounded once and cast back: ", HumanBytes(before),
                  " to ", HumanBytes(after), "\n");
}

void AddFiles(const OnnxFiles& planned, const WrittenBytes& written, Outcome& outcome) {
  outcome.json["files"] = Json::array();
  for (const NewFile& file : planned.files) {
    outcome.json["files"].push_back({{"name", file.name}, {"bytes", file.size}});
    absl::StrAppend(&outcome.human, file.name, "  ", HumanBytes(file.size), "\n");
  }
  outcome.json["bytes"] = {{"message", written.text},
                           {"copied", written.copied},
                           {"holes", written.holes},
                           {"made", written.made}};
  outcome.json["notes"] = planned.notes;
  for (const std::string& note : planned.notes) absl::StrAppend(&outcome.human, "note: ", note, "\n");
}

// TF1613 with what helps here.
absl::Status WithHint(const absl::Status& status) {
  const std::optional<Diagnostic> said = DiagnosticOf(status);
  if (!said || said->code != 1613) return status;
  return Error(1613, said->place, said->message, "store it as bf16, or leave it out of the pattern");
}

}  // namespace

void AddOnnxExportFlags(CLI::App* verb, OnnxExportFlags& flags) {
  verb->add_option(
          "--store", flags.store,
          "of an ONNX model: initializers whose whole name matches are stored as bf16, f16 or f32 and cast "
          "back, PATTERN=TYPE; may be repeated, the first that matches counts")
      ->allow_extra_args(false);
  verb->add_option(
          "--data-layout", flags.data_layout,
          "of an ONNX model: keep (default) leaves data files as they are; single puts all weights into one "
          "file beside the model, each at a multiple of 4,096 bytes")
      ->check(CLI::IsMember({"keep", "single"}));
  verb->add_flag("--integrity", flags.integrity,
                 "of an ONNX model: data files are read and their checksums compared first");
}

bool AnyIsSet(const OnnxExportFlags& flags) {
  return !flags.store.empty() || !flags.data_layout.empty() || flags.integrity;
}

absl::StatusOr<Outcome> ExportOnnxFile(const std::string& path, const OnnxExportFlags& flags,
                                       const std::string& out) {
  std::vector<StoreRule> rules;
  for (const std::string& text : flags.store) {
    TWIN_ASSIGN_OR_RETURN(StoreRule rule, ParseStoreRule(text));
    rules.push_back(std::move(rule));
  }
  OnnxRewrite rewrite;
  TWIN_ASSIGN_OR_RETURN(rewrite.message, ReadOnnxMessage(path));
  TWIN_ASSIGN_OR_RETURN(const std::unique_ptr<OnnxModel> model, CheckedOnnxModel(rewrite.message));
  Outcome outcome;
  if (flags.integrity) {
    TWIN_ASSIGN_OR_RETURN(const int64_t files, CheckChecksums(rewrite.message));
    outcome.json["checksums"] = files;
    absl::StrAppend(&outcome.human, files, " data files have the checksum that the model says\n");
  }
  TWIN_ASSIGN_OR_RETURN(const std::vector<StoredAs> stored, StoreAs(rules, *model, rewrite));
  AddStored(stored, outcome);
  const DataLayout layout = flags.data_layout == "single" ? DataLayout::kSingle : DataLayout::kKeep;
  const std::string name = std::filesystem::path(path).filename().string();
  TWIN_ASSIGN_OR_RETURN(const OnnxFiles planned, PlanOnnxFiles(std::move(rewrite), layout, name));
  const auto written = WriteNewFiles(SystemFiles(), planned.files, planned.rewrite.reader.get(), out);
  if (!written.ok()) return WithHint(written.status());
  AddFiles(planned, *written, outcome);
  outcome.json["out"] = out;
  outcome.done = absl::StrCat("the model is written to ", out);
  absl::StrAppend(&outcome.human, "written to ", out, "\n");
  return outcome;
}

}  // namespace twinforge
