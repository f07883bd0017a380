#include "cost/compiled_cycles.h"

#include <string>

#include "absl/types/span.h"
#include "base/check.h"
#include "base/embedded.h"
#include "cost/compiled.pb.h"
#include "cost/compiled_rows.h"
#include "google/protobuf/text_format.h"

namespace twinforge {

absl::Span<const EmbeddedFile> Embedded_compiled();

namespace {

std::string Text(absl::string_view view) { return std::string(view.data(), view.size()); }

const CompiledConstants* FindConstants(const CompiledFit& fit, absl::string_view generation, Phase phase,
                                       absl::string_view left_out) {
  for (const CompiledConstants& constants : fit.constants()) {
    if (constants.generation() != generation || constants.phase() != Name(phase)) continue;
    if (constants.left_out() == left_out) return &constants;
  }
  return nullptr;
}

double Dot(const CompiledConstants& constants, const CompiledTerms& terms) {
  TWIN_CHECK(constants.value_size() == kCompiledTermCount, "a constant for every term");
  double sum = 0;
  for (int i = 0; i < kCompiledTermCount; ++i) sum += constants.value(i) * terms[i];
  return sum;
}

}  // namespace

const CompiledFit& Fit() {
  static const CompiledFit* const fit = [] {
    auto* all = new CompiledFit;
    for (const EmbeddedFile& file : Embedded_compiled()) {
      if (file.name != "cycles.textproto") continue;
      TWIN_CHECK(google::protobuf::TextFormat::ParseFromString(Text(file.text), all), file.name);
    }
    for (int i = 0; i < all->term_size(); ++i) {
      TWIN_CHECK(i < kCompiledTermCount && all->term(i) == Name(static_cast<CompiledTerm>(i)), all->term(i));
    }
    return all;
  }();
  return *fit;
}

const CompiledGenerationFile* FindGeneration(absl::string_view name) {
  for (const CompiledGenerationFile& generation : Facts().generation()) {
    if (generation.name() == name || generation.chip() == name) return &generation;
  }
  return nullptr;
}

const CompiledRecord* FindRecord(absl::string_view rewrite, Phase phase) {
  for (const CompiledRecord& record : Fit().record()) {
    if (record.rewrite() == rewrite && record.phase() == Name(phase)) return &record;
  }
  return nullptr;
}

absl::string_view Name(Phase phase) {
  switch (phase) {
    case Phase::kPrefill:
      return "prefill";
    case Phase::kDecode:
      return "decode";
  }
  return "";
}

std::optional<double> LayerCycles(const CompiledFit& fit, absl::string_view generation,
                                  const CompiledForm& form, const CompiledStep& step,
                                  absl::string_view left_out) {
  const CompiledGenerationFile* facts = FindGeneration(generation);
  if (facts == nullptr) return std::nullopt;
  const CompiledConstants* constants = FindConstants(fit, facts->name(), step.phase, left_out);
  if (constants == nullptr || constants->layer_rows() == 0) return std::nullopt;
  return Dot(*constants, TermsOfLayer(form, step, facts->matrix_edge()));
}

std::optional<double> ProductCycles(const CompiledFit& fit, absl::string_view generation,
                                    const CompiledProduct& product) {
  const CompiledGenerationFile* facts = FindGeneration(generation);
  if (facts == nullptr) return std::nullopt;
  const Phase phase = product.m > kCompiledDecodeRows ? Phase::kPrefill : Phase::kDecode;
  const CompiledConstants* constants = FindConstants(fit, facts->name(), phase, "");
  if (constants == nullptr) return std::nullopt;
  return Dot(*constants, TermsOfProduct(product, facts->matrix_edge()));
}

}  // namespace twinforge
