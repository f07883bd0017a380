// An ONNX file as a model of the house.
//
//   OpenOnnxModel("model.onnx")   attention, norms, feed-forward, embedding and head recognised by structure;
//                                 weights as programs over the file's initializers
//
// The graph is looked at at several sizes and with hidden tokens; what one look says the others must say too.
// A file with a node that no block holds is refused by that node (TF2010), one whose looks differ by TF2011.
#ifndef TWINFORGE_IMPORTERS_ONNX_RAISE_H_
#define TWINFORGE_IMPORTERS_ONNX_RAISE_H_

#include <string>

#include "absl/status/statusor.h"
#include "ir/model.h"

namespace twinforge {

absl::StatusOr<Model> OpenOnnxModel(const std::string& path);

}  // namespace twinforge

#endif  // TWINFORGE_IMPORTERS_ONNX_RAISE_H_
