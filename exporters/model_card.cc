#include "exporters/model_card.h"

#include <algorithm>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/file.h"
#include "base/json.h"

namespace twinforge {
namespace {

// A name that somebody chose, as one line that stands in backquotes and ends nothing.
std::string InCode(absl::string_view name) {
  std::string shown;
  for (const char c : name) shown.push_back(c >= ' ' && c <= '~' && c != '`' ? c : '?');
  return shown;
}

constexpr int64_t kLargestCard = 1 << 20;

// Lines of the front matter of the source's card that begin with one of the kept keys.
std::string KeptFrontMatter(const std::string& root) {
  absl::StatusOr<std::string> card = ReadTextFile(absl::StrCat(root, "/README.md"), kLargestCard);
  if (!card.ok() || !absl::StartsWith(*card, "---\n")) return "";
  std::string kept;
  std::vector<absl::string_view> lines = absl::StrSplit(*card, '\n');
  for (size_t i = 1; i < lines.size() && lines[i] != "---"; ++i) {
    for (absl::string_view key : {"license:", "license_name:", "license_link:", "base_model:"}) {
      if (!absl::StartsWith(lines[i], key)) continue;
      absl::StrAppend(&kept, lines[i], "\n");
      // A list under the key belongs to it.
      while (i + 1 < lines.size() &&
             (absl::StartsWith(lines[i + 1], "- ") || absl::StartsWith(lines[i + 1], "  "))) {
        absl::StrAppend(&kept, lines[++i], "\n");
      }
      break;
    }
  }
  return kept;
}

std::string FidelitySentence(const Provenance& provenance) {
  const std::string& fidelity = provenance.fidelity;
  if (fidelity == "MOVED") return "Values only moved: every weight is bit-equal to the source's.";
  if (fidelity == "REASSOCIATED")
    return "Equal in real arithmetic; weights may be rescaled or sums reordered.";
  if (fidelity == "BOUNDED")
    return absl::StrCat(
        "Weights that were computed are rounded to the type that stores them",
        provenance.bound.empty() ? "" : absl::StrCat(", each within ", provenance.bound, " of its magnitude"),
        ".");
  return "Elements were dropped: this twin needs tuning before use.";
}

bool Has(const ExportPlan& plan, absl::string_view name) {
  const auto is = [&](const auto& file) { return file.name == name; };
  return std::any_of(plan.files.begin(), plan.files.end(), is) ||
         std::any_of(plan.small_files.begin(), plan.small_files.end(), is);
}

// The class that config.json names: "LlamaForCausalLM"; "" where it names none.
std::string ClassOf(const ExportPlan& plan) {
  for (const SmallFile& file : plan.small_files) {
    if (file.name != "config.json") continue;
    const absl::StatusOr<JsonValue> config = ParseJson(file.content, file.name);
    const JsonValue* classes = config.ok() ? config->Find("architectures") : nullptr;
    if (classes == nullptr || classes->kind() != JsonValue::Kind::kArray || classes->items().size() != 1)
      return "";
    const JsonValue& name = classes->items()[0];
    return name.kind() == JsonValue::Kind::kString ? InCode(name.as_string()) : "";
  }
  return "";
}

// Places of the logits that are no words.
int64_t PaddedWords(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    if (node.op != OpKind::kLmHead) continue;
    for (const auto& [slot, role] : node.params) {
      const ParamType& type = graph.FindParam(role)->type;
      const int at = type.Find("vocab");
      if (at >= 0) return type.axes[at].size - type.axes[at].logical;
    }
  }
  return 0;
}

std::string TransformersLine(const Graph& graph, const ExportPlan& plan) {
  if (plan.target != Target::kHf)
    return "no. Its tensors have names and layouts of their own; `twinforge unforge` writes those that it "
           "reads.";
  const std::string name = ClassOf(plan);
  std::string line = absl::StrCat(
      name.empty() ? "as it loads the source" : absl::StrCat("`", name, ".from_pretrained(FOLDER)`"),
      ", unmodified.");
  const int64_t padded = PaddedWords(graph);
  if (padded > 0) {
    absl::StrAppend(&line, " The last ", padded, " logits are padding",
                    Has(plan, "generation_config.json")
                        ? ", which `suppress_tokens` of generation_config.json keeps from being said."
                        : ".");
  }
  return line;
}

// One line for each way to run the twin, each of them true of these files.
std::string Loaders(const Graph& graph, const ExportPlan& plan) {
  std::string text = "## What loads it\n\n";
  absl::StrAppend(&text, "- transformers: ", TransformersLine(graph, plan), "\n");
  const auto code = [&](absl::string_view who, absl::string_view file) {
    if (Has(plan, file)) {
      absl::StrAppend(&text, "- ", who, ": `python ", file,
                      " --prompt-ids 1,2,3`; `load` there reads these files.\n");
    } else {
      absl::StrAppend(&text, "- ", who, ": no code for it lies here.\n");
    }
  };
  code("JAX", "reference/model.py");
  code("PyTorch", "reference/model_torch.py");
  if (Has(plan, "model.onnx")) absl::StrAppend(&text, "- ONNX runtimes: `model.onnx`.\n");
  return text + "\n";
}

std::string FormatOf(const ExportPlan& plan) {
  if (plan.target == Target::kHf) return "the source's own names and layouts";
  if (plan.target == Target::kTwin) return "twin: tensors named by role, as the recipe lays them";
  return absl::StrCat("ONNX, operator set ", plan.opset, ", computed in ", plan.computed_in,
                      ": `model.onnx`, its weights in `model.onnx.data`");
}

}  // namespace

std::string ModelCard(const Model& model, const Graph& graph, const ExportPlan& plan,
                      const Provenance& provenance) {
  std::string kept = KeptFrontMatter(model.root);
  std::string text = absl::StrCat("---\n", kept, "library_name: ",
                                  plan.target == Target::kHf     ? "transformers"
                                  : plan.target == Target::kOnnx ? "onnx"
                                                                 : "twinforge",
                                  "\ntags:\n- twinforge\n---\n\n");
  absl::StrAppend(&text, "# A TPU twin (", model.model_type, ")\n\n");
  absl::StrAppend(&text, "Made from its source checkpoint by the recipe `", InCode(provenance.recipe_name),
                  "`", provenance.chip.empty() ? "" : absl::StrCat(" for ", provenance.chip),
                  provenance.shards > 1 ? absl::StrCat(", ", provenance.shards, " shards") : "", ".\n\n");
  absl::StrAppend(&text, "**Fidelity: ", provenance.fidelity, ".** ", FidelitySentence(provenance), "\n\n");
  absl::StrAppend(&text, "| | |\n| --- | --- |\n");
  absl::StrAppend(&text, "| format | ", FormatOf(plan), " |\n| tensor bytes | ", plan.bytes_out,
                  " |\n| files | ", plan.files.size(), " |\n");
  std::map<std::string, int64_t> fates;
  for (const LedgerRow& row : plan.ledger) ++fates[std::string(FateName(row.fate))];
  absl::StrAppend(&text, "| source tensors |");
  for (const auto& [fate, count] : fates) absl::StrAppend(&text, " ", count, " ", fate);
  absl::StrAppend(&text, " |\n\n");
  if (!provenance.steps.empty()) {
    absl::StrAppend(&text, "Steps:\n\n");
    for (const std::string& step : provenance.steps) absl::StrAppend(&text, "- ", step, "\n");
    text += "\n";
  }
  text += Loaders(graph, plan);
  absl::StrAppend(
      &text,
      "`twinforge prove SOURCE TWIN` checks it byte for byte beside its source; `twinforge unforge "
      "TWIN --out DIR` writes the source's layout back. `twin.manifest.textproto` says how every "
      "tensor was made.\n");
  return text;
}

}  // namespace twinforge
