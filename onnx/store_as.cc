#include "onnx/store_as.h"

#include <re2/re2.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/json_reader.h"
#include "base/status_macros.h"
#include "onnx/onnx-ml.pb.h"
#include "onnx/tensor_data.h"
#include "weights/build.h"

namespace twinforge {
namespace {

constexpr int64_t kCastKnowsHalf = 6,
                  kCastKnowsBfloat = 13;  // since these operator sets, Cast as it is today

std::unique_ptr<RE2> Compiled(const std::string& pattern) {
  RE2::Options options;
  options.set_log_errors(false);
  return std::make_unique<RE2>(pattern, options);
}

// All names of the model: a new one is none of them.
absl::flat_hash_set<std::string> NamesOf(const OnnxModel& model) {
  absl::flat_hash_set<std::string> names(model.graph.names.begin(), model.graph.names.end());
  for (const auto& graph : model.subgraphs) names.insert(graph->names.begin(), graph->names.end());
  return names;
}

std::string NewName(const std::string& name, absl::flat_hash_set<std::string>& taken) {
  for (int number = 0;; ++number) {
    const std::string tried = number == 0 ? name : absl::StrCat(name, ".", number);
    if (taken.insert(tried).second) return tried;
  }
}

class Storer {
 public:
  Storer(const OnnxModel& model, OnnxRewrite& rewrite)
      : model_(model), rewrite_(rewrite), names_(NamesOf(model)) {
    inputs_.insert(model.graph.inputs.begin(), model.graph.inputs.end());
  }

  // Whether `initializer` is one that may be stored as `dtype` is.
  static bool IsFor(const ::onnx::TensorProto& tensor, DType dtype) {
    const auto type = ElementTypeFromCode(tensor.data_type());
    return type && IsFloatingElement(*type) && WeightTypeOf(*type) && *WeightTypeOf(*type) != dtype;
  }

  absl::Status Store(const OnnxInitializer& initializer, DType dtype) {
    auto& tensor =
        const_cast<::onnx::TensorProto&>(*initializer.dense);  // of the message, which may be changed
    const std::string place = absl::StrCat(model_.path, ": initializer ", JsonQuoted(tensor.name(), 200));
    const auto opset = model_.opsets.find("");
    const int64_t needs = dtype == DType::kBF16 || tensor.data_type() == ::onnx::TensorProto::BFLOAT16
                              ? kCastKnowsBfloat
                              : kCastKnowsHalf;
    if (opset == model_.opsets.end() || opset->second < needs) {
      return Error(2020, place,
                   absl::StrCat("a Cast of ", Name(dtype), " is in operator set ", needs,
                                "; the model imports ", opset == model_.opsets.end() ? 0 : opset->second));
    }
    if (inputs_.contains(initializer.slot)) {
      return Error(2020, place, "is an input's default, whose type callers know",
                   "leave it out of the pattern");
    }
    TWIN_ASSIGN_OR_RETURN(PackedTensor packed, PackedTensor::Of(tensor, *rewrite_.message.files, place));
    const ElementType own = packed.type();
    StoredAs row{tensor.name(), std::string(ElementTypeName(own)),
                 std::string(ElementTypeName(*ElementTypeOf(dtype))), packed.byte_size(),
                 PackedBytes(*ElementTypeOf(dtype), ElementCount(packed.shape()))};
    TWIN_ASSIGN_OR_RETURN(const WeightPtr source,
                          rewrite_.reader->Add(tensor.name(), std::move(packed), place));
    rewrite_.programs[&tensor] = Cast(source, dtype);
    AddCast(tensor, NewName(absl::StrCat(tensor.name(), ".", Name(dtype)), names_),
            static_cast<int64_t>(own));
    rows_.push_back(std::move(row));
    return absl::OkStatus();
  }

  // Casts take initializers alone, so they may stand before everything.
  std::vector<StoredAs> Finish() {
    auto& nodes = *rewrite_.message.proto->mutable_graph()->mutable_node();
    std::rotate(nodes.pointer_begin(),
                nodes.pointer_begin() + (nodes.size() - static_cast<int>(rows_.size())), nodes.pointer_end());
    return std::move(rows_);
  }

 private:
  void AddCast(::onnx::TensorProto& tensor, const std::string& stored, int64_t own) {
    ::onnx::NodeProto& cast = *rewrite_.message.proto->mutable_graph()->add_node();
    cast.add_input(stored);
    cast.add_output(tensor.name());
    cast.set_op_type("Cast");
    ::onnx::AttributeProto& to = *cast.add_attribute();
    to.set_name("to");
    to.set_type(::onnx::AttributeProto::INT);
    to.set_i(own);
    tensor.set_name(stored);
  }

  const OnnxModel& model_;
  OnnxRewrite& rewrite_;
  absl::flat_hash_set<std::string> names_;
  absl::flat_hash_set<int32_t> inputs_;
  std::vector<StoredAs> rows_;
};

}  // namespace

absl::StatusOr<StoreRule> ParseStoreRule(const std::string& text) {
  const size_t at = text.rfind('=');
  const std::optional<DType> dtype =
      at == std::string::npos ? std::nullopt : DTypeFromName(text.substr(at + 1));
  if (!dtype || (*dtype != DType::kBF16 && *dtype != DType::kF16 && *dtype != DType::kF32)) {
    return Error(1003, "--store", absl::StrCat(JsonQuoted(text, 200), " is no PATTERN=TYPE"),
                 "the type is bf16, f16 or f32: --store '.*weight=bf16'");
  }
  StoreRule rule{text.substr(0, at), *dtype};
  const std::unique_ptr<RE2> pattern = Compiled(rule.pattern);
  if (!pattern->ok()) {
    return Error(1102, "--store", absl::StrCat("no regular expression: ", pattern->error()));
  }
  return rule;
}

absl::StatusOr<std::vector<StoredAs>> StoreAs(const std::vector<StoreRule>& rules, const OnnxModel& model,
                                              OnnxRewrite& rewrite) {
  if (rules.empty()) return std::vector<StoredAs>();
  std::vector<std::pair<std::unique_ptr<RE2>, int64_t>> patterns;  // and how many each has met
  for (const StoreRule& rule : rules) patterns.emplace_back(Compiled(rule.pattern), 0);
  Storer storer(model, rewrite);
  for (const OnnxInitializer& initializer : model.graph.initializers) {
    if (initializer.dense == nullptr) continue;
    const std::string name = initializer.dense->name();
    for (size_t i = 0; i < rules.size(); ++i) {
      if (!RE2::FullMatch(name, *patterns[i].first) || !Storer::IsFor(*initializer.dense, rules[i].dtype))
        continue;
      ++patterns[i].second;
      TWIN_RETURN_IF_ERROR(storer.Store(initializer, rules[i].dtype));
      break;
    }
  }
  for (size_t i = 0; i < rules.size(); ++i) {
    if (patterns[i].second > 0) continue;
    return Error(
        1003, "--store",
        absl::StrCat(JsonQuoted(rules[i].pattern, 200), " matches no floating initializer that is not ",
                     Name(rules[i].dtype), " already"),
        "a pattern is of a whole name: '.*weight'");
  }
  return storer.Finish();
}

}  // namespace twinforge
