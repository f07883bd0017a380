#include "cost/workload.h"

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/diagnostic.h"
#include "base/json_reader.h"

namespace twinforge {
namespace {

// Groups as the formats' own papers and configs say: OCP MX v1.0 (32, e8m0); NVFP4 (16, e4m3); block-scaled
// fp8 of DeepSeek-V3 (weight_block_size 128 x 128); group quantisation of 128 as AWQ and GPTQ publish.
const std::vector<WeightFormat>& Formats() {
  static const auto& formats = *new std::vector<WeightFormat>{
      {.name = "bf16", .stored = DType::kBF16, .multiplied = DType::kBF16},
      {.name = "f16", .stored = DType::kF16, .multiplied = DType::kF16},
      {.name = "f32", .stored = DType::kF32, .multiplied = DType::kF32},
      {.name = "fp8", .stored = DType::kF8E4M3, .multiplied = DType::kF8E4M3},
      {.name = "fp8_block",
       .stored = DType::kF8E4M3,
       .multiplied = DType::kF8E4M3,
       .group_in = 128,
       .group_out = 128},
      {.name = "int8", .stored = DType::kI8, .multiplied = DType::kI8},
      // int4 and mxfp4 are only stored so: what serves them multiplies what it widens them to.
      {.name = "int4",
       .stored = DType::kF4,
       .multiplied = DType::kBF16,
       .group_in = 128,
       .scale = DType::kBF16},
      {.name = "nvfp4",
       .stored = DType::kF4,
       .multiplied = DType::kF4,
       .group_in = 16,
       .scale = DType::kF8E4M3},
      {.name = "mxfp4",
       .stored = DType::kF4,
       .multiplied = DType::kBF16,
       .group_in = 32,
       .scale = DType::kF8E8M0},
  };
  return formats;
}

}  // namespace

absl::string_view RoutingWord(Routing routing) {
  switch (routing) {
    case Routing::kSame:
      return "same";
    case Routing::kSpread:
      return "spread";
    case Routing::kExpected:
      return "expected";
  }
  return "";
}

Routing EstimatedRouting(Routing declared) {
  return declared == Routing::kSame ? Routing::kExpected : declared;
}

absl::StatusOr<WeightFormat> ParseWeightFormat(absl::string_view name) {
  std::vector<std::string> known;
  for (const WeightFormat& format : Formats()) {
    if (format.name == name) return format;
    known.push_back(format.name);
  }
  return Error(1704, name, "unknown number format", absl::StrCat("known: ", absl::StrJoin(known, ", ")));
}

absl::StatusOr<Mesh> ParseMesh(absl::string_view text) {
  Mesh mesh;
  if (text.empty()) return mesh;
  std::vector<absl::string_view> seen;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> axis =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    int64_t* size = axis.first == "tp"   ? &mesh.tp
                    : axis.first == "dp" ? &mesh.dp
                    : axis.first == "ep" ? &mesh.ep
                    : axis.first == "pp" ? &mesh.pp
                                         : nullptr;
    if (size == nullptr)
      return Error(1702, text, absl::StrCat("unknown mesh axis ", JsonQuoted(axis.first)),
                   "axes are tp, dp, ep and pp, as in tp=8,ep=8");
    for (const absl::string_view earlier : seen) {
      if (earlier == axis.first)
        return Error(1702, text, absl::StrCat("axis ", axis.first, " is given twice"));
    }
    seen.push_back(axis.first);
    if (!absl::SimpleAtoi(axis.second, size) || *size < 1 || *size > int64_t{1} << 20) {
      return Error(1702, text, absl::StrCat("axis ", axis.first, " needs a size from 1 to 1048576"));
    }
  }
  if (mesh.tp * mesh.dp % mesh.ep != 0) {
    return Error(1702, text, absl::StrCat("ep ", mesh.ep, " does not divide tp x dp = ", mesh.tp * mesh.dp),
                 "experts are spread over the devices of tp and dp; name an ep that divides their product");
  }
  return mesh;
}

std::string MeshText(const Mesh& mesh) {
  std::vector<std::string> parts;
  const std::pair<absl::string_view, int64_t> axes[] = {
      {"tp", mesh.tp}, {"dp", mesh.dp}, {"ep", mesh.ep}, {"pp", mesh.pp}};
  for (const auto& [name, size] : axes) {
    if (size > 1) parts.push_back(absl::StrCat(name, "=", size));
  }
  return parts.empty() ? "tp=1" : absl::StrJoin(parts, ",");
}

}  // namespace twinforge
