// onnx_conformance FOLDER...: runs every test below the folders, as the standard lays them out
// (TEST/model.onnx, TEST/test_data_set_K/{input,output}_I.pb), and prints a line for each:
//
//   node/test_abs   Abs   pass
//   node/test_x     Foo   refused   TF2007 node "" (Foo): has no meaning here
//   node/test_y     Bar   differs   output 0: element 3 is 1.5, not 1.25
//
// Comparison is the official runner's: same type and shape, |a - b| <= 1e-7 + 1e-3 |b| (BFLOAT16: 2^-6 |b|),
// NaN equals NaN, strings and everything else exactly.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "onnx/onnx-ml.pb.h"
#include "onnx/read.h"
#include "onnx/run.h"
#include "onnx/value_file.h"

namespace twinforge {
namespace {

namespace fs = std::filesystem;

std::string BytesOf(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

bool IsClose(double a, double b, ElementType type) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (std::isinf(a) || std::isinf(b)) return a == b;
  const double relative = type == ElementType::kBfloat16 ? 0x1p-6 : 1e-3;
  return std::fabs(a - b) <= 1e-7 + relative * std::fabs(b);
}

// "" where they agree, else what differs.
std::string Difference(const OnnxTensor& got, const OnnxTensor& wanted) {
  if (got.type() != wanted.type() || got.shape() != wanted.shape()) {
    return absl::StrCat(ValueText(got), ", not ", ValueText(wanted));
  }
  if (got.is_string()) return got.strings() == wanted.strings() ? "" : "strings differ";
  for (const bool imaginary : {false, true}) {
    std::vector<double> a, b;
    if (got.carrier() == ElementCarrier::kComplex) {
      for (const auto& v : Elements<std::complex<double>>(got)) a.push_back(imaginary ? v.imag() : v.real());
      for (const auto& v : Elements<std::complex<double>>(wanted))
        b.push_back(imaginary ? v.imag() : v.real());
    } else if (IsFloatingElement(got.type())) {
      a = Elements<double>(got), b = Elements<double>(wanted);
    } else {
      const std::vector<int64_t> x = Elements<int64_t>(got), y = Elements<int64_t>(wanted);
      const auto at = std::mismatch(x.begin(), x.end(), y.begin());
      if (at.first == x.end()) return "";
      return absl::StrCat("element ", at.first - x.begin(), " is ", *at.first, ", not ", *at.second);
    }
    for (size_t k = 0; k < a.size(); ++k) {
      if (!IsClose(a[k], b[k], got.type())) return absl::StrCat("element ", k, " is ", a[k], ", not ", b[k]);
    }
  }
  return "";
}

std::string Difference(const OnnxValue& got, const OnnxValue& wanted) {
  if (got.is_tensor() && wanted.is_tensor()) return Difference(got.tensor(), wanted.tensor());
  if (got.kind() != wanted.kind()) return absl::StrCat(ValueText(got), ", not ", ValueText(wanted));
  if (got.is_nothing()) return "";
  if (got.items().size() != wanted.items().size())
    return absl::StrCat(got.items().size(), " items, not ", wanted.items().size());
  for (size_t i = 0; i < got.items().size(); ++i) {
    const std::string difference = Difference(got.items()[i], wanted.items()[i]);
    if (!difference.empty()) return absl::StrCat("item ", i, ": ", difference);
  }
  return "";
}

struct Verdict {
  const char* word;
  std::string why;
};

Verdict Refused(const absl::Status& status) {
  const std::optional<Diagnostic> said = DiagnosticOf(status);
  if (!said) return {"broken", std::string(status.message())};
  const size_t name = said->place.rfind("model.onnx: ");
  const std::string place = name == std::string::npos ? said->place : said->place.substr(name + 12);
  return {said->code == 2007 ? "refused" : "fails",
          absl::StrCat("TF", said->code, " ", place, ": ", said->message)};
}

Verdict RunSet(const OnnxModel& model, const fs::path& set) {
  const auto& graph = model.proto->graph();
  const auto inputs = ReadInputFolder(model, set.string());
  if (!inputs.ok()) return Refused(inputs.status());
  const absl::StatusOr<std::vector<OnnxValue>> outputs = OnnxRunner(model).Run(*inputs);
  if (!outputs.ok()) return Refused(outputs.status());
  for (int i = 0; i < graph.output_size(); ++i) {
    const fs::path file = set / absl::StrCat("output_", i, ".pb");
    if (!fs::exists(file)) continue;
    const absl::StatusOr<OnnxValue> wanted = ParseValue(BytesOf(file), graph.output(i).type(), file.string());
    if (!wanted.ok()) return Refused(wanted.status());
    const std::string difference = Difference((*outputs)[static_cast<size_t>(i)], *wanted);
    if (!difference.empty()) return {"differs", absl::StrCat("output ", i, ": ", difference)};
  }
  return {"pass", ""};
}

Verdict RunTest(const fs::path& folder, std::string& operators) {
  const auto model = ReadOnnxModel((folder / "model.onnx").string());
  if (!model.ok()) return Refused(model.status());
  std::vector<std::string> names;
  for (const OnnxNode& node : (*model)->graph.nodes)
    names.push_back(OperatorName(node.domain, node.proto->op_type()));
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  for (const std::string& name : names) absl::StrAppend(&operators, operators.empty() ? "" : ",", name);
  Verdict verdict{"pass", ""};
  int sets = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (!entry.is_directory() || std::string(verdict.word) != "pass") continue;
    verdict = RunSet(**model, entry.path());
    ++sets;
  }
  return sets == 0 ? Verdict{"broken", "has no data"} : verdict;
}

int Main(int argc, char** argv) {
  std::vector<fs::path> tests;
  for (int i = 1; i < argc; ++i) {
    for (const auto& entry : fs::recursive_directory_iterator(argv[i])) {
      if (entry.path().filename() == "model.onnx") tests.push_back(entry.path().parent_path());
    }
  }
  std::sort(tests.begin(), tests.end());
  for (const fs::path& test : tests) {
    std::string operators;
    std::fprintf(stderr, "%s\r", test.filename().c_str());  // the last one said is the one that crashed
    const Verdict verdict = RunTest(test, operators);
    const std::string name = (test.parent_path().filename() / test.filename()).string();
    std::printf("%s\t%s\t%s\t%s\n", name.c_str(), operators.c_str(), verdict.word,
                Visible(verdict.why).c_str());
    std::fflush(stdout);
  }
  return tests.empty() ? 1 : 0;
}

}  // namespace
}  // namespace twinforge

int main(int argc, char** argv) { return twinforge::Main(argc, argv); }
