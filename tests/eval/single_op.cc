#include "tests/eval/single_op.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "gtest/gtest.h"
#include "ir/decompose.h"
#include "ir/text.h"
#include "weights/build.h"

namespace twinforge {
namespace {

// "f64[4, 2]" of "d_model=4 -> heads=2": a source of the parameter's own shape.
std::string SourceShape(const std::string& axes) {
  std::string sizes;
  for (size_t at = axes.find('='); at != std::string::npos; at = axes.find('=', at + 1)) {
    absl::StrAppend(&sizes, sizes.empty() ? "" : ", ", std::atoi(axes.c_str() + at + 1));
  }
  return absl::StrCat("f64[", sizes, "]");
}

std::string TextOf(const std::string& op, const std::string& attrs, const SlotTypes& slots,
                   const std::string& x) {
  std::map<std::string, std::string> params;
  std::string used;
  for (const auto& [slot, axes] : slots) {
    const std::string role = RoleOf(*OpKindFromName(op), "y", slot);
    absl::StrAppend(&used, " ", role == "y" ? "" : slot + "=", "@", role);
    params[role] =
        absl::StrCat("  @", role, ": f64[", axes, "]", axes.find("->") == std::string::npos ? "" : " in_out",
                     " = source(\"", role, "\": ", SourceShape(axes), ")\n");
  }
  std::string text =
      absl::StrCat("graph t(x: ", x, ") -> (y: y) {\n  y = ", op, "(x)", used, " {", attrs, "}\n}\n");
  if (!params.empty()) absl::StrAppend(&text, "params {\n");
  for (const auto& [role, line] : params) absl::StrAppend(&text, line);
  return absl::StrCat(text, params.empty() ? "" : "}\n");
}

}  // namespace

int64_t Values4::PlaceOf(std::initializer_list<int64_t> index) const {
  TWIN_CHECK(index.size() == shape_.size(), "rank");
  int64_t place = 0;
  size_t axis = 0;
  for (int64_t i : index) {
    TWIN_CHECK(i >= 0 && i < shape_[axis], "index");
    place = place * shape_[axis++] + i;
  }
  return place;
}

double Values4::at(std::initializer_list<int64_t> index) const { return data_[PlaceOf(index)]; }
double& Values4::at(std::initializer_list<int64_t> index) { return data_[PlaceOf(index)]; }

SingleOp::SingleOp(const std::string& op, const std::string& attrs, const SlotTypes& slots,
                   const std::string& x) {
  const std::string text = TextOf(op, attrs, slots, x);
  absl::StatusOr<Graph> graph = ParseGraph(text);
  TWIN_CHECK(graph.ok(), absl::StrCat(text, graph.ok() ? "" : graph.status().ToString()));
  graph_ = *std::move(graph);
}

bool SingleOp::Has(const std::string& slot) const { return graph_.FindNode("y")->Has(slot); }

Values4 SingleOp::Param(const std::string& slot) const {
  const class Param& param = graph_.param(*graph_.FindNode("y"), slot);
  const absl::StatusOr<Tensor> value = StoredParams(reader_).Value(param);
  TWIN_CHECK(value.ok(), "a random parameter is always there");
  return Values4(value->shape(), value->values());
}

Values4 SingleOp::Random(const Shape& shape, uint64_t seed) {
  struct Param param;
  param.program = Source("x", DType::kF64, shape);
  const RandomTensors reader(seed);
  return Values4(shape, StoredParams(reader).Value(param)->values());
}

Values4 SingleOp::Run(const Values4& x, DecodeState* state) const {
  const auto out =
      Evaluate(graph_, StoredParams(reader_), {{"x", Tensor(DType::kF64, x.shape(), x.data())}}, {}, state);
  EXPECT_TRUE(out.ok()) << out.status();
  return out.ok() ? Values4(out->at("y").shape(), out->at("y").values()) : Values4();
}

Values4 SingleOp::RunOnce(const Values4& x) const {
  const auto body = DecompositionOf(graph_, *graph_.FindNode("y"), DecompositionDepth::kOnce, false);
  EXPECT_TRUE(body.ok()) << body.status();
  std::vector<double> places;
  for (int64_t i = 0; i < x.shape()[0] * x.shape()[1]; ++i)
    places.push_back(static_cast<double>(i % x.shape()[1]));
  const Tensor positions(DType::kI32, {x.shape()[0], x.shape()[1]}, places);
  const auto out = Evaluate(*body, StoredParams(reader_),
                            {{"operand_0", Tensor(DType::kF64, x.shape(), x.data())},
                             {"positions", positions},
                             {"token_types", positions}});
  EXPECT_TRUE(out.ok()) << out.status();
  return out.ok() ? Values4(out->at("result").shape(), out->at("result").values()) : Values4();
}

Values4 SingleOp::RunInPieces(const Values4& x, const std::vector<int64_t>& pieces) const {
  DecodeState state;
  const int64_t batch = x.shape()[0], width = x.shape()[2];
  Values4 all(x.shape(), x.data());
  int64_t from = 0;
  for (int64_t count : pieces) {
    Values4 piece({batch, count, width}, std::vector<double>(batch * count * width));
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t t = 0; t < count; ++t) {
        for (int64_t i = 0; i < width; ++i) piece.at({b, t, i}) = x.at({b, from + t, i});
      }
    }
    const Values4 y = Run(piece, &state);
    if (y.data().empty()) return y;
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t t = 0; t < count; ++t) {
        for (int64_t i = 0; i < width; ++i) all.at({b, from + t, i}) = y.at({b, t, i});
      }
    }
    from += count;
  }
  return all;
}

void ExpectSame(const Values4& want, const Values4& got) {
  ASSERT_EQ(want.shape(), got.shape());
  double largest = 0, most = 0;
  for (size_t i = 0; i < want.data().size(); ++i) {
    largest = std::max(largest, std::fabs(want.data()[i]));
    most = std::max(most, std::isnan(got.data()[i]) ? HUGE_VAL : std::fabs(want.data()[i] - got.data()[i]));
  }
  EXPECT_GT(largest, 0);
  EXPECT_LE(most, 1e-12 * largest);
}

}  // namespace twinforge
