// A source file that is no safetensors file: what stands for its header in a manifest.
//
//   foreign onnx
//   source("model.embed.weight": f32[97, 48])
//   ...
#ifndef TWINFORGE_IR_FOREIGN_FILE_H_
#define TWINFORGE_IR_FOREIGN_FILE_H_

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ir/model.h"
#include "weights/text.h"

namespace twinforge {

inline constexpr char kForeignHeader[] = "foreign onnx\n";

// Of the tensors of `sources` that lie in `file`, in their order.
inline std::string ForeignHeaderOf(absl::string_view file, const std::vector<SourceTensor>& sources) {
  std::string text = kForeignHeader;
  for (const SourceTensor& tensor : sources) {
    if (tensor.file == file) absl::StrAppend(&text, Text(tensor.source), "\n");
  }
  return text;
}

inline bool IsForeignHeader(absl::string_view header) { return absl::StartsWith(header, kForeignHeader); }

}  // namespace twinforge

#endif  // TWINFORGE_IR_FOREIGN_FILE_H_
