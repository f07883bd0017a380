// Laws of the reader and the writer of messages: over every place where a tensor may lie, every way to cut a
// file short, every bit of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

#include "base/diagnostic.h"
#include "onnx/message_parts.h"
#include "onnx/operators.h"
#include "onnx/rewrite.h"

namespace {

std::atomic<size_t> largest_allocation{0};

void* Counted(size_t size) {
  size_t before = largest_allocation.load();
  while (size > before && !largest_allocation.compare_exchange_weak(before, size)) {
  }
  void* at = std::malloc(size == 0 ? 1 : size);
  if (at == nullptr) std::abort();
  return at;
}

}  // namespace

void* operator new(size_t size) { return Counted(size); }
void* operator new[](size_t size) { return Counted(size); }
void operator delete(void* at) noexcept { std::free(at); }
void operator delete[](void* at) noexcept { std::free(at); }
void operator delete(void* at, size_t) noexcept { std::free(at); }
void operator delete[](void* at, size_t) noexcept { std::free(at); }

namespace twinforge {
namespace {

using ::onnx::AttributeProto;
using ::onnx::GraphProto;
using ::onnx::ModelProto;
using ::onnx::NodeProto;
using ::onnx::SparseTensorProto;
using ::onnx::TensorProto;

void FillTensor(TensorProto& tensor, const std::string& name, char value) {
  tensor.set_name(name);
  tensor.set_data_type(TensorProto::UINT8);
  tensor.add_dims(3);
  tensor.set_raw_data(std::string(3, value));
  tensor.set_doc_string("behind raw data");
}

void FillSparse(SparseTensorProto& sparse, const std::string& name, char value) {
  FillTensor(*sparse.mutable_values(), name, value);
  TensorProto& indices = *sparse.mutable_indices();
  indices.set_data_type(TensorProto::INT64);
  indices.add_dims(3);
  for (const char place : {0, 1, 2})
    indices.mutable_raw_data()->append(std::string(1, place) + std::string(7, '\0'));
  sparse.add_dims(4);
}

NodeProto& AddNode(GraphProto& graph, const std::string& op, const std::string& output) {
  NodeProto& node = *graph.add_node();
  node.set_op_type(op);
  node.add_output(output);
  return node;
}

AttributeProto& AddAttribute(NodeProto& node, const std::string& name, AttributeProto::AttributeType type) {
  AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(type);
  return attribute;
}

void FillBranch(GraphProto& graph, char value) {
  graph.set_name("branch");
  FillTensor(*AddAttribute(AddNode(graph, "Constant", "t"), "value", AttributeProto::TENSOR).mutable_t(), "",
             value);
  graph.add_output()->set_name("t");
}

// Tensors in all places that the schema has for them, and things behind and before them.
ModelProto EveryPlace() {
  ModelProto model;
  model.set_ir_version(10);
  auto& import = *model.add_opset_import();
  import.set_domain("");
  import.set_version(21);
  model.mutable_opset_import()->Add()->set_domain("d");
  model.mutable_opset_import(1)->set_version(1);
  auto& property = *model.add_metadata_props();
  property.set_key("k"), property.set_value("v");
  GraphProto& graph = *model.mutable_graph();
  graph.set_name("g");
  FillTensor(*graph.add_initializer(), "w", 1);
  FillSparse(*graph.add_sparse_initializer(), "s", 2);
  FillTensor(*AddAttribute(AddNode(graph, "Constant", "a"), "value", AttributeProto::TENSOR).mutable_t(), "",
             3);
  FillSparse(*AddAttribute(AddNode(graph, "Constant", "b"), "sparse_value", AttributeProto::SPARSE_TENSOR)
                  .mutable_sparse_tensor(),
             "", 4);
  NodeProto& odd = AddNode(graph, "Odd", "c");
  odd.set_domain("d");
  FillTensor(*AddAttribute(odd, "ts", AttributeProto::TENSORS).add_tensors(), "x", 5);
  FillSparse(*AddAttribute(odd, "ss", AttributeProto::SPARSE_TENSORS).add_sparse_tensors(), "y", 6);
  FillBranch(*AddAttribute(odd, "gs", AttributeProto::GRAPHS).add_graphs(), 7);
  FillBranch(*AddAttribute(odd, "g", AttributeProto::GRAPH).mutable_g(), 8);
  graph.add_output()->set_name("a");
  graph.add_quantization_annotation()->set_tensor_name("w");
  graph.mutable_unknown_fields()->append("\xba\x3e\x02hi");  // field 999
  auto& function = *model.add_functions();
  function.set_domain("d"), function.set_name("F");
  function.add_output("o");
  function.add_opset_import()->set_version(21);
  NodeProto& inner = *function.add_node();
  inner.set_op_type("Constant"), inner.add_output("o");
  FillTensor(*AddAttribute(inner, "value", AttributeProto::TENSOR).mutable_t(), "", 9);
  AttributeProto& given = *function.add_attribute_proto();
  given.set_name("usual"), given.set_type(AttributeProto::TENSOR);
  FillTensor(*given.mutable_t(), "", 10);
  auto& training = *model.add_training_info();
  FillTensor(*training.mutable_initialization()->add_initializer(), "i", 11);
  FillTensor(*training.mutable_algorithm()->add_initializer(), "j", 12);
  return model;
}

absl::StatusOr<OnnxMessage> MessageOf(const std::string& bytes, int64_t view_from) {
  OnnxMessage message;
  message.path = "m.onnx";
  message.proto = std::make_shared<ModelProto>();
  message.files = std::make_shared<ExternalFiles>();
  const absl::Status read =
      ReadMessage(ModelBytes::Of(bytes, "m.onnx"), view_from, *message.proto, *message.files);
  if (!read.ok()) return read;
  return message;
}

absl::StatusOr<std::string> WrittenAgain(OnnxMessage message) {
  OnnxRewrite rewrite;
  rewrite.message = std::move(message);
  const auto planned = PlanOnnxFiles(std::move(rewrite), DataLayout::kKeep, "m.onnx");
  if (!planned.ok()) return planned.status();
  std::string bytes;
  for (const Stretch& stretch : planned->files[0].stretches) {
    EXPECT_EQ(stretch.offset, static_cast<int64_t>(bytes.size()));
    bytes += stretch.text->substr(static_cast<size_t>(stretch.from), static_cast<size_t>(stretch.length));
  }
  EXPECT_EQ(planned->files[0].size, static_cast<int64_t>(bytes.size()));
  return bytes;
}

TEST(CarryTest, RawDataIsLeftInEveryPlaceAndComesBack) {
  const ModelProto whole = EveryPlace();
  const std::string bytes = whole.SerializeAsString();
  for (const int64_t view_from : {1, 3, 4, 1000}) {
    const auto message = MessageOf(bytes, view_from);
    ASSERT_TRUE(message.ok()) << message.status();
    int tensors = 0;
    ForEachTensor(*message->proto, [&](const TensorProto& tensor) {
      ++tensors;
      const int64_t length = tensor.data_type() == TensorProto::INT64 ? 24 : 3;
      EXPECT_EQ(message->files->LeftInFile(tensor) != nullptr, length >= view_from);
      EXPECT_EQ(tensor.has_raw_data(), length < view_from);
    });
    EXPECT_EQ(tensors, 15);
    const auto again = WrittenAgain(*message);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(*again, bytes);
  }
}

TEST(CarryTest, TheLastOfSeveralRawDataCounts) {
  ModelProto model;
  FillTensor(*model.mutable_graph()->add_initializer(), "w", 1);
  const std::string tensor = model.graph().initializer(0).SerializeAsString();
  const auto graph = [](const std::string& content) {
    return std::string("\x3a") + static_cast<char>(content.size() + 2) + "\x2a" +
           static_cast<char>(content.size()) + content;
  };
  for (const std::string& more :
       {std::string("\x4a\x02\x07\x07"), std::string("\x4a\x05\x08\x08\x08\x08\x08")}) {
    for (const std::string& content : {tensor + more, more + tensor}) {
      ModelProto judge;
      ASSERT_TRUE(judge.ParseFromString(graph(content)));
      const auto message = MessageOf(graph(content), 3);
      ASSERT_TRUE(message.ok()) << message.status();
      const auto again = WrittenAgain(*message);
      ASSERT_TRUE(again.ok()) << again.status();
      EXPECT_EQ(*again, judge.SerializeAsString());
    }
  }
}

// A refusal of the format's kinds, or a model that is written again as protobuf would write it; no allocation
// beyond twice the file and what a diagnostic takes.
void ExpectSound(const std::string& bytes) {
  largest_allocation = 0;  // a model's bytes are copied, a run of fields is read, the message holds them
  const auto held = ParseOnnxModel(bytes, "m.onnx");
  const auto viewed = ParseOnnxModel(bytes, "m.onnx", 1);
  EXPECT_LE(largest_allocation.load(), 2 * bytes.size() + 4096);
  ASSERT_EQ(held.status(), viewed.status());
  if (!held.ok()) {
    const std::optional<Diagnostic> said = DiagnosticOf(held.status());
    ASSERT_TRUE(said.has_value());
    EXPECT_GE(said->code, 2001);
    EXPECT_LE(said->code, 2006);
    return;
  }
  const auto message = MessageOf(bytes, 1);
  ASSERT_TRUE(message.ok());
  const auto again = WrittenAgain(*message);
  if (!again.ok()) return;  // a tensor that only training has does not fit its shape
  ModelProto judge;
  ASSERT_TRUE(judge.ParseFromString(bytes));
  EXPECT_EQ(*again, judge.SerializeAsString());
}

TEST(CarryTest, CutShortAtEveryByte) {
  const std::string bytes = EveryPlace().SerializeAsString();
  for (size_t size = 0; size < bytes.size(); ++size) ExpectSound(bytes.substr(0, size));
}

TEST(CarryTest, EveryBitTurned) {
  FindOperator("", "Abs");  // the table of operators is made once, when it is first asked for
  std::string bytes = EveryPlace().SerializeAsString();
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      bytes[at] = static_cast<char>(bytes[at] ^ 1 << bit);
      ExpectSound(bytes);
      bytes[at] = static_cast<char>(bytes[at] ^ 1 << bit);
    }
  }
}

TEST(CarryTest, DeclaredLengthsAllocateNothing) {
  for (const std::string number :
       {"\xff\xff\xff\x7f", "\xff\xff\xff\xff\x0f", "\xff\xff\xff\xff\xff\xff\xff\x7f",
        "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"}) {
    for (const std::string before : {"", "\x3a", "\x08\x09\x3a\x10\x2a", "\x08\x09\x3a\x10\x2a\x0c\x4a"}) {
      ExpectSound(before + number + std::string(12, '\0'));
      ExpectSound(before + "\x3a" + number + std::string(12, '\0'));
    }
  }
  ExpectSound(std::string(100000, '\x0b'));  // groups in groups, none of them ended
}

}  // namespace
}  // namespace twinforge
