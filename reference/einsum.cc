#include "reference/einsum.h"

#include <map>

#include "absl/strings/str_cat.h"

namespace twinforge {
namespace {

constexpr absl::string_view kTaken = "bst";

char LetterOf(absl::string_view axis, absl::string_view used) {
  static const auto* const kUsual = new std::map<absl::string_view, char>{
      {"d_model", 'd'},  {"heads", 'n'},        {"kv_heads", 'n'}, {"head_dim", 'h'},  {"nope_dim", 'h'},
      {"rope_dim", 'h'}, {"v_head_dim", 'h'},   {"d_ff", 'f'},     {"shared_ff", 'f'}, {"vocab", 'v'},
      {"expert", 'e'},   {"expert_group", 'e'}, {"member", 'm'},   {"q_lora", 'r'},    {"kv_lora", 'r'}};
  const auto free = [&](char c) {
    return used.find(c) == absl::string_view::npos && kTaken.find(c) == absl::string_view::npos;
  };
  const auto usual = kUsual->find(axis);
  if (usual != kUsual->end() && free(usual->second)) return usual->second;
  for (char c = 'a'; c <= 'z'; ++c) {
    if (free(c)) return c;
  }
  return 'z';
}

}  // namespace

AxisLetters LettersOf(const HeldParam& held) {
  const ParamType& type = held.param->type;
  std::string canonical;
  for (const ParamAxis& axis : type.axes) canonical.push_back(LetterOf(axis.name, canonical));
  AxisLetters letters;
  for (const int axis : held.order) letters.held.push_back(canonical[axis]);
  letters.lead = canonical.substr(0, type.lead);
  letters.in = canonical.substr(type.lead, type.in);
  letters.out = canonical.substr(type.lead + type.in);
  return letters;
}

std::string ProductSpec(const HeldParam& kernel, absl::string_view rows) {
  const AxisLetters letters = LettersOf(kernel);
  return absl::StrCat(rows, letters.in, ",", letters.held, "->", rows, letters.lead, letters.out);
}

}  // namespace twinforge
