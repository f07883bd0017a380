#include "proof/layers.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace twinforge {
namespace {

// The number in "layers.3.attn" and what follows it; -1 and all of `path` where there is none.
int64_t Split(absl::string_view path, absl::string_view* rest) {
  *rest = path;
  absl::string_view tail = path;
  if (!absl::ConsumePrefix(&tail, "layers.")) return -1;
  const size_t dot = tail.find('.');
  int64_t layer = -1;
  if (dot == absl::string_view::npos || !absl::SimpleAtoi(tail.substr(0, dot), &layer)) return -1;
  *rest = tail.substr(dot);
  return layer;
}

}  // namespace

int64_t LayerIndex(absl::string_view path) {
  absl::string_view rest;
  return Split(path, &rest);
}

std::string LayerName(absl::string_view path) {
  const int64_t layer = LayerIndex(path);
  return layer < 0 ? "" : absl::StrCat("layers.", layer);
}

std::string WithoutLayer(absl::string_view path) {
  absl::string_view rest;
  return Split(path, &rest) < 0 ? std::string(path) : absl::StrCat("layers.*", rest);
}

}  // namespace twinforge
