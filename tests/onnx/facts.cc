// onnx_facts FOLDER...: runs every test below the folders (laid out as onnx_conformance takes them) and holds
// what InferOnnx knows of each value, without what the file declares of outputs, against what it is:
//
//   node/test_add   holds   1 1 1 1   sum      1 tensor comes out, of which 1 type, 1 rank, 1 full shape is
//   known node/test_x     wrong   ...       y: FLOAT [3], is FLOAT [4]
//
// onnx_facts --print MODEL: a line for each value of the model's graph, its type, extents and elements
// ("?" where not known), then the node visits and mismatches.
//
// onnx_facts --time MODEL: milliseconds that reading takes, and inference, the median of seven.
#include "onnx/facts.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/diagnostic.h"
#include "onnx/onnx-ml.pb.h"
#include "onnx/read.h"
#include "onnx/run.h"
#include "onnx/tensor_data.h"
#include "onnx/value_file.h"

namespace twinforge {
namespace {

namespace fs = std::filesystem;
using Sizes = std::map<std::string, int64_t>;

std::string BytesOf(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// Nothing is declared of what nodes make, and all of it comes out, the model's outputs first.
std::string Bared(const std::string& bytes) {
  ::onnx::ModelProto model;
  if (!model.ParseFromString(bytes)) return bytes;
  ::onnx::GraphProto& graph = *model.mutable_graph();
  graph.clear_value_info();
  std::set<std::string> out;
  for (::onnx::ValueInfoProto& output : *graph.mutable_output()) {
    output.clear_type();
    out.insert(output.name());
  }
  for (const ::onnx::NodeProto& node : graph.node()) {
    for (const std::string& name : node.output()) {
      if (!name.empty() && out.insert(name).second) graph.add_output()->set_name(name);
    }
  }
  return model.SerializeAsString();
}

// Whether `dim` may be `actual`; a symbol that stands alone and is not bound yet is bound.
bool Fits(const KnownDim& dim, int64_t actual, Sizes& sizes) {
  if (!dim) return true;
  if (const std::optional<int64_t> bound = dim->Bind(sizes)) return *bound == actual;
  if (dim->terms().size() == 1 && dim->terms().begin()->first.size() == 1 &&
      dim->terms().begin()->second == 1)
    sizes[dim->terms().begin()->first[0]] = actual;
  return true;
}

std::string Wrong(const OnnxFact& fact, const OnnxTensor& tensor, Sizes& sizes) {
  bool fits = !fact.type || *fact.type == tensor.type();
  fits = fits && (!fact.shape || *fact.Rank() == tensor.rank());
  for (int64_t d = 0; fits && fact.shape && d < tensor.rank(); ++d)
    fits = Fits((*fact.shape)[static_cast<size_t>(d)], tensor.dim(d), sizes);
  if (!fits)
    return absl::StrCat(FactText(fact), ", is ", ElementTypeName(tensor.type()), " ",
                        ShapeText(tensor.shape()));
  if (!fact.elements) return "";
  const std::vector<int64_t> elements = Elements<int64_t>(tensor);
  if (elements.size() != fact.elements->size()) return "another number of elements";
  for (size_t k = 0; k < elements.size(); ++k) {
    const KnownDim& known = (*fact.elements)[k];
    if (!Fits(known, elements[k], sizes))
      return absl::StrCat("element ", k, " ", known->Text(), ", is ", elements[k]);
  }
  return "";
}

struct Coverage {
  int tensors = 0, types = 0, ranks = 0, shapes = 0;
};

// Output `i` of the bared model; of the file's own outputs the coverage is counted.
std::string Check(const OnnxModel& model, const OnnxFacts& facts, size_t i, const OnnxValue& value, bool own,
                  Sizes& sizes, Coverage& coverage) {
  const int32_t slot = model.graph.outputs[i];
  const OnnxFact& fact = facts.Of(model.graph, slot);
  if (!value.is_tensor()) {
    return fact == OnnxFact() ? ""
                              : absl::StrCat(model.graph.names[slot], ": ", FactText(fact), ", is no tensor");
  }
  if (own) {
    ++coverage.tensors;
    coverage.types += fact.type ? 1 : 0;
    coverage.ranks += fact.shape ? 1 : 0;
    coverage.shapes += fact.FullShape() ? 1 : 0;
  }
  const std::string wrong = Wrong(fact, value.tensor(), sizes);
  return wrong.empty() ? "" : absl::StrCat(model.graph.names[slot], ": ", wrong);
}

using Inputs = absl::flat_hash_map<std::string, OnnxValue>;

// Small inputs of numbers become initializers of their values.
std::string WithConstants(const std::string& bytes, const Inputs& inputs) {
  ::onnx::ModelProto model;
  if (!model.ParseFromString(bytes)) return bytes;
  ::onnx::GraphProto& graph = *model.mutable_graph();
  std::set<std::string> initial;
  for (const ::onnx::TensorProto& initializer : graph.initializer()) initial.insert(initializer.name());
  for (int i = graph.input_size(); i-- > 0;) {
    const std::string name = graph.input(i).name();
    const auto given = inputs.find(name);
    if (given == inputs.end() || initial.count(name) != 0 || !given->second.is_tensor()) continue;
    const OnnxTensor& tensor = given->second.tensor();
    if (tensor.is_string() || tensor.count() > kFewElements) continue;
    ::onnx::TensorProto& constant = *graph.add_initializer();
    TensorToProto(tensor, constant);
    constant.set_name(name);
    graph.mutable_input()->DeleteSubrange(i, 1);
  }
  return model.SerializeAsString();
}

// `file` is the model as it is, `bytes` what is read.
std::string Hold(const ::onnx::ModelProto& file, const std::string& bytes, const fs::path& set,
                 const Inputs& inputs, Coverage& coverage) {
  const auto model = ParseOnnxModel(bytes, "model.onnx");
  if (!model.ok()) return std::string(model.status().message());
  const absl::StatusOr<OnnxFacts> facts = InferOnnx(**model);
  if (!facts.ok()) return std::string(facts.status().message());
  for (const OnnxMismatch& mismatch : facts->mismatches())
    return absl::StrCat("mismatch: ", mismatch.node, ": ", mismatch.message);
  Sizes sizes;
  for (const int32_t slot : (*model)->graph.inputs) {
    const auto given = inputs.find(std::string((*model)->graph.names[slot]));
    if (given == inputs.end() || !given->second.is_tensor()) continue;
    const std::string wrong = Wrong(facts->Of((*model)->graph, slot), given->second.tensor(), sizes);
    if (!wrong.empty()) return absl::StrCat("input ", given->first, ": ", wrong);
  }
  const absl::StatusOr<std::vector<OnnxValue>> outputs = OnnxRunner(**model).Run(inputs);
  const auto own = static_cast<size_t>(file.graph().output_size());
  for (size_t i = 0; i < (*model)->graph.outputs.size(); ++i) {
    OnnxValue value;
    if (outputs.ok()) {
      value = (*outputs)[i];
    } else if (i < own) {  // what has no meaning here has an expected output all the same
      const fs::path path = set / absl::StrCat("output_", i, ".pb");
      const auto wanted =
          ParseValue(BytesOf(path), file.graph().output(static_cast<int>(i)).type(), path.string());
      if (!wanted.ok()) continue;
      value = *wanted;
    } else {
      continue;
    }
    const std::string wrong = Check(**model, *facts, i, value, i < own, sizes, coverage);
    if (!wrong.empty()) return wrong;
  }
  return "";
}

std::string RunTest(const fs::path& folder, Coverage& as_it_is, Coverage& given) {
  const std::string bytes = BytesOf(folder / "model.onnx");
  const fs::path set = folder / "test_data_set_0";
  ::onnx::ModelProto file;
  if (!file.ParseFromString(bytes)) return "is no model";
  const auto model = ParseOnnxModel(bytes, "model.onnx");
  if (!model.ok()) return std::string(model.status().message());
  const auto inputs = ReadInputFolder(**model, set.string());
  if (!inputs.ok()) return std::string(inputs.status().message());
  const std::string bare = Bared(bytes), wrong = Hold(file, bare, set, *inputs, as_it_is);
  if (!wrong.empty()) return wrong;
  const std::string still = Hold(file, WithConstants(bare, *inputs), set, *inputs, given);
  return still.empty() ? "" : absl::StrCat("with constants: ", still);
}

std::string Texts(const std::optional<std::vector<KnownDim>>& dims) {
  if (!dims) return "?";
  return absl::StrCat("[",
                      absl::StrJoin(*dims, ", ",
                                    [](std::string* out, const KnownDim& dim) {
                                      absl::StrAppend(out, dim ? dim->Text() : "?");
                                    }),
                      "]");
}

int Print(const char* path) {
  const auto model = ReadOnnxModel(path);
  if (!model.ok()) return std::fprintf(stderr, "%s\n", std::string(model.status().message()).c_str()), 1;
  const absl::StatusOr<OnnxFacts> facts = InferOnnx(**model);
  if (!facts.ok()) return std::fprintf(stderr, "%s\n", std::string(facts.status().message()).c_str()), 1;
  const OnnxGraph& graph = (*model)->graph;
  for (size_t slot = 0; slot < graph.names.size(); ++slot) {
    const OnnxFact& fact = facts->Of(graph, static_cast<int32_t>(slot));
    std::printf("value\t%s\t%s\t%s\t%s\n", Visible(std::string(graph.names[slot])).c_str(),
                fact.type ? std::string(ElementTypeName(*fact.type)).c_str() : "?", Texts(fact.shape).c_str(),
                Texts(fact.elements).c_str());
  }
  for (const auto& [text, symbol] : facts->renamed())
    std::printf("renamed\t%s\t%s\n", symbol.c_str(), text.c_str());
  for (const OnnxMismatch& m : facts->mismatches())
    std::printf("mismatch\t%s\t%s\n", Visible(m.node).c_str(), Visible(m.message).c_str());
  std::printf("visits\t%lld\n", static_cast<long long>(facts->node_visits()));
  return 0;
}

// Processor time, so that a loaded machine says the same.
int Time(const char* path) {
  std::vector<double> read, infer;
  for (int run = 0; run < 7; ++run) {
    const std::clock_t start = std::clock();
    const auto model = ReadOnnxModel(path);
    const std::clock_t middle = std::clock();
    if (!model.ok() || !InferOnnx(**model).ok()) return 1;
    read.push_back(1e3 * static_cast<double>(middle - start) / CLOCKS_PER_SEC);
    infer.push_back(1e3 * static_cast<double>(std::clock() - middle) / CLOCKS_PER_SEC);
  }
  std::sort(read.begin(), read.end());
  std::sort(infer.begin(), infer.end());
  std::printf("read %.0f ms, infer %.0f ms\n", read[3], infer[3]);
  return 0;
}

int Main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "--time") return Time(argv[2]);
  if (argc == 3 && std::string(argv[1]) == "--print") return Print(argv[2]);
  std::vector<fs::path> tests;
  for (int i = 1; i < argc; ++i) {
    for (const auto& entry : fs::recursive_directory_iterator(argv[i])) {
      if (entry.path().filename() == "model.onnx") tests.push_back(entry.path().parent_path());
    }
  }
  std::sort(tests.begin(), tests.end());
  for (const fs::path& test : tests) {
    std::fprintf(stderr, "%s\r", test.filename().c_str());  // the last one said is the one that crashed
    Coverage coverage, given;
    const std::string wrong = RunTest(test, coverage, given);
    const std::string name = (test.parent_path().filename() / test.filename()).string();
    std::printf("%s\t%s\t%d %d %d %d %d\t%s\n", name.c_str(), wrong.empty() ? "holds" : "wrong",
                coverage.tensors, coverage.types, coverage.ranks, coverage.shapes, given.shapes,
                Visible(wrong).c_str());
    std::fflush(stdout);
  }
  return tests.empty() ? 1 : 0;
}

}  // namespace
}  // namespace twinforge

int main(int argc, char** argv) { return twinforge::Main(argc, argv); }
