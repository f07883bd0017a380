#include "cost/compiled.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "cost/chip.h"
#include "cost/compiled.pb.h"
#include "cost/compiled_cycles.h"
#include "cost/compiled_rows.h"

namespace twinforge {
namespace {

constexpr double kSame = 0.01;
constexpr int64_t kRecordRows = 6;     // fewer trials show nothing
constexpr double kRecordRight = 0.85;  // of them with the right sign

// A rewrite in the tables' words, and the layer before and after.
struct Rewritten {
  std::string word;    // the record's and the rows' word: "fqkv", "hd128"
  std::string record;  // whose trials vouch for a prediction, where the same word was not tried: "hd"
  CompiledForm before;
  CompiledForm after;
};

CompiledWord Unknown(std::string note) { return {.note = std::move(note)}; }

absl::Status CheckSizes(const CompiledQuestion& question) {
  const CompiledShape& s = question.shape;
  const auto in_range = [](int64_t value, int64_t least) {
    return value >= least && value <= (int64_t{1} << 20);
  };
  const bool head = s.vocab > 0;
  const bool layer = in_range(s.heads, 1) && in_range(s.kv_heads, 1) && in_range(s.head_dim, 1) &&
                     in_range(s.d_ff, 1) && s.experts >= 1 && s.experts <= 4096 && s.heads <= 4096 &&
                     s.head_dim <= 4096 && s.heads % s.kv_heads == 0;
  const bool step = in_range(question.step.sequences, 1) && in_range(question.step.context, 1) &&
                    question.step.sequences <= 4096;
  if (in_range(s.d_model, 1) && in_range(s.vocab, 0) && (head || layer) && step && in_range(question.to, 0) &&
      in_range(question.shards, 1)) {
    return absl::OkStatus();
  }
  return Error(1703, question.rewrite, "the layer's sizes, its step or its shards are no sizes of a layer",
               "each is a whole number from 1 to 2^20; kv heads divide the heads");
}

// Empty: the tables have no such rewrite, or `to` changes nothing.
std::optional<Rewritten> Rewrite(const CompiledQuestion& question) {
  const CompiledShape& s = question.shape;
  const std::string& name = question.rewrite;
  const bool head = s.vocab > 0;
  CompiledForm form = {.shape = s};
  form.rest_in_out = question.in_out;
  Rewritten r = {.before = form, .after = form};
  if (name == "orient_weights" && !question.in_out) {
    const bool all = question.qkv_too && !head;
    r.word = r.record = head ? "io_V" : all ? "w_in_out" : "qkv_oi_rest_io";
    r.after.rest_in_out = true;
    r.after.qkv_in_out = all;
    return r;
  }
  if (name == "pad_vocab" && head && question.to > s.vocab) {
    r.after.shape.vocab = question.to;
    r.record = question.in_out ? "io_V" : "oi_V";
    r.word = absl::StrCat(r.record, question.to);
    return r;
  }
  if (head) return std::nullopt;
  if (name == "fuse_qkv") {
    r.word = r.record = "fqkv";
    r.after.fused_qkv = true;
  } else if (name == "fuse_gate_up" && s.gated) {
    r.word = r.record = "fgu";
    r.after.fused_gate_up = true;
  } else if (name == "pad_head_dim" && question.to > s.head_dim) {
    r.word = absl::StrCat("hd", question.to);
    r.record = "hd";
    r.after.shape.head_dim = question.to;
  } else if (name == "pad_ffn" && question.to > s.d_ff) {
    r.word = absl::StrCat("ffn", question.to);
    r.record = "ffn";
    r.after.shape.d_ff = question.to;
  } else if (name == "group_experts" && question.to > 1 && s.experts % question.to == 0) {
    r.word = question.to == 2 ? "pairs" : "";
    r.record = "pairs";
    r.after.shape.experts = s.experts / question.to;
    r.after.shape.d_ff = s.d_ff * question.to;
  } else {
    return std::nullopt;
  }
  return r;
}

// The published model of these sizes; null: none was compiled.
const CompiledModelFile* SameModel(const CompiledShape& s) {
  for (const CompiledModelFile& m : Facts().model()) {
    if (m.d_model() != s.d_model || m.vocab() != s.vocab) continue;
    if (s.vocab > 0) return &m;
    if (m.heads() == s.heads && m.kv_heads() == s.kv_heads && m.head_dim() == s.head_dim &&
        m.d_ff() == s.d_ff && m.experts() == s.experts && m.gated() == s.gated) {
      return &m;
    }
  }
  return nullptr;
}

// Whether a compiled step stands for the one asked about: within a factor of two.
bool IsNear(const CompiledStep& asked, const CompiledStep& compiled) {
  const auto near = [](int64_t a, int64_t b) { return a <= 2 * b && b <= 2 * a; };
  if (asked.phase != compiled.phase) return false;
  if (asked.phase == Phase::kPrefill) return near(asked.sequences * asked.context, compiled.context);
  return near(asked.sequences, compiled.sequences) && near(asked.context, compiled.context);
}

int SignOf(double low, double high) {
  if (high < -kSame) return -1;
  return low > kSame ? 1 : 0;
}

CompiledWord FromChanges(const std::vector<const CompiledRow*>& rows, const std::vector<double>& changes,
                         std::string note) {
  CompiledWord word = {.source = CompiledSource::kRows, .note = std::move(note)};
  word.low = *std::min_element(changes.begin(), changes.end());
  word.high = *std::max_element(changes.begin(), changes.end());
  word.sign = SignOf(word.low, word.high);
  for (const CompiledRow* row : rows) word.rows.push_back(row->Key());
  return word;
}

// Rows of the model with this rewrite against the row that it starts from.
std::optional<CompiledWord> CompiledAnswer(const CompiledQuestion& question, const Rewritten& rewritten,
                                           absl::string_view generation) {
  const CompiledModelFile* model = SameModel(question.shape);
  if (model == nullptr || rewritten.word.empty()) return std::nullopt;
  // A head that lies [in, out] already starts from that row; layers start from the published one only.
  const std::string start = question.shape.vocab == 0 ? "src" : question.in_out ? "io_V" : "oi_V";
  if (question.shape.vocab == 0 && question.in_out) return std::nullopt;
  std::vector<const CompiledRow*> rows;
  std::vector<double> changes;
  for (const absl::Span<const CompiledRow> table : {CompiledRows(), UnseenRows()}) {
    for (const CompiledRow& row : table) {
      if (row.model != model->name() || row.generation != generation || row.rewrite != rewritten.word)
        continue;
      if (!IsNear(question.step, StepOfPhase(row.phase))) continue;
      for (const CompiledRow& source : table) {
        if (source.model != row.model || source.generation != row.generation || source.phase != row.phase)
          continue;
        if (source.mode != row.mode || source.rewrite != start) continue;
        rows.push_back(&row);
        changes.push_back(row.cycles / source.cycles - 1);
      }
    }
  }
  if (rows.empty()) return std::nullopt;
  return FromChanges(rows, changes, absl::StrCat(model->published(), " was compiled with this rewrite"));
}

// Trials of the same kind of rewrite: its own word's, or all that begin with it and a number.
CompiledRecord RecordOf(const Rewritten& rewritten, Phase phase) {
  CompiledRecord sum;
  for (const CompiledRecord& record : Fit().record()) {
    absl::string_view rest = record.rewrite();
    if (record.phase() != Name(phase) || !absl::ConsumePrefix(&rest, rewritten.record)) continue;
    const bool number = !rest.empty() && rest.find_first_not_of("0123456789") == absl::string_view::npos;
    if (!rest.empty() && !number) continue;
    sum.set_right(sum.right() + record.right());
    sum.set_rows(sum.rows() + record.rows());
    sum.set_spread(std::max(sum.spread(), record.spread()));
  }
  return sum;
}

CompiledWord PredictedAnswer(const CompiledQuestion& question, const Rewritten& rewritten,
                             absl::string_view generation) {
  const CompiledRecord record = RecordOf(rewritten, question.step.phase);
  const std::string trials = absl::StrFormat("for models left out %d of %d signs of this rewrite were right",
                                             record.right(), record.rows());
  if (record.rows() < kRecordRows || static_cast<double>(record.right()) < kRecordRight * record.rows()) {
    return Unknown(absl::StrCat("this model was not compiled so, and ", trials));
  }
  const auto before = LayerCycles(Fit(), generation, rewritten.before, question.step);
  const auto after = LayerCycles(Fit(), generation, rewritten.after, question.step);
  if (!before.has_value() || !after.has_value() || *before <= 0) {
    return Unknown(absl::StrCat("no layer was compiled for ", Name(question.step.phase), " on ", generation));
  }
  CompiledWord word = {.source = CompiledSource::kPredicted, .note = trials};
  const double change = *after / *before - 1;
  word.low = change - record.spread();
  word.high = change + record.spread();
  word.sign = SignOf(word.low, word.high);
  return word;
}

// Collectives carry no estimate of the compiler's, so only the rows of the one sharded model answer.
CompiledWord ShardedAnswer(const CompiledQuestion& question, absl::string_view generation) {
  const CompiledModelFile* model = SameModel(question.shape);
  const std::string sharded =
      generation == "v6e" ? "v6e8" : std::string(generation.data(), generation.size());
  if (question.rewrite != "replicate_kv_heads" || model == nullptr || model->name() != "qwen7b" ||
      question.shards != 8 || question.to != 8 || question.step.phase != Phase::kDecode) {
    return Unknown(
        "on several devices one case was compiled: Qwen2.5-7B, 8-way, decode, heads to 32 and kv heads to 8");
  }
  std::vector<const CompiledRow*> rows;
  std::vector<double> changes;
  for (const CompiledRow& row : CompiledRows()) {
    if (row.generation != sharded || row.rewrite != "tp8_q32_kv8" ||
        !IsNear(question.step, StepOfPhase(row.phase))) {
      continue;
    }
    // Against each way to split the cache of the published model; the best of them is the fair one.
    double best = 0;
    for (const CompiledRow& source : CompiledRows()) {
      if (source.generation != sharded || source.model != row.model || source.mode != row.mode) continue;
      if (!absl::StartsWith(source.rewrite, "tp8_src")) continue;
      best = best == 0 ? source.cycles : std::min(best, source.cycles);
    }
    if (best == 0) continue;
    rows.push_back(&row);
    changes.push_back(row.cycles / best - 1);
  }
  if (rows.empty()) return Unknown(absl::StrCat("not compiled on ", generation));
  return FromChanges(rows, changes,
                     "against the best split of the published model's cache; collectives carry no cycles");
}

}  // namespace

absl::StatusOr<CompiledWord> WordOfCompiler(const CompiledQuestion& question) {
  TWIN_ASSIGN_OR_RETURN(const ChipFigures* chip, FindChipFacts(question.chip));
  TWIN_RETURN_IF_ERROR(CheckSizes(question));
  const CompiledGenerationFile* generation = FindGeneration(chip->summary.id);
  if (generation == nullptr) return Unknown(absl::StrCat("nothing was compiled for ", chip->summary.id));
  if (question.shards > 1 || question.rewrite == "replicate_kv_heads" || question.rewrite == "pad_heads") {
    return ShardedAnswer(question, generation->name());
  }
  const std::optional<Rewritten> rewritten = Rewrite(question);
  if (!rewritten.has_value()) {
    return Unknown(absl::StrCat("the compiler was never asked about ", question.rewrite, " of this layer"));
  }
  if (const auto compiled = CompiledAnswer(question, *rewritten, generation->name()); compiled.has_value()) {
    return *compiled;
  }
  return PredictedAnswer(question, *rewritten, generation->name());
}

}  // namespace twinforge
