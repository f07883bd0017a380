#include "cost/workload.h"

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/diagnostic.h"
#include "base/json_reader.h"
#include "base/status_macros.h"

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

namespace {

constexpr int64_t kMostChips = int64_t{1} << 20;

// An axis of a mesh by name; `crosses` null: it lies within others.
struct AxisPlace {
  int64_t* size = nullptr;
  bool* crosses = nullptr;
};

AxisPlace PlaceOf(absl::string_view name, Mesh& mesh) {
  if (name == "tp") return {&mesh.tp, &mesh.dcn.tp};
  if (name == "dp") return {&mesh.dp, &mesh.dcn.dp};
  if (name == "sp") return {&mesh.sp, &mesh.dcn.sp};
  if (name == "pp") return {&mesh.pp, &mesh.dcn.pp};
  if (name == "ep") return {&mesh.ep, nullptr};
  return {};
}

// "8" or "8@dcn" of the axis `name`.
absl::Status ReadSize(absl::string_view text, absl::string_view name, absl::string_view size,
                      const AxisPlace& place) {
  const bool crosses = absl::ConsumeSuffix(&size, "@dcn");
  if (!absl::SimpleAtoi(size, place.size) || *place.size < 1 || *place.size > kMostChips)
    return Error(1720, text, absl::StrCat("axis ", name, " needs a size from 1 to 1048576"),
                 absl::StrCat("as in ", name, "=8"));
  if (!crosses) return absl::OkStatus();
  if (place.crosses == nullptr)
    return Error(1720, text, "ep lies within tp, dp and sp", "say of those which crosses slices");
  if (*place.size == 1)
    return Error(1720, text, absl::StrCat("axis ", name, " of size 1 crosses nothing"), "leave out @dcn");
  *place.crosses = true;
  return absl::OkStatus();
}

absl::Status CheckMesh(absl::string_view text, const Mesh& mesh) {
  if (mesh.tp * mesh.dp > kMostChips || mesh.tp * mesh.dp * mesh.sp > kMostChips || mesh.chips() > kMostChips)
    return Error(1720, text, "a mesh has at most 1048576 chips", "name a smaller one");
  const int64_t stage = mesh.tp * mesh.dp * mesh.sp;
  if (stage % mesh.ep == 0) return absl::OkStatus();
  return Error(
      1720, text,
      absl::StrCat("ep ", mesh.ep, " does not divide tp x dp", mesh.sp > 1 ? " x sp" : "", " = ", stage),
      "experts are spread over the devices of tp, dp and sp; name an ep that divides their product");
}

}  // namespace

absl::StatusOr<Mesh> ParseMesh(absl::string_view text) {
  Mesh mesh;
  if (text.empty()) return mesh;
  std::vector<absl::string_view> seen;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> axis =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    const AxisPlace place = PlaceOf(axis.first, mesh);
    if (place.size == nullptr)
      return Error(1720, text, absl::StrCat("unknown mesh axis ", JsonQuoted(axis.first, 100)),
                   "axes are tp, dp, sp, ep and pp, as in tp=8,ep=8 or tp=8,dp=2@dcn");
    for (const absl::string_view earlier : seen) {
      if (earlier == axis.first)
        return Error(1720, text, absl::StrCat("axis ", axis.first, " is given twice"), "name each axis once");
    }
    seen.push_back(axis.first);
    TWIN_RETURN_IF_ERROR(ReadSize(text, axis.first, axis.second, place));
  }
  TWIN_RETURN_IF_ERROR(CheckMesh(text, mesh));
  return mesh;
}

std::string MeshText(const Mesh& mesh) {
  struct Axis {
    absl::string_view name;
    int64_t size;
    bool crosses;
  };
  const Axis axes[] = {{"tp", mesh.tp, mesh.dcn.tp},
                       {"dp", mesh.dp, mesh.dcn.dp},
                       {"sp", mesh.sp, mesh.dcn.sp},
                       {"ep", mesh.ep, false},
                       {"pp", mesh.pp, mesh.dcn.pp}};
  std::vector<std::string> parts;
  for (const Axis& axis : axes) {
    if (axis.size > 1) parts.push_back(absl::StrCat(axis.name, "=", axis.size, axis.crosses ? "@dcn" : ""));
  }
  return parts.empty() ? "tp=1" : absl::StrJoin(parts, ",");
}

absl::string_view PhaseWord(const Workload& workload) {
  if (workload.training) return "train";
  if (workload.phase == Phase::kPrefill) return "prefill";
  return workload.mixed() ? "mixed" : "decode";
}

Workload OneMicrobatch(Workload workload) {
  workload.batch /= workload.microbatches;
  workload.microbatches = 1;
  return workload;
}

}  // namespace twinforge
