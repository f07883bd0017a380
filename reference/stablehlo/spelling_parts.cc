#include "reference/stablehlo/spelling_parts.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace twinforge {
namespace {

// coefficients[0] z^n + ... + coefficients[n]
MlirValue Polynomial(MlirBody& body, const MlirValue& z, absl::Span<const double> coefficients) {
  MlirValue sum = body.Constant(coefficients[0], z.type);
  for (double c : coefficients.subspan(1)) {
    sum = body.Elementwise("add", {body.Elementwise("multiply", {sum, z}), body.Constant(c, z.type)});
  }
  return sum;
}

MlirValue ErfOfF32(MlirBody& body, const MlirValue& x) {
  static constexpr double kAbove[] = {-2.72614225801306e-10, 2.77068142495902e-08,  -2.10102402082508e-06,
                                      -5.69250639462346e-05, -7.34990630326855e-04, -2.95459980854025e-03,
                                      -1.60960333262415e-02};
  static constexpr double kBelow[] = {-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03,
                                      -7.37332916720468e-03, -1.42647390514189e-02};
  const MlirValue most = body.Constant(4, x.type), least = body.Constant(-4, x.type);
  const MlirValue held = body.Elementwise("minimum", {body.Elementwise("maximum", {x, least}), most});
  const MlirValue z = body.Elementwise("multiply", {held, held});
  const MlirValue above = body.Elementwise("multiply", {held, Polynomial(body, z, kAbove)});
  return body.Elementwise("divide", {above, Polynomial(body, z, kBelow)});
}

}  // namespace

MlirValue SpellErf(const Spelling&, const SpellingInput& in) {
  MlirBody& body = in.body;
  if (in.type.dtype == DType::kF64) {
    return body.Op(absl::StrCat("chlo.erf ", in.x[0].name, " : ", MlirText(in.type), " -> ", MlirText(in.type)),
                   in.type);
  }
  return body.Convert(ErfOfF32(body, body.Convert(in.x[0], DType::kF32)), in.type.dtype);
}

MlirValue SpellTopK(const Spelling&, const SpellingInput& in) {
  MlirBody& body = in.body;
  const MlirValue& x = in.x[0];
  const auto last = static_cast<int64_t>(x.type.shape.size()) - 1;
  const MlirValue places = body.Iota({DType::kI32, x.type.shape}, last);
  const MlirType one{x.type.dtype, {}}, place{DType::kI32, {}};
  const std::string order = IsFloat(one.dtype) ? "TOTALORDER" : "SIGNED";
  const std::string written = absl::StrCat(
      "\"stablehlo.sort\"(", MlirNames({x, places}), ") <{dimension = ", last,
      " : i64, is_stable = true}> ({\n    ^bb0(%left$: ", MlirText(one), ", %right$: ", MlirText(one),
      ", %left_place$: ", MlirText(place), ", %right_place$: ", MlirText(place),
      "):\n      %larger$ = stablehlo.compare GT, %left$, %right$, ", order, " : (", MlirText(one), ", ",
      MlirText(one), ") -> tensor<i1>\n      stablehlo.return %larger$ : tensor<i1>\n    }) : ",
      MlirTypes({x, places}), " -> ", MlirTypes({x, places}));
  const std::vector<MlirValue> sorted = body.Ops(written, {x.type, places.type});
  return body.Slice(sorted[1], last, 0, in.node.attrs->top_k().k());
}

MlirValue SpellConv(const Spelling&, const SpellingInput& in) {
  const ConvAttrs& attrs = in.node.attrs->conv();
  std::vector<int64_t> spatial(attrs.strides_size());
  std::vector<std::string> pads;
  for (int i = 0; i < attrs.strides_size(); ++i) {
    spatial[i] = i;
    pads.push_back(MlirList({attrs.low(i), attrs.high(i)}));
  }
  const std::string places = absl::StrJoin(spatial, ", ");
  const std::vector<int64_t> strides(attrs.strides().begin(), attrs.strides().end());
  const std::string written = absl::StrCat(
      "stablehlo.convolution(", MlirNames(in.x), ") dim_numbers = [b, ", places, ", f]x[", places,
      ", i, o]->[b, ", places, ", f], window = {stride = ", MlirList(strides), ", pad = [",
      absl::StrJoin(pads, ", "), "]} {batch_group_count = 1 : i64, feature_group_count = ",
      std::max<int64_t>(attrs.groups(), 1),
      " : i64, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]} : ",
      MlirTypes(in.x), " -> ", MlirText(in.type));
  return in.body.Op(written, in.type);
}

namespace {

// One step of the loop: h after the step, and all of it so far.
struct Step {
  MlirValue h, all;
};

Step ScanStep(MlirBody& body, const SpellingInput& in, const MlirValue& t, const MlirValue& h,
              const MlirValue& all) {
  const MlirValue zero = body.Constant(0, {DType::kI32, {}});
  const auto at = [&](const MlirValue& x) {
    std::vector<MlirValue> places(x.type.shape.size(), zero);
    places[1] = t;
    return places;
  };
  // [batch, 1, ..] of x, without the axis of time.
  const auto now = [&](const MlirValue& x) {
    Shape sizes = x.type.shape;
    sizes[1] = 1;
    const MlirValue slice = body.DynamicSlice(x, at(x), sizes);
    sizes.erase(sizes.begin() + 1);
    return body.Reshape(slice, sizes);
  };
  const MlirValue decay = now(in.x[1]), update = now(in.x[2]);
  MlirValue kept;
  if (in.node.attrs->scan().product() == ScanAttrs::MATRIX) {
    MlirBody::Product product;
    const auto rank = static_cast<int64_t>(h.type.shape.size());
    for (int64_t axis = 0; axis + 2 < rank; ++axis) {
      product.x_batch.push_back(axis);
      product.y_batch.push_back(axis);
    }
    product.x_contract = {rank - 1};
    product.y_contract = {rank - 2};
    kept = body.Dot(h, decay, product);
  } else {
    kept = body.Elementwise("multiply", {h, decay});
  }
  const MlirValue next = body.Elementwise("add", {kept, update});
  Shape row = all.type.shape;
  row[1] = 1;
  return {next, body.UpdateSlice(all, body.Reshape(next, row), at(all))};
}

}  // namespace

MlirValue SpellScan(const Spelling&, const SpellingInput& in) {
  MlirBody& body = in.body;
  const MlirType count{DType::kI32, {}};
  const MlirValue zero = body.Constant(0, count), empty = body.Constant(0, in.type);
  const MlirValue &first = in.x[0], t{"%step$", count}, h{"%carried$", first.type}, all{"%all$", in.type};
  MlirBody test("c", 6), loop("s", 6);
  const MlirValue go = test.Compare("LT", t, test.Constant(static_cast<double>(in.type.shape[1]), count));
  test.Line(absl::StrCat("stablehlo.return ", go.name, " : tensor<i1>"));
  const Step step = ScanStep(loop, in, t, h, all);
  const MlirValue next = loop.Elementwise("add", {t, loop.Constant(1, count)});
  loop.Line(absl::StrCat("stablehlo.return ", MlirNames({next, step.h, step.all}), " : ", MlirText(count), ", ",
                         MlirText(h.type), ", ", MlirText(all.type)));
  const std::string written = absl::StrCat(
      "stablehlo.while(%step$ = ", zero.name, ", %carried$ = ", first.name, ", %all$ = ", empty.name,
      ") : ", MlirText(count), ", ", MlirText(h.type), ", ", MlirText(all.type), "\n    cond {\n", test.text(),
      "    } do {\n", loop.text(), "    }");
  return body.Ops(written, {count, h.type, all.type})[2];
}

}  // namespace twinforge
