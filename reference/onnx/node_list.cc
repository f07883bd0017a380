#include "reference/onnx/node_list.h"

#include <cstddef>

#include "absl/strings/str_cat.h"

namespace twinforge {

::onnx::AttributeProto OnnxAttribute(absl::string_view name, int64_t value) {
  ::onnx::AttributeProto attribute;
  attribute.set_name(std::string(name));
  attribute.set_type(::onnx::AttributeProto::INT);
  attribute.set_i(value);
  return attribute;
}

::onnx::AttributeProto OnnxAttribute(absl::string_view name, float value) {
  ::onnx::AttributeProto attribute;
  attribute.set_name(std::string(name));
  attribute.set_type(::onnx::AttributeProto::FLOAT);
  attribute.set_f(value);
  return attribute;
}

::onnx::AttributeProto OnnxAttribute(absl::string_view name, const std::vector<int64_t>& values) {
  ::onnx::AttributeProto attribute;
  attribute.set_name(std::string(name));
  attribute.set_type(::onnx::AttributeProto::INTS);
  attribute.mutable_ints()->Assign(values.begin(), values.end());
  return attribute;
}

int32_t OnnxTypeOfTensor(DType dtype) {
  using T = ::onnx::TensorProto;
  switch (dtype) {
    case DType::kBool:
      return T::BOOL;
    case DType::kF4:
      return T::FLOAT4E2M1;
    case DType::kF6E2M3:
    case DType::kF6E3M2:
      return T::UNDEFINED;
    case DType::kU8:
      return T::UINT8;
    case DType::kI8:
      return T::INT8;
    case DType::kF8E5M2:
      return T::FLOAT8E5M2;
    case DType::kF8E4M3:
      return T::FLOAT8E4M3FN;
    case DType::kF8E8M0:
      return T::FLOAT8E8M0;
    case DType::kF8E4M3Fnuz:
      return T::FLOAT8E4M3FNUZ;
    case DType::kF8E5M2Fnuz:
      return T::FLOAT8E5M2FNUZ;
    case DType::kI16:
      return T::INT16;
    case DType::kU16:
      return T::UINT16;
    case DType::kF16:
      return T::FLOAT16;
    case DType::kBF16:
      return T::BFLOAT16;
    case DType::kI32:
      return T::INT32;
    case DType::kU32:
      return T::UINT32;
    case DType::kF32:
      return T::FLOAT;
    case DType::kC64:
      return T::COMPLEX64;
    case DType::kF64:
      return T::DOUBLE;
    case DType::kI64:
      return T::INT64;
    case DType::kU64:
      return T::UINT64;
  }
  return T::UNDEFINED;
}

int32_t OnnxTypeOfValue(DType dtype) { return OnnxTypeOfTensor(dtype == DType::kI32 ? DType::kI64 : dtype); }

std::string OnnxNodes::NewName(const std::string& stem) {
  std::string name = stem;
  for (int64_t i = 1; !taken_.insert(name).second; ++i) name = absl::StrCat(stem, "_", i);
  return name;
}

std::string OnnxNodes::Op(absl::string_view op, const std::vector<std::string>& inputs,
                          OnnxAttributeList attributes) {
  return OpOf(op, inputs, std::move(attributes), 1, 0);
}

std::string OnnxNodes::OpOf(absl::string_view op, const std::vector<std::string>& inputs,
                            OnnxAttributeList attributes, int count, int take) {
  ::onnx::NodeProto node;
  node.set_op_type(std::string(op));
  for (const std::string& input : inputs) node.add_input(input);
  for (::onnx::AttributeProto& attribute : attributes) *node.add_attribute() = std::move(attribute);
  const auto [at, fresh] = known_.emplace(absl::StrCat(count, node.SerializeAsString()), nodes_.size());
  if (!fresh) return nodes_[at->second].output(take);
  node.set_name(NewName(absl::StrCat(path_, "/", op)));
  for (int i = 0; i < count; ++i) {
    node.add_output(i == 0 ? node.name() : absl::StrCat(node.name(), ".", i));
  }
  nodes_.push_back(std::move(node));
  return nodes_.back().output(take);
}

std::string OnnxNodes::Constant(::onnx::TensorProto tensor) {
  std::string& name = constant_of_[tensor.SerializeAsString()];
  if (!name.empty()) return name;
  name = NewName(absl::StrCat("constant_", constants_.size()));
  tensor.set_name(name);
  constants_.push_back(std::move(tensor));
  return name;
}

std::string OnnxNodes::Integers(const std::vector<int64_t>& values) {
  std::vector<double> numbers(values.begin(), values.end());
  return Numbers(DType::kI64, {static_cast<int64_t>(values.size())}, numbers);
}

std::string OnnxNodes::Number(DType dtype, double value) { return Numbers(dtype, {}, {value}); }

std::string OnnxNodes::Numbers(DType dtype, const Shape& shape, const std::vector<double>& values) {
  const DType held = dtype == DType::kI32 ? DType::kI64 : dtype;
  ::onnx::TensorProto tensor;
  tensor.set_data_type(OnnxTypeOfTensor(held));
  for (int64_t extent : shape) tensor.add_dims(extent);
  const auto width = static_cast<size_t>(ElementBytes(held));
  std::string bytes(values.size() * width, '\0');
  for (size_t i = 0; i < values.size(); ++i) {
    FromDouble(held, values[i], reinterpret_cast<std::byte*>(bytes.data() + i * width));
  }
  tensor.set_raw_data(std::move(bytes));
  return Constant(std::move(tensor));
}

absl::flat_hash_set<std::string> OnnxNodes::WriteInto(
    const std::vector<std::pair<std::string, std::string>>& outputs, ::onnx::GraphProto& graph) const {
  absl::flat_hash_set<std::string> needed;
  for (const auto& [name, as] : outputs) needed.insert(name);
  std::vector<bool> kept(nodes_.size(), false);
  for (size_t i = nodes_.size(); i-- > 0;) {
    for (const std::string& output : nodes_[i].output()) kept[i] = kept[i] || needed.contains(output);
    if (!kept[i]) continue;
    for (const std::string& input : nodes_[i].input()) needed.insert(input);
  }
  // A result that is an output is called as the output where it is made; a second name is a copy of it.
  absl::flat_hash_set<std::string> made;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (kept[i]) made.insert(nodes_[i].output().begin(), nodes_[i].output().end());
  }
  absl::flat_hash_map<std::string, std::string> renamed;
  std::vector<std::pair<std::string, std::string>> copies;
  for (const auto& [name, as] : outputs) {
    if (!made.contains(name) || !renamed.emplace(name, as).second) copies.push_back({name, as});
  }
  const auto called = [&](const std::string& name) {
    const auto at = renamed.find(name);
    return at == renamed.end() ? name : at->second;
  };
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (!kept[i]) continue;
    ::onnx::NodeProto& node = *graph.add_node();
    node = nodes_[i];
    for (std::string& input : *node.mutable_input()) input = called(input);
    for (std::string& output : *node.mutable_output()) output = called(output);
  }
  for (const auto& [name, as] : copies) {
    ::onnx::NodeProto& node = *graph.add_node();
    node.set_op_type("Identity");
    node.set_name(absl::StrCat(as, "/Identity"));
    node.add_input(called(name));
    node.add_output(as);
  }
  for (const ::onnx::TensorProto& constant : constants_) {
    if (needed.erase(constant.name()) > 0) *graph.add_initializer() = constant;
  }
  for (const std::string& name : made) needed.erase(name);
  return needed;
}

}  // namespace twinforge
