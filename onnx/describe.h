// What an ONNX file is, in numbers and names, for a person or a program to read.
#ifndef TWINFORGE_ONNX_DESCRIBE_H_
#define TWINFORGE_ONNX_DESCRIBE_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "onnx/facts.h"
#include "onnx/model.h"

namespace twinforge {

struct OnnxDescription {
  int64_t ir_version = 0;
  std::string producer, producer_version, domain;
  std::map<std::string, int64_t> opsets;  // "ai.onnx" for the default domain
  std::vector<std::pair<std::string, std::string>> inputs,
      outputs;                               // name, type; inputs without initializers
  int64_t nodes = 0;                         // of all graphs and functions
  int64_t graphs = 0;                        // subgraphs among them
  int64_t depth = 1;                         // graphs in graphs
  std::map<std::string, int64_t> operators;  // name -> nodes
  std::vector<std::string> functions;
  int64_t initializers = 0, sparse_initializers = 0;
  std::map<std::string, int64_t> bytes_by_type;  // of dense initializers, as they lie in files
  std::vector<std::string> external_files;
  std::vector<std::string> metadata_keys;  // in the file's order
  int64_t quantisation_annotations = 0;
  std::map<std::string, std::string> refused;  // operator -> why the evaluator has no meaning for it
  std::vector<std::string> warnings;
};

OnnxDescription Describe(const OnnxModel& model);

// How far the shapes of what nodes make are known, of all graphs and functions.
struct OnnxShapes {
  int64_t values = 0, full = 0;                           // made by nodes; of these with each extent known
  std::vector<std::pair<std::string, OnnxFact>> outputs;  // of the model, by name
};
OnnxShapes DescribeShapes(const OnnxModel& model, const OnnxFacts& facts);

}  // namespace twinforge

#endif  // TWINFORGE_ONNX_DESCRIBE_H_
