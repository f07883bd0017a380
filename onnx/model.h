// An ONNX model, read and checked: names are resolved to places, nodes are in an order in which they can run.
//
// The ModelProto is kept whole (metadata, annotations, unknown fields), and everything here points into it.
// Each graph numbers its values: a slot per name. What a subgraph takes from the graphs around it is a list
// of captures, so that running it never searches for a name.
#ifndef TWINFORGE_ONNX_MODEL_H_
#define TWINFORGE_ONNX_MODEL_H_

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "onnx/element_type.h"
#include "onnx/external_files.h"
#include "weights/shape.h"

namespace onnx {
class AttributeProto;
class FunctionProto;
class GraphProto;
class ModelProto;
class NodeProto;
class SparseTensorProto;
class TensorProto;
class ValueInfoProto;
}  // namespace onnx

namespace twinforge {

struct OnnxGraph;
struct OnnxFunction;

struct OnnxNode {
  const ::onnx::NodeProto* proto = nullptr;
  std::string domain;                    // "" for the default one, however the file spells it
  int64_t opset = 0;                     // the version of `domain` that is imported; 0 where it is not
  std::vector<int32_t> inputs, outputs;  // slots; -1 where omitted
  std::vector<std::pair<std::string, const OnnxGraph*>> subgraphs;  // by the attribute's name
  const OnnxFunction* function = nullptr;  // where the model defines the operator itself
};

struct OnnxInitializer {
  int32_t slot = -1;
  const ::onnx::TensorProto* dense = nullptr;
  const ::onnx::SparseTensorProto* sparse = nullptr;
};

struct OnnxGraph {
  const ::onnx::GraphProto* proto = nullptr;  // nullptr for a function's body
  std::vector<absl::string_view> names;       // of each slot
  std::vector<int32_t> inputs, outputs;
  std::vector<OnnxInitializer> initializers;
  std::vector<std::pair<int32_t, int32_t>> captures;  // slot in the graph around it, own slot
  std::vector<OnnxNode> nodes;                        // each after what it takes
  std::vector<int32_t> last_use;  // by slot: the node after which nobody needs it; -1 never free
};

struct OnnxFunction {
  const ::onnx::FunctionProto* proto = nullptr;
  std::unique_ptr<OnnxGraph> body;
};

struct OnnxModel {
  std::string path;
  std::shared_ptr<const ::onnx::ModelProto> proto;
  std::map<std::string, int64_t> opsets;  // by domain
  OnnxGraph graph;
  std::vector<std::unique_ptr<OnnxGraph>> subgraphs;  // of all graphs and functions
  std::vector<std::unique_ptr<OnnxFunction>> functions;
  std::shared_ptr<ExternalFiles> files;
  std::vector<std::string> warnings;
};

// What a graph declares of an output: unknown extents are 0, an unknown type is FLOAT.
struct DeclaredTensor {
  ElementType type = ElementType::kFloat;
  Shape shape;
};
DeclaredTensor DeclaredOutput(const OnnxGraph& graph, size_t output);

// "Add" or "com.microsoft.MatMulNBits".
std::string OperatorName(absl::string_view domain, absl::string_view op);
// "ai.onnx" and "" are one domain.
std::string NormalDomain(absl::string_view domain);

// How a diagnostic calls a node: its name, else its operator and first output.
std::string NodeText(const ::onnx::NodeProto& node);

}  // namespace twinforge

#endif  // TWINFORGE_ONNX_MODEL_H_
