#include "cost/compiled_rows.h"

#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/check.h"
#include "base/embedded.h"
#include "cost/compiled.pb.h"
#include "google/protobuf/text_format.h"

namespace twinforge {

absl::Span<const EmbeddedFile> Embedded_compiled();
absl::Span<const EmbeddedFile> Embedded_compiled_rows();

namespace {

bool Whole(absl::string_view text, int64_t& value) { return absl::SimpleAtoi(text, &value); }

const CompiledModelFile* FindModel(absl::string_view name) {
  for (const CompiledModelFile& model : Facts().model()) {
    if (model.name() == name) return &model;
  }
  return nullptr;
}

CompiledShape ShapeOf(const CompiledModelFile& model) {
  return {.d_model = model.d_model(),
          .heads = model.heads(),
          .kv_heads = model.kv_heads(),
          .head_dim = model.head_dim(),
          .d_ff = model.d_ff(),
          .experts = model.vocab() > 0 ? 1 : model.experts(),
          .gated = model.vocab() > 0 || model.gated(),
          .vocab = model.vocab()};
}

// "io_V50304": stored [in, out], the vocabulary made 50,304.
bool ApplyHeadWord(absl::string_view word, CompiledForm& form) {
  if (!absl::ConsumePrefix(&word, "io_V")) {
    if (!absl::ConsumePrefix(&word, "oi_V")) return false;
  } else {
    form.rest_in_out = true;
  }
  return word.empty() || Whole(word, form.shape.vocab);
}

bool ApplyWord(absl::string_view word, CompiledForm& form) {
  CompiledShape& shape = form.shape;
  if (word == "src") return true;
  if (word == "kv_bthd" || word == "kv_bhdt") {
    form.cache =
        word == "kv_bthd" ? CompiledForm::Cache::kPlacesHeadsDims : CompiledForm::Cache::kHeadsDimsPlaces;
    return true;
  }
  if (word == "w_in_out") return form.qkv_in_out = form.rest_in_out = true;
  if (word == "qkv_oi_rest_io" || word == "rest_io") return form.rest_in_out = true;
  if (word == "fused") return form.fused_qkv = form.fused_gate_up = true;
  if (word == "fqkv") return form.fused_qkv = true;
  if (word == "fgu") return form.fused_gate_up = true;
  if (word == "fold") return form.one_wide_expert = true;
  if (word == "pairs") {
    shape.experts /= 2;
    shape.d_ff *= 2;
    return true;
  }
  if (absl::ConsumePrefix(&word, "hd")) return Whole(word, shape.head_dim);
  if (absl::ConsumePrefix(&word, "ffn")) return Whole(word, shape.d_ff);
  if (absl::ConsumePrefix(&word, "d_ffn")) return Whole(word, shape.d_ff) && Whole(word, shape.d_model);
  return false;
}

void FindSources(std::vector<CompiledRow>& rows) {
  const auto key = [](const CompiledRow& row) {
    return absl::StrCat(row.generation, " ", row.model, " ", row.phase, " ", row.mode);
  };
  std::map<std::string, int32_t> sources;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].rewrite == "src" || rows[i].rewrite == "oi_V")
      sources[key(rows[i])] = static_cast<int32_t>(i);
  }
  for (CompiledRow& row : rows) {
    if (absl::StartsWith(row.rewrite, "tp")) continue;  // other devices, another source
    const auto found = sources.find(key(row));
    if (found != sources.end()) row.source = found->second;
  }
}

std::vector<CompiledRow> EmbeddedRows(absl::string_view name) {
  for (const EmbeddedFile& file : Embedded_compiled_rows()) {
    if (file.name == name) return ParseCompiledRows(file.text);
  }
  TWIN_CHECK(false, name);
  return {};
}

}  // namespace

std::string CompiledRow::Key() const {
  return absl::StrCat(generation, " ", model, " ", phase, " ", rewrite, mode == "default" ? "" : " ",
                      mode == "default" ? "" : mode);
}

const CompiledFacts& Facts() {
  static const CompiledFacts* const facts = [] {
    auto* all = new CompiledFacts;
    for (const EmbeddedFile& file : Embedded_compiled()) {
      if (file.name != "facts.textproto") continue;
      TWIN_CHECK(
          google::protobuf::TextFormat::ParseFromString(std::string(file.text.data(), file.text.size()), all),
          file.name);
    }
    TWIN_CHECK(all->generation_size() > 0, "compiled/facts.textproto is embedded");
    return all;
  }();
  return *facts;
}

CsvTable CompiledTableOf(absl::string_view csv) {
  absl::StatusOr<CsvTable> table = ParseCsv(csv, "a table of compiled rows");
  TWIN_CHECK(table.ok(), table.status().ToString());
  return *std::move(table);
}

std::vector<CompiledRow> ParseCompiledRows(absl::string_view csv) {
  std::vector<CompiledRow> rows;
  const CsvTable table = CompiledTableOf(csv);
  for (const CsvTable::Row& line : table.rows) {
    const auto at = [&](const char* name) -> const std::string& {
      TWIN_CHECK(table.Find(name) >= 0, name);
      return table.Get(line, name);
    };
    CompiledRow row = {.generation = at("generation"),
                       .model = at("model"),
                       .phase = at("phase"),
                       .rewrite = at("rewrite"),
                       .mode = at("mode")};
    TWIN_CHECK(absl::SimpleAtod(at("est_cycles"), &row.cycles) && Whole(at("copies"), row.copies) &&
                   absl::SimpleAtod(at("copy_cycles"), &row.copy_cycles),
               absl::StrCat("line ", line.line));
    rows.push_back(std::move(row));
  }
  FindSources(rows);
  return rows;
}

absl::Span<const CompiledRow> CompiledRows() {
  static const auto* const rows = new std::vector<CompiledRow>(EmbeddedRows("layers.csv"));
  return *rows;
}

absl::Span<const CompiledRow> UnseenRows() {
  static const auto* const rows = new std::vector<CompiledRow>(EmbeddedRows("unseen.csv"));
  return *rows;
}

std::optional<CompiledForm> FormOfRow(const CompiledRow& row) {
  const CompiledModelFile* model = FindModel(row.model);
  if (model == nullptr || row.generation == "v6e8") return std::nullopt;
  CompiledForm form = {.shape = ShapeOf(*model)};
  form.compiler_layouts = row.mode != "default";
  if (model->vocab() > 0) {
    if (!ApplyHeadWord(row.rewrite, form)) return std::nullopt;
    return form;
  }
  for (absl::string_view word : absl::StrSplit(row.rewrite, '+')) {
    if (!ApplyWord(word, form)) return std::nullopt;
  }
  return form;
}

CompiledStep StepOfPhase(absl::string_view phase) {
  if (phase == "prefill") return {.phase = Phase::kPrefill, .sequences = 1, .context = 512};
  CompiledStep step;
  TWIN_CHECK(absl::ConsumePrefix(&phase, "decode") && Whole(phase, step.sequences), phase);
  return step;
}

}  // namespace twinforge
