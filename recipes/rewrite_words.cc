#include "recipes/rewrite_words.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "cost/layer_shape.h"

namespace twinforge {
namespace {

// The size that the rewrite goes to, where the question takes one.
int64_t Target(const std::string& rewrite, const CompiledShape& twin, const Graph& graph) {
  if (rewrite == "pad_head_dim") return twin.head_dim;
  if (rewrite == "pad_ffn") return twin.d_ff;
  if (rewrite == "replicate_kv_heads") return twin.kv_heads;
  if (rewrite == "pad_vocab") return twin.vocab;
  return rewrite == "group_experts" ? ExpertGroupOf(graph) : 0;
}

bool AnySite(const StepReport& step, absl::string_view end) {
  return std::any_of(step.sites.begin(), step.sites.end(),
                     [&](const std::string& site) { return absl::EndsWith(site, end); });
}

CompiledWord Ask(const CompiledQuestion& question) {
  absl::StatusOr<CompiledWord> word = WordOfCompiler(question);
  if (word.ok()) return *std::move(word);
  const Diagnostic d = DiagnosticOf(word.status()).value_or(Diagnostic());
  return {.note = d.message};  // sizes beyond what was compiled: nobody knows
}

// What was compiled is a layer in bf16 whose sequences and experts lie on one device, or on those of tp.
// Groups of `dp` do alike, each with its own sequences.
absl::string_view NotCompiledOn(const Workload& w, const Graph& graph) {
  if (w.sp > 1) return "nothing was compiled of sequences that several devices share (sp)";
  const bool experts = std::any_of(graph.nodes().begin(), graph.nodes().end(),
                                   [](const Node& node) { return node.op == OpKind::kMoe; });
  if (w.ep > 1 && experts) return "nothing was compiled of experts that lie on several devices (ep)";
  const Precision& types = w.precision;
  const bool as_compiled = (!types.weights || types.weights->stored == DType::kBF16) &&
                           types.activations.value_or(DType::kBF16) == DType::kBF16 &&
                           types.cache.value_or(DType::kBF16) == DType::kBF16;
  return as_compiled ? "" : "nothing was compiled of types other than bf16";
}

// Heads padded and kv heads repeated are one rewrite to the compiler.
std::string CompilersName(const std::string& transform) {
  return transform == "pad_heads" ? "replicate_kv_heads" : transform;
}

}  // namespace

std::string TransformOf(const StepReport& step) { return step.step.substr(step.step.find(' ') + 1); }

std::vector<RewriteWord> WordsOf(const RecipeReport& report, const Graph& source, const Graph& twin,
                                 const AdviceRequest& request) {
  const Workload& w = request.workload;
  CompiledQuestion question{.chip = request.chip,
                            .step = {.phase = w.phase, .sequences = w.local_batch(), .context = w.context},
                            .shards = w.shards};
  const std::optional<CompiledShape> layer = LayerShapeOf(source), layer_after = LayerShapeOf(twin);
  const std::optional<CompiledShape> head = HeadShapeOf(source), head_after = HeadShapeOf(twin);
  std::vector<RewriteWord> words;
  std::set<std::string> asked;
  const absl::string_view unknown = NotCompiledOn(w, source);
  const auto ask = [&](absl::string_view of) {
    if (!unknown.empty()) return CompiledWord{.note = std::string(unknown)};
    CompiledWord word = Ask(question);
    if (w.dp > 1 && word.source != CompiledSource::kUnknown)
      absl::StrAppend(&word.note, ", as each of ", w.dp, " groups runs the ", of);
    return word;
  };
  for (const StepReport& step : report.steps) {
    const std::string name = CompilersName(TransformOf(step));
    if (step.sites.empty() || !asked.insert(name).second) continue;
    question.rewrite = name;
    const bool of_head = name == "pad_vocab" || AnySite(step, "lm_head");
    const bool of_layer = name != "pad_vocab" &&
                          !(of_head && std::all_of(step.sites.begin(), step.sites.end(), [](const auto& s) {
                              return absl::EndsWith(s, "lm_head");
                            }));
    if (of_layer && (!layer || !layer_after)) {
      words.push_back({name, "layer", {.note = "no layer of this kind was compiled"}});
    } else if (of_layer) {
      question.shape = *layer;
      question.to = Target(name, *layer_after, twin);
      question.qkv_too = AnySite(step, ".q");
      words.push_back({name, "layer", ask("layer")});
    }
    if (!of_head || !head || !head_after) continue;
    question.shape = *head;
    question.to = Target(name, *head_after, twin);
    question.qkv_too = false;
    words.push_back({name, "head", ask("head")});
  }
  return words;
}

std::optional<int> SignOfWords(const std::vector<RewriteWord>& words) {
  std::optional<int> sign;
  for (const RewriteWord& word : words) {
    if (word.word.source == CompiledSource::kUnknown) continue;
    if (word.word.sign > 0) return 1;
    sign = std::min(sign.value_or(0), word.word.sign);
  }
  return sign;
}

}  // namespace twinforge
