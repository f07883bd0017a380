// A model as files again: the same message, with new elements of some tensors or another layout of its data.
//
//   OnnxRewrite rewrite{message};
//   rewrite.programs[&initializer] = Cast(source, DType::kBF16);   // read by rewrite.reader
//   PlanOnnxFiles(std::move(rewrite), DataLayout::kKeep, "model.onnx")   -> model.onnx, model.onnx.data
//
// What nothing touched comes back as protobuf writes what was read: metadata, annotations, functions,
// documents and fields of later versions, in their order. No element is read here; files say where theirs
// come from.
//
//   kKeep    data files keep names and offsets, and are copied but for what is replaced: the new elements lie
//            in the old place where they fit it and no other tensor shares it, else behind the end
//   kSingle  all raw data of kViewFrom bytes and more lies in NAME.data, in the message's order, each tensor
//   at
//            a multiple of 4,096; tensors that shared bytes still do
#ifndef TWINFORGE_ONNX_REWRITE_H_
#define TWINFORGE_ONNX_REWRITE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "onnx/new_file.h"
#include "onnx/packed_tensor.h"
#include "onnx/read.h"
#include "weights/weight.h"

namespace twinforge {

enum class DataLayout : uint8_t { kKeep, kSingle };

struct OnnxRewrite {
  OnnxMessage message;
  // Type and shape of these tensors become their program's.
  absl::flat_hash_map<const ::onnx::TensorProto*, WeightPtr> programs;
  std::shared_ptr<OnnxTensorReader> reader = std::make_shared<OnnxTensorReader>();
};

struct OnnxFiles {
  std::vector<NewFile> files;      // the model first
  std::vector<std::string> notes;  // what is not as it was, and why
  OnnxRewrite rewrite;             // what the files point into
};

// The files of `rewrite`, whose message was checked (CheckedOnnxModel) and is changed here. TF2020 where the
// layout cannot be kept, or the message would have more than 2 GiB.
absl::StatusOr<OnnxFiles> PlanOnnxFiles(OnnxRewrite rewrite, DataLayout layout, const std::string& name);

}  // namespace twinforge

#endif  // TWINFORGE_ONNX_REWRITE_H_
