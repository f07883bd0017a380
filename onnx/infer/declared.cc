#include "onnx/infer/declared.h"

#include <algorithm>
#include <functional>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "onnx/infer/extent.h"
#include "onnx/onnx-ml.pb.h"

namespace twinforge {
namespace {

constexpr size_t kLongestParam = 200;
constexpr int kDeepestParentheses = 20;

// sum := product (("+" | " - ") product)*, product := factor ("*" factor)*, factor := number | name | "(" sum
// ")". A minus needs spaces around it: "batch-size" is a name.
class ParamParser {
 public:
  ParamParser(absl::string_view text, std::function<std::string(const std::string&)> symbol)
      : text_(text), symbol_(std::move(symbol)) {}

  KnownDim Whole() {
    const KnownDim sum = Sum();
    Spaces();
    return at_ == text_.size() ? sum : std::nullopt;
  }

 private:
  void Spaces() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool Take(absl::string_view token) {
    Spaces();
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }
  bool TakeMinus() {
    Spaces();
    if (at_ == 0 || text_[at_ - 1] != ' ' || text_.substr(at_, 2) != "- ") return false;
    at_ += 2;
    return true;
  }

  KnownDim Sum() {
    KnownDim sum = Product();
    while (sum) {
      if (Take("+")) {
        sum = DimSum(sum, Product());
      } else if (TakeMinus()) {
        sum = DimDifference(sum, Product());
      } else {
        break;
      }
    }
    return sum;
  }
  KnownDim Product() {
    KnownDim product = Factor();
    while (product && text_.substr(at_).substr(0, 2) != "**" && Take("*"))
      product = DimProduct(product, Factor());
    return product;
  }
  KnownDim Factor() {
    if (Take("(")) {
      if (++depth_ > kDeepestParentheses) return std::nullopt;
      const KnownDim inside = Sum();
      --depth_;
      return Take(")") ? inside : std::nullopt;
    }
    Spaces();
    size_t end = at_;
    while (end < text_.size() && (absl::ascii_isalnum(text_[end]) || text_[end] == '_')) ++end;
    const std::string word(text_.substr(at_, end - at_));
    at_ = end;
    int64_t number = 0;
    if (word.empty()) return std::nullopt;
    if (!absl::ascii_isdigit(word[0])) return Dim::Symbol(symbol_(word));
    return absl::SimpleAtoi(word, &number) ? KnownDim(Dim(number)) : std::nullopt;
  }

  absl::string_view text_;
  std::function<std::string(const std::string&)> symbol_;
  size_t at_ = 0;
  int depth_ = 0;
};

bool SaysNothing(absl::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char c) { return absl::ascii_isalnum(c) || c == '_'; });
}

// A word for ir/dim.h: letters, digits and underscores, not too long, a letter first.
std::string AsSymbol(const std::string& text) {
  std::string word = text.substr(0, 100);
  for (char& c : word) {
    if (!absl::ascii_isalnum(c)) c = '_';
  }
  return absl::ascii_isdigit(word[0]) ? absl::StrCat("_", word) : word;
}

}  // namespace

std::string DeclaredTypes::SymbolFor(const std::string& text) {
  const auto known = symbols_.find(text);
  if (known != symbols_.end()) return known->second;
  const std::string word = AsSymbol(text);
  std::string symbol = word;
  for (int n = 2; taken_.count(symbol) != 0; ++n) symbol = absl::StrCat(word, "_", n);
  taken_.insert(symbol);
  symbols_[text] = symbol;
  if (symbol != text) renamed_[text] = symbol;
  return symbol;
}

KnownDim DeclaredTypes::ParamOf(const std::string& text) {
  const auto known = params_.find(text);
  if (known != params_.end()) return known->second;
  KnownDim dim;
  int64_t number = 0;
  if (!SaysNothing(text) && !(absl::SimpleAtoi(text, &number) && number <= 0)) {
    // Twice: a text that turns out to be no polynomial must not have named its words.
    const auto same = [](const std::string& word) { return AsSymbol(word); };
    const bool parses = text.size() <= kLongestParam && ParamParser(text, same).Whole();
    dim = parses ? ParamParser(text, [this](const std::string& word) { return SymbolFor(word); }).Whole()
                 : KnownDim(Dim::Symbol(SymbolFor(text)));
    if (dim && dim->value() && *dim->value() <= 0) dim.reset();
  }
  params_[text] = dim;
  return dim;
}

OnnxFact DeclaredTypes::FactOf(const ::onnx::TypeProto& type, bool inside) {
  OnnxFact fact;
  if (!type.has_tensor_type()) return fact;
  fact.type = ElementTypeFromCode(type.tensor_type().elem_type());
  if (fact.type == ElementType::kUndefined) fact.type.reset();
  if (!type.tensor_type().has_shape()) return fact;
  fact.shape.emplace();
  for (const auto& dim : type.tensor_type().shape().dim()) {
    KnownDim extent;
    if (dim.has_dim_param()) {
      extent = ParamOf(dim.dim_param());
    } else if (dim.dim_value() > 0) {
      extent = Dim(dim.dim_value());
    }
    for (const auto& [symbols, coefficient] : extent ? extent->terms() : Dim::Terms()) {
      for (const std::string& symbol : symbols) {
        if (inside && of_inputs_.count(symbol) == 0) extent.reset();
      }
      if (!extent) break;
    }
    fact.shape->push_back(std::move(extent));
  }
  return fact;
}

OnnxFact DeclaredTypes::FactOfInput(const ::onnx::TypeProto& type) {
  OnnxFact fact = FactOf(type, false);
  for (const KnownDim& extent : fact.shape.value_or(KnownDims())) {
    if (!extent) continue;
    for (const auto& [symbols, coefficient] : extent->terms())
      of_inputs_.insert(symbols.begin(), symbols.end());
  }
  return fact;
}

std::string Contradiction(const OnnxFact& inferred, const OnnxFact& declared) {
  if (inferred.type && declared.type && *inferred.type != *declared.type) {
    return absl::StrCat("declared ", ElementTypeName(*declared.type), ", is ",
                        ElementTypeName(*inferred.type));
  }
  if (!inferred.shape || !declared.shape) return "";
  bool fits = inferred.shape->size() == declared.shape->size();
  for (size_t d = 0; fits && d < inferred.shape->size(); ++d)
    fits = !DimsDiffer((*inferred.shape)[d], (*declared.shape)[d]);
  return fits ? "" : absl::StrCat("declared ", FactText(declared), ", is ", FactText(inferred));
}

void FillFrom(const OnnxFact& declared, OnnxFact& inferred) {
  if (!inferred.type) inferred.type = declared.type;
  if (!declared.shape) return;
  if (!inferred.shape) {
    inferred.shape = declared.shape;
  } else if (inferred.shape->size() == declared.shape->size()) {
    for (size_t d = 0; d < declared.shape->size(); ++d) {
      KnownDim& extent = (*inferred.shape)[d];
      if (!extent) extent = (*declared.shape)[d];
    }
  }
}

}  // namespace twinforge
