#include "cost/certificate_graph.h"

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/sha256.h"
#include "ir/text.h"
#include "weights/build.h"

namespace twinforge {
namespace {

// Which parameter has a program's bytes already, as they are or turned.
class FirstHolders {
 public:
  std::string Of(const Param& param) {
    const auto [at, added] = holders_.try_emplace(param.program, absl::StrCat("@", param.role));
    if (!added) return at->second;
    if (param.type.axes.size() == 2)
      holders_.try_emplace(Transpose(param.program, {1, 0}), absl::StrCat("transposed @", param.role));
    return "";
  }

 private:
  absl::flat_hash_map<WeightPtr, std::string> holders_;
};

}  // namespace

std::string CertifiedText(const Graph& graph) {
  const std::string params = "params {\n";
  const std::string whole = Text(graph);
  const size_t start = whole.find(params);
  if (start == std::string::npos) return whole;
  size_t at = start + params.size();
  std::string text = whole.substr(0, at);
  FirstHolders holders;
  for (const auto& [role, param] : graph.params()) {
    const size_t end = whole.find('\n', at);
    const size_t program = whole.find(" = ", at);
    TWIN_CHECK(program < end && end != std::string::npos, "a parameter's line has its program");
    const std::string holder = holders.Of(param);
    absl::StrAppend(&text, whole.substr(at, program - at), holder.empty() ? "" : " = ", holder, "\n");
    at = end + 1;
  }
  return text + whole.substr(at);
}

std::string CertifiedHash(const Graph& graph) { return Sha256Hex(CertifiedText(graph)); }

}  // namespace twinforge
