// Every primitive: one line of graph text, operands, the value by hand.
#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "eval/evaluate.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/builder.h"
#include "ir/text.h"
#include "weights/build.h"
#include "weights/rounding.h"

namespace twinforge {
namespace {

using ::testing::HasSubstr;

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Given {
  std::string type;  // "f64[a=2, b=3]"; the input is called a, b, c, in order
  std::vector<double> values;
};

struct Case {
  std::string name;
  std::vector<Given> inputs;
  std::string line;  // "add(a, b)"
  std::string type;  // of the result; inferred, and compared
  std::vector<double> want;
};

std::string GraphText(const std::vector<Given>& inputs, const std::string& line) {
  std::string text = "graph t(";
  for (size_t i = 0; i < inputs.size(); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", std::string(1, static_cast<char>('a' + i)), ": ",
                    inputs[i].type);
  }
  return absl::StrCat(text, ") -> (y: y) {\n  y = ", line, "\n}\n");
}

Tensor TensorOf(const Given& given) {
  const absl::StatusOr<Type> type = ParseType(given.type);
  EXPECT_TRUE(type.ok()) << given.type;
  Shape shape;
  for (const Axis& axis : type->axes) shape.push_back(axis.size.value().value_or(2));
  return Tensor(type->dtype, shape, given.values);
}

NamedTensors InputsOf(const std::vector<Given>& inputs) {
  NamedTensors tensors;
  for (size_t i = 0; i < inputs.size(); ++i) {
    tensors[std::string(1, static_cast<char>('a' + i))] = TensorOf(inputs[i]);
  }
  return tensors;
}

absl::StatusOr<Tensor> Value(const std::vector<Given>& inputs, const std::string& line) {
  const absl::StatusOr<Graph> graph = ParseGraph(GraphText(inputs, line));
  if (!graph.ok()) return graph.status();
  const RandomTensors reader(1);
  const absl::StatusOr<NamedTensors> out = Evaluate(*graph, StoredParams(reader), InputsOf(inputs));
  if (!out.ok()) return out.status();
  return out->at("y");
}

const Given kTwoByThree = {"f64[m=2, n=3]", {1, 2, 3, 4, 5, 6}};
const Given kOnes = {"f64[n=3]", {1, -2, 0.5}};

const std::vector<Case>& Cases() {
  static const auto* const cases = new std::vector<Case>{
      {"constant, one value for all", {}, "constant() {type: 'f64[n=3]' values: 7}", "f64[n=3]", {7, 7, 7}},
      {"constant, each its own",
       {},
       "constant() {type: 'i32[n=2]' values: 7 values: -1}",
       "i32[n=2]",
       {7, -1}},
      {"iota", {}, "iota() {type: 'i32[m=2, n=3]' axis: 1}", "i32[m=2, n=3]", {0, 1, 2, 0, 1, 2}},
      {"iota of the first axis", {}, "iota() {type: 'f32[m=2, n=2]'}", "f32[m=2, n=2]", {0, 0, 1, 1}},
      {"dimension_size", {kTwoByThree}, "dimension_size(a) {axis: 1}", "i32[]", {3}},
      {"add", {kOnes, kOnes}, "add(a, b)", "f64[n=3]", {2, -4, 1}},
      {"subtract", {kOnes, {"f64[n=3]", {1, 1, 1}}}, "subtract(a, b)", "f64[n=3]", {0, -3, -0.5}},
      {"multiply", {kOnes, kOnes}, "multiply(a, b)", "f64[n=3]", {1, 4, 0.25}},
      {"divide", {kOnes, {"f64[n=3]", {2, 4, 0}}}, "divide(a, b)", "f64[n=3]", {0.5, -0.5, kInf}},
      {"divide of integers, towards 0",
       {{"i32[n=3]", {7, -7, 6}}, {"i32[n=3]", {2, 2, 3}}},
       "divide(a, b)",
       "i32[n=3]",
       {3, -3, 2}},
      {"maximum", {kOnes, {"f64[n=3]", {0, 0, NAN}}}, "maximum(a, b)", "f64[n=3]", {1, 0, NAN}},
      {"minimum", {kOnes, {"f64[n=3]", {0, 0, NAN}}}, "minimum(a, b)", "f64[n=3]", {0, -2, NAN}},
      {"power", {{"f64[n=2]", {2, 9}}, {"f64[n=2]", {3, 0.5}}}, "power(a, b)", "f64[n=2]", {8, 3}},
      {"compare", {kOnes, {"f64[n=3]", {1, 1, 1}}}, "compare(a, b) {direction: LT}", "bool[n=3]", {0, 1, 1}},
      {"compare for equality",
       {kOnes, {"f64[n=3]", {1, 1, 1}}},
       "compare(a, b) {direction: EQ}",
       "bool[n=3]",
       {1, 0, 0}},
      {"compare with the other four",
       {{"f64[n=3]", {1, 2, 3}}, {"f64[n=3]", {2, 2, 2}}},
       "compare(a, b) {direction: GE}",
       "bool[n=3]",
       {0, 1, 1}},
      {"compare NE", {kOnes, kOnes}, "compare(a, b) {direction: NE}", "bool[n=3]", {0, 0, 0}},
      {"compare LE", {kOnes, kOnes}, "compare(a, b) {direction: LE}", "bool[n=3]", {1, 1, 1}},
      {"compare GT", {kOnes, kOnes}, "compare(a, b) {direction: GT}", "bool[n=3]", {0, 0, 0}},
      {"negate", {kOnes}, "negate(a)", "f64[n=3]", {-1, 2, -0.5}},
      {"abs", {kOnes}, "abs(a)", "f64[n=3]", {1, 2, 0.5}},
      {"exp", {{"f64[n=2]", {0, 1}}}, "exp(a)", "f64[n=2]", {1, M_E}},
      {"log", {{"f64[n=2]", {1, 0}}}, "log(a)", "f64[n=2]", {0, -kInf}},
      {"sqrt", {{"f64[n=2]", {4, 2}}}, "sqrt(a)", "f64[n=2]", {2, M_SQRT2}},
      {"rsqrt", {{"f64[n=2]", {4, 0.25}}}, "rsqrt(a)", "f64[n=2]", {0.5, 2}},
      {"tanh", {{"f64[n=2]", {0, kInf}}}, "tanh(a)", "f64[n=2]", {0, 1}},
      {"erf", {{"f64[n=2]", {0, -kInf}}}, "erf(a)", "f64[n=2]", {0, -1}},
      {"sine", {{"f64[n=2]", {0, M_PI_2}}}, "sine(a)", "f64[n=2]", {0, 1}},
      {"cosine", {{"f64[n=2]", {0, M_PI}}}, "cosine(a)", "f64[n=2]", {1, -1}},
      {"logistic", {{"f64[n=3]", {0, kInf, -kInf}}}, "logistic(a)", "f64[n=3]", {0.5, 1, 0}},
      {"floor", {{"f64[n=2]", {1.5, -1.5}}}, "floor(a)", "f64[n=2]", {1, -2}},
      {"sign", {{"f64[n=3]", {3, -0.5, 0}}}, "sign(a)", "f64[n=3]", {1, -1, 0}},
      {"convert to a narrower float, ties to even",
       {{"f64[n=3]", {1 + 0x1p-8, 1 + 0x1p-7, 1 + 3 * 0x1p-8}}},
       "convert(a) {dtype: 'bf16'}",
       "bf16[n=3]",
       {1, 1 + 0x1p-7, 1 + 0x1p-6}},
      {"convert to whole numbers, towards 0",
       {{"f64[n=2]", {1.9, -1.9}}},
       "convert(a) {dtype: 'i32'}",
       "i32[n=2]",
       {1, -1}},
      {"convert to truth", {{"f64[n=2]", {0.25, 0}}}, "convert(a) {dtype: 'bool'}", "bool[n=2]", {1, 0}},
      {"select",
       {{"bool[n=2]", {1, 0}}, {"f64[n=2]", {1, 2}}, {"f64[n=2]", {3, 4}}},
       "select(a, b, c)",
       "f64[n=2]",
       {1, 4}},
      {"broadcast to leading axes",
       {kOnes},
       "broadcast(a) {type: 'f64[m=2, n=3]' axes: 1}",
       "f64[m=2, n=3]",
       {1, -2, 0.5, 1, -2, 0.5}},
      {"broadcast to trailing axes",
       {{"f64[n=2]", {1, 2}}},
       "broadcast(a) {type: 'f64[n=2, k=2]' axes: 0}",
       "f64[n=2, k=2]",
       {1, 1, 2, 2}},
      {"reshape", {kTwoByThree}, "reshape(a) {type: 'f64[m=3, n=2]'}", "f64[m=3, n=2]", {1, 2, 3, 4, 5, 6}},
      {"transpose",
       {kTwoByThree},
       "transpose(a) {permutation: 1 permutation: 0}",
       "f64[n=3, m=2]",
       {1, 4, 2, 5, 3, 6}},
      {"slice", {kTwoByThree}, "slice(a) {axis: 'n' start: 1 size: 2}", "f64[m=2, n=2]", {2, 3, 5, 6}},
      {"concat",
       {kTwoByThree, {"f64[m=2, n=1]", {8, 9}}},
       "concat(a, b) {axis: 1}",
       "f64[m=2, n=4]",
       {1, 2, 3, 8, 4, 5, 6, 9}},
      {"pad, before, after and between",
       {{"f64[n=2]", {1, 2}}},
       "pad(a) {low: 1 high: 2 interior: 1 value: 9}",
       "f64[n=6]",
       {9, 1, 9, 2, 9, 9}},
      {"reverse", {kTwoByThree}, "reverse(a) {axis: 1}", "f64[m=2, n=3]", {3, 2, 1, 6, 5, 4}},
      {"reduce to a sum", {kTwoByThree}, "reduce(a) {kind: SUM axes: 0}", "f64[n=3]", {5, 7, 9}},
      {"reduce to a maximum", {kTwoByThree}, "reduce(a) {kind: MAX axes: 1}", "f64[m=2]", {3, 6}},
      {"reduce to a minimum over all", {kTwoByThree}, "reduce(a) {kind: MIN axes: 0 axes: 1}", "f64[]", {1}},
      {"dot", {kTwoByThree, kOnes}, "dot(a, b) {lhs_contract: 1 rhs_contract: 0}", "f64[m=2]", {-1.5, -3}},
      {"dot with batch axes and axes in any order",
       {{"f64[b=2, m=1, k=2]", {1, 2, 3, 4}}, {"f64[k=2, n=2, b=2]", {1, 10, 2, 20, 3, 30, 4, 40}}},
       "dot(a, b) {lhs_batch: 0 rhs_batch: 2 lhs_contract: 2 rhs_contract: 0}",
       "f64[b=2, m=1, n=2]",
       {7, 10, 150, 220}},
      {"dot contracting two axes",
       {{"f64[m=1, k=2, l=2]", {1, 2, 3, 4}}, {"f64[l=2, k=2]", {1, 2, 3, 4}}},
       "dot(a, b) {lhs_contract: 1 lhs_contract: 2 rhs_contract: 1 rhs_contract: 0}",
       "f64[m=1]",
       {1 + 6 + 6 + 16}},
      {"gather rows",
       {kTwoByThree, {"i32[k=3]", {1, 0, 1}}},
       "gather(a, b) {}",
       "f64[k=3, n=3]",
       {4, 5, 6, 1, 2, 3, 4, 5, 6}},
      {"gather along the last axis, row by row",
       {kTwoByThree, {"i32[m=2, k=1]", {2, 0}}},
       "gather(a, b) {axis: 1}",
       "f64[m=2, k=1]",
       {3, 4}},
      {"top_k, ties by place", {{"f64[n=4]", {2, 5, 2, 7}}}, "top_k(a) {k: 3}", "i32[top=3]", {3, 1, 0}},
      {"conv, causal and depthwise",
       {{"f64[b=1, t=3, c=2]", {1, 10, 2, 20, 3, 30}}, {"f64[k=2, one=1, c=2]", {1, 1, 2, 3}}},
       "conv(a, b) {strides: 1 low: 1 high: 0 groups: 2}",
       "f64[b=1, t=3, c=2]",
       {2, 30, 5, 70, 8, 110}},
      {"conv in two dimensions and steps",
       {{"f64[b=1, h=2, w=4, c=1]", {1, 2, 3, 4, 5, 6, 7, 8}},
        {"f64[h=2, w=2, c=1, o=1]", {1, 10, 100, 1000}}},
       "conv(a, b) {strides: 1 strides: 2 low: 0 low: 0 high: 0 high: 0}",
       "f64[b=1, h=1, w=2, o=1]",
       {6521, 8743}},
      {"scan, elementwise",
       {{"f64[b=1, n=1]", {1}}, {"f64[b=1, t=3, n=1]", {2, 0, 1}}, {"f64[b=1, t=3, n=1]", {1, 5, 4}}},
       "scan(a, b, c) {}",
       "f64[b=1, t=3, n=1]",
       {3, 5, 9}},
      {"scan with matrices",
       {{"f64[b=1, m=1, n=2]", {1, 2}},
        {"f64[b=1, t=1, k=2, n=2]", {1, 2, 3, 4}},
        {"f64[b=1, t=1, m=1, n=2]", {10, 20}}},
       "scan(a, b, c) {product: MATRIX}",
       "f64[b=1, t=1, m=1, n=2]",
       {17, 30}},
  };
  return *cases;
}

bool Equal(double want, double got) {
  if (std::isnan(want)) return std::isnan(got);
  return want == got ||
         std::fabs(want - got) <= 4 * std::numeric_limits<double>::epsilon() * std::fabs(want) ||
         (want == 0 && std::fabs(got) < 1e-15);
}

TEST(Primitives, MeanWhatTheTableSays) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.name);
    const absl::StatusOr<Tensor> y = Value(c.inputs, c.line);
    ASSERT_TRUE(y.ok()) << y.status();
    ASSERT_EQ(y->values().size(), c.want.size());
    for (size_t i = 0; i < c.want.size(); ++i)
      EXPECT_TRUE(Equal(c.want[i], y->values()[i])) << i << ": " << y->values()[i];
    const absl::StatusOr<Graph> graph = ParseGraph(GraphText(c.inputs, c.line));
    EXPECT_EQ(Text(graph->node(graph->outputs()[0].second).type), c.type);
    EXPECT_EQ(Text(*ParseGraph(Text(*graph))), Text(*graph));
  }
}

TEST(Primitives, AllStandInTheTable) {
  std::set<absl::string_view> known = {"input", "param", "opaque"};  // tested below
  for (const Case& c : Cases()) known.insert(absl::string_view(c.line).substr(0, c.line.find('(')));
  for (const OpInfo& info : AllOps()) {
    EXPECT_TRUE(info.composite != nullptr || known.contains(info.name)) << info.name;
  }
}

TEST(Primitives, ParamIsTheParametersValue) {
  const absl::StatusOr<Graph> graph = ParseGraph(R"(graph t(a: f64[n=2]) -> (y: y) {
  w = param() @w
  y = dot(a, w) {lhs_contract: 0 rhs_contract: 0}
}
params {
  @w: f64[n=2 -> m=1] in_out = fill(3: f64[2, 1])
}
)");
  ASSERT_TRUE(graph.ok()) << graph.status();
  const RandomTensors reader(1);
  const auto out = Evaluate(*graph, StoredParams(reader), {{"a", Tensor(DType::kF64, {2}, {1, 2})}});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(out->at("y").values(), std::vector<double>{9});
}

TEST(Primitives, EachResultIsRoundedToItsDtype) {
  const absl::StatusOr<Tensor> y = Value({{"f32[n=1]", {1}}, {"f32[n=1]", {0x1p-30}}}, "add(a, b)");
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_EQ(y->values()[0], 1);
  const absl::StatusOr<Tensor> wide = Value({{"f64[n=1]", {1}}, {"f64[n=1]", {0x1p-30}}}, "add(a, b)");
  EXPECT_EQ(wide->values()[0], 1 + 0x1p-30);
}

TEST(Primitives, OpaqueOpsAreRefusedByName) {
  const absl::StatusOr<Tensor> y =
      Value({kOnes}, "opaque(a) {domain: 'ai.onnx' op: 'NonZero' type: 'f64[n=3]'}");
  EXPECT_EQ(DiagnosticOf(y.status())->code, 1903);
  EXPECT_THAT(DiagnosticOf(y.status())->message, HasSubstr("ai.onnx.NonZero"));
}

TEST(Primitives, ComplexNumbersAreRefused) {
  const absl::StatusOr<Tensor> y = Value({}, "constant() {type: 'c64[n=3]' values: 7}");
  EXPECT_EQ(DiagnosticOf(y.status())->code, 1903);
}

TEST(Primitives, PlacesOutOfRangeAreNamed) {
  for (double place : {3.0, -1.0}) {
    const absl::StatusOr<Tensor> y =
        Value({{"f64[vocab=3, n=1]", {1, 2, 3}}, {"i32[k=1]", {place}}}, "gather(a, b) {}");
    EXPECT_EQ(DiagnosticOf(y.status())->code, 1901);
    EXPECT_THAT(DiagnosticOf(y.status())->message, HasSubstr("vocab=3"));
  }
}

TEST(Primitives, WhatASymbolHidIsFoundWhenItHasASize) {
  for (const char* line : {"slice(a) {axis: 'n' start: 1 size: 2}",
                           "slice(a) {axis: 'n' start: 9000000000000000000 size: 1}", "top_k(a) {k: 3}"}) {
    const absl::StatusOr<Tensor> y = Value({{"f64[n]", {1, 2}}}, line);
    ASSERT_FALSE(y.ok()) << line;
    EXPECT_EQ(DiagnosticOf(y.status())->code, 1901) << line;
  }
}

// What does not fit is refused where a graph is made, with the reason.
TEST(Primitives, MisfitsAreRefused) {
  const std::vector<std::tuple<std::vector<Given>, std::string, std::string>> cases = {
      {{kOnes, kTwoByThree}, "multiply(a, b)", "unequal axes"},
      {{kOnes, {"f32[n=3]", {1, 2, 3}}}, "multiply(a, b)", "unequal dtypes"},
      {{{"i32[n=1]", {1}}}, "exp(a)", "not of floating type"},
      {{kOnes, kOnes}, "compare(a, b) {}", "has a direction"},
      {{kOnes, kOnes, kOnes}, "select(a, b, c)", "where"},
      {{kOnes}, "convert(a) {dtype: 'f33'}", "no dtype"},
      {{}, "constant() {type: 'f64[n=3]' values: 1 values: 2}", "2 values"},
      {{}, "constant() {type: 'f64[n=3' values: 1}", "type"},
      {{}, "constant() {type: 'f64[n=9000000000000000000, m=9]' values: 1}", "too many elements"},
      {{}, "iota() {type: 'i32[n=3]' axis: 1}", "no axis 1"},
      {{kOnes}, "broadcast(a) {type: 'f64[m=2, n=3]' axes: 0}", "does not spread"},
      {{kTwoByThree}, "broadcast(a) {type: 'f64[m=2, n=3]' axes: 1 axes: 0}", "ascending"},
      {{kTwoByThree}, "reshape(a) {type: 'f64[m=5]'}", "does not reshape"},
      {{kTwoByThree}, "transpose(a) {permutation: 0 permutation: 0}", "stands twice"},
      {{kTwoByThree}, "transpose(a) {permutation: 0}", "each axis"},
      {{kTwoByThree}, "slice(a) {axis: 'n' start: 2 size: 2}", "beyond"},
      {{kTwoByThree, kOnes}, "concat(a, b) {axis: 0}", "does not join"},
      {{kOnes}, "pad(a) {low: -1}", "negative"},
      {{kOnes}, "reverse(a) {axis: -1}", "no axis -1"},
      {{kOnes}, "reduce(a) {axes: 0}", "has a kind"},
      {{kOnes}, "reduce(a) {kind: SUM axes: 1}", "no axis 1"},
      {{kOnes, kTwoByThree}, "dot(a, b) {lhs_contract: 0 rhs_contract: 0}", "no product"},
      {{kOnes, kOnes}, "gather(a, b) {}", "no places"},
      {{kOnes}, "top_k(a) {k: 4}", "4 largest"},
      {{kTwoByThree, kTwoByThree}, "conv(a, b) {}", "no convolution"},
      {{{"f64[b=1, t=2, c=1]", {1, 2}}, {"f64[k=3, i=1, c=1]", {1, 2, 3}}},
       "conv(a, b) {strides: 1 low: 0 high: 0}",
       "kernel of 3"},
      {{kOnes, kOnes, kOnes}, "scan(a, b, c) {}", "no recurrence"},
      {{kOnes}, "add(a)", "takes 2 operands, not 1"},
      {{}, "concat() {}", "takes 1 or more operands, not 0"},
  };
  for (const auto& [inputs, line, reason] : cases) {
    const absl::StatusOr<Graph> graph = ParseGraph(GraphText(inputs, line));
    ASSERT_FALSE(graph.ok()) << line;
    EXPECT_EQ(DiagnosticOf(graph.status())->code, 1501) << line;
    EXPECT_THAT(DiagnosticOf(graph.status())->message, HasSubstr(reason)) << line;
  }
}

// ---- inputs

struct Refused {
  NamedTensors inputs;
  std::string reason;
};

TEST(Inputs, ThatDoNotFitAreRefused) {
  const std::string text = "graph t(a: i32[batch, seq], b: f64[batch]) -> (y: y) {\n  y = abs(b)\n}\n";
  const absl::StatusOr<Graph> graph = ParseGraph(text);
  ASSERT_TRUE(graph.ok()) << graph.status();
  const Tensor a(DType::kI64, {2, 1}, {1, 2}), b(DType::kF64, {2}, {1, 2});
  const std::vector<Refused> cases = {
      {{{"a", a}}, "missing"},
      {{{"a", a}, {"b", b}, {"c", b}}, "no such input"},
      {{{"a", b}, {"b", b}}, "not i32[batch, seq]"},
      {{{"a", Tensor(DType::kI32, {3, 1}, {1, 2, 3})}, {"b", b}}, "batch is 2 here and 3 elsewhere"},
      {{{"a", Tensor(DType::kI32, {2, 0}, {})}, {"b", b}}, "empty"},
      {{{"a", Tensor(DType::kF32, {2, 1}, {1, 2})}, {"b", b}}, "whole numbers"},
      {{{"a", Tensor(DType::kI64, {2, 1}, {1, 0x1p40})}, {"b", b}}, "beyond i32"},
      {{{"a", a}, {"b", Tensor(DType::kI32, {2}, {1, 2})}}, "not of floating type"},
      {{{"a", a}, {"b", b}, {"positions", b}}, "not [2, 1]"},
      {{{"a", a}, {"b", b}, {"positions", Tensor(DType::kI32, {2, 1}, {0, -1})}}, "below 0"},
  };
  const RandomTensors reader(1);
  EXPECT_TRUE(Evaluate(*graph, StoredParams(reader), {{"a", a}, {"b", b}}).ok());
  for (const Refused& c : cases) {
    const auto out = Evaluate(*graph, StoredParams(reader), c.inputs);
    ASSERT_FALSE(out.ok()) << c.reason;
    EXPECT_EQ(DiagnosticOf(out.status())->code, 1901) << c.reason;
    EXPECT_THAT(DiagnosticOf(out.status())->message, HasSubstr(c.reason));
  }
}

TEST(Options, ThatMakeNoSenseAreRefused) {
  const absl::StatusOr<Graph> graph = ParseGraph(GraphText({kOnes}, "abs(a)"));
  const RandomTensors reader(1);
  const StoredParams params(reader);
  for (const EvalOptions& options :
       {EvalOptions{.dtype = DType::kI32}, EvalOptions{.unrounded_weights = true},
        EvalOptions{.dtype = DType::kF32, .unrounded_weights = true}}) {
    const auto made = Evaluation::Make(*graph, params, options);
    EXPECT_EQ(DiagnosticOf(made.status())->code, 1901);
  }
}

TEST(Evaluation, RefusesWhatIsTooLarge) {
  const absl::StatusOr<Tensor> y = Value({kOnes}, "broadcast(a) {type: 'f64[m=1000000000, n=3]' axes: 1}");
  EXPECT_EQ(DiagnosticOf(y.status())->code, 1902);
  const absl::StatusOr<Graph> graph = ParseGraph(
      "graph t(a: f64[n=1]) -> (y: w) {\n  w = param() @w\n}\nparams {\n  @w: f64[m=9000000000] = fill(1: "
      "f64[9000000000])\n}\n");
  ASSERT_TRUE(graph.ok()) << graph.status();
  const RandomTensors reader(1);
  const auto out = Evaluate(*graph, StoredParams(reader), {{"a", Tensor(DType::kF64, {1}, {1})}});
  EXPECT_EQ(DiagnosticOf(out.status())->code, 1902);
}

TEST(Unrounded, ProgramsLoseNothingButTheirSources) {
  const WeightPtr source = Source("w", DType::kBF16, {2, 2});
  const WeightPtr scaled = Scale(Transpose(source, {1, 0}), 1.0 / 3);
  Param param;
  param.type = ParamType{DType::kF64, {{"m", 2, 2}, {"n", 2, 2}}};
  const RandomTensors reader(5);
  const StoredParams params(reader);
  param.program = source;
  const std::vector<double> stored = params.Value(param)->values();
  param.program = scaled;
  const std::vector<double> rounded = params.Value(param)->values();
  param.program = Unrounded(scaled);
  const Tensor exact = *params.Value(param);
  EXPECT_EQ(exact.dtype(), DType::kF64);
  EXPECT_EQ(exact.values()[1], stored[2] * (1.0 / 3));
  EXPECT_NE(exact.values(), rounded);
  EXPECT_EQ(exact.Converted(DType::kBF16).values(), rounded);
}

TEST(RandomTensors, DependOnNameExtentsAndSeedAlone) {
  const auto value = [](uint64_t seed, const WeightPtr& source) {
    Param param;
    param.program = source;
    const RandomTensors reader(seed);
    return StoredParams(reader).Value(param)->Converted(DType::kBF16).values();
  };
  const std::vector<double> x = value(1, Source("w", DType::kF64, {3}));
  EXPECT_EQ(x, value(1, Source("w", DType::kBF16, {3})));
  EXPECT_NE(x, value(2, Source("w", DType::kF64, {3})));
  EXPECT_NE(x, value(1, Source("v", DType::kF64, {3})));
  for (double element : x) EXPECT_TRUE(std::fabs(element) >= 0x1p-8 && std::fabs(element) <= 1) << element;
}

}  // namespace
}  // namespace twinforge
