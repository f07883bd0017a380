// Turning back, judged by labels: sources hold their own indices, the twin is evaluated
// whole by the oracle, and what is in it is counted element by element.
#include "weights/invert.h"

#include <gtest/gtest.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "tests/support/random_weights.h"
#include "weights/build.h"
#include "weights/index_set.h"
#include "weights/text.h"

namespace twinforge {
namespace {

WeightPtr Parse(absl::string_view text) {
  absl::StatusOr<WeightPtr> w = ParseWeight(text);
  EXPECT_TRUE(w.ok()) << w.status() << "\n" << text;
  return w.ok() ? *w : nullptr;
}

// One source and what the ledger must say about it.
struct Case {
  const char* what;
  std::vector<std::pair<const char*, const char*>> twin;  // name, program over "s" and "r"
  Fate fate;
  const char* says;  // the inverse of "s", or the reason why there is none
};

std::vector<Case> Cases() {
  const char* s = R"(source("s": bf16[6, 4]))";
  static const std::string padded = absl::StrCat("take(", s, ", 0, [0:3 fill:1 3:6 fill:1])");
  static const std::string turned = absl::StrCat("transpose(", s, ", [1, 0])");
  static const std::string heads = absl::StrCat("reshape(", s, ", [2, 3, 4])");
  static const std::string upper = absl::StrCat("take(", s, ", 0, [0:2])");
  static const std::string lower = absl::StrCat("take(", s, ", 0, [2:6])");
  static const std::string left = absl::StrCat("take(", s, ", 1, [0:3])");
  static const std::string twice = absl::StrCat("take(", s, ", 0, [0:3 0:3 3:6 3:6])");
  static const std::string wide = absl::StrCat("cast(", s, ", f32)");
  static const std::string narrow = absl::StrCat("cast(", s, ", f8_e4m3)");
  static const std::string doubled = absl::StrCat("mul(", s, ", fill(2: f64[]))");
  static const std::string shifted = absl::StrCat("add(", s, ", fill(1: f64[]))");
  static const std::string wiped = absl::StrCat("mul(", s, ", fill(0: f64[]))");
  static const std::string sparse = absl::StrCat("keep(", s, ", 1, 2 of 4)");
  static const std::string merged = absl::StrCat("add(", s, R"(, source("r": bf16[6, 4])))");
  static const std::string highest = absl::StrCat("stat(max, ", s, ", [0, 1])");
  return {
      {"untouched", {{"t", s}}, Fate::kMoved, R"(source("t": bf16[6, 4]))"},
      {"padded heads",
       {{"t", padded.c_str()}},
       Fate::kMoved,
       R"(take(source("t": bf16[8, 4]), 0, [0:3 4:7]))"},
      {"transposed", {{"t", turned.c_str()}}, Fate::kMoved, R"(transpose(source("t": bf16[4, 6]), [1, 0]))"},
      {"reshaped", {{"t", heads.c_str()}}, Fate::kMoved, R"(reshape(source("t": bf16[2, 3, 4]), [6, 4]))"},
      {"split over two",
       {{"t", lower.c_str()}, {"u", upper.c_str()}},
       Fate::kMoved,
       R"(concat(0, source("u": bf16[2, 4]), source("t": bf16[4, 4])))"},
      {"whole and in part: the whole serves",
       {{"t", upper.c_str()}, {"u", s}},
       Fate::kMoved,
       R"(source("u": bf16[6, 4]))"},
      {"a copy of each head",
       {{"t", twice.c_str()}},
       Fate::kMoved,
       R"(take(source("t": bf16[12, 4]), 0, [0:3 6:9]))"},
      {"widened", {{"t", wide.c_str()}}, Fate::kMoved, R"(cast(source("t": f32[6, 4]), bf16))"},
      {"narrowed", {{"t", narrow.c_str()}}, Fate::kRounded, R"(cast(source("t": f8_e4m3[6, 4]), bf16))"},
      {"narrowed here, whole there",
       {{"t", narrow.c_str()}, {"u", wide.c_str()}},
       Fate::kMoved,
       R"(cast(source("u": f32[6, 4]), bf16))"},
      {"scaled",
       {{"t", doubled.c_str()}},
       Fate::kRescaled,
       R"(div(source("t": bf16[6, 4]), fill(2: f64[])))"},
      {"shifted",
       {{"t", shifted.c_str()}},
       Fate::kRescaled,
       R"(sub(source("t": bf16[6, 4]), fill(1: f64[])))"},
      {"times zero",
       {{"t", wiped.c_str()}},
       Fate::kConsumed,
       R"(it reaches "t" only through arithmetic that cannot be undone)"},
      {"a column dropped",
       {{"t", left.c_str()}},
       Fate::kPartial,
       "6 of 24 elements are in no tensor of the twin"},
      {"overlapping parts",
       {{"t", left.c_str()}, {"u", upper.c_str()}},
       Fate::kPartial,
       "4 of 24 elements are in no tensor of the twin"},
      {"sparsified",
       {{"t", sparse.c_str()}},
       Fate::kConsumed,
       R"(it reaches "t" only through a function of groups)"},
      {"measured", {{"t", highest.c_str()}}, Fate::kConsumed, R"(it reaches "t" only through a statistic)"},
      {"merged",
       {{"t", merged.c_str()}},
       Fate::kConsumed,
       R"(it reaches "t" only through arithmetic with another tensor)"},
      {"unread", {{"t", R"(source("r": bf16[6, 4]))"}}, Fate::kUnused, "no tensor of the twin reads it"},
  };
}

TEST(Invert, Table) {
  for (const Case& one : Cases()) {
    SCOPED_TRACE(one.what);
    std::vector<NamedProgram> twin;
    for (const auto& [name, text] : one.twin) twin.push_back({name, Parse(text)});
    const std::vector<LedgerRow> rows = Invert(twin, {Source("s", DType::kBF16, {6, 4})});
    ASSERT_EQ(rows.size(), 1u);
    EXPECT_EQ(FateName(rows[0].fate), FateName(one.fate));
    EXPECT_EQ(rows[0].inverse != nullptr ? Text(rows[0].inverse) : rows[0].reason, one.says);
    EXPECT_EQ(rows[0].inverse == nullptr, !rows[0].reason.empty());
  }
}

TEST(Invert, NamesEveryConsumerOnceInOrder) {
  const WeightPtr s = Source("s", DType::kF32, {4});
  const std::vector<LedgerRow> rows = Invert(
      {{"z", s}, {"b", Concat(0, {s, s})}, {"a", Contract(Reshape(s, {1, 4}), Reshape(s, {4, 1}))}}, {s});
  EXPECT_EQ(rows[0].consumers, (std::vector<std::string>{"a", "b", "z"}));
}

// A constant that differs from place to place, and a twin that padded around it.
TEST(Invert, DividesByConstantsWhereTheyStood) {
  const WeightPtr s = Source("s", DType::kF32, {4, 3});
  const WeightPtr scale = Concat(0, {Fill(2, DType::kF32, {2, 1}), Fill(4, DType::kF32, {3, 1})});
  const WeightPtr t =
      Map(MapFn::kMul, Take(s, 0, IndexMap({{0, 1, 2}, {Run::kFill, 0, 1}, {2, 1, 2}})), scale);
  const std::vector<LedgerRow> rows = Invert({{"t", t}}, {s});
  ASSERT_EQ(rows[0].fate, Fate::kRescaled);
  NaiveTensor stored(DType::kF32, {4, 3});
  for (int64_t i = 0; i < 12; ++i) FromDouble(DType::kF32, 1.0 + i, stored.at(i));
  const NaiveTensor twin = NaiveValue(t, {{"s", stored}});
  EXPECT_EQ(BitDifference(stored, NaiveValue(rows[0].inverse, {{"t", twin}})), "");
}

// Where a cut goes through the middle of a row, only part of the constant is divided by.
TEST(Invert, DividesEachPieceByItsPartOfTheConstant) {
  const WeightPtr s = Source("s", DType::kF32, {4, 3});
  const WeightPtr scale = Concat(0, {Fill(2, DType::kF32, {2, 1}), Fill(4, DType::kF32, {2, 1})});
  const WeightPtr flat = Reshape(Map(MapFn::kMul, s, scale), {12});
  const std::vector<NamedProgram> twin = {{"t", Slice(flat, 0, 0, 7)}, {"u", Slice(flat, 0, 7, 5)}};
  const std::vector<LedgerRow> rows = Invert(twin, {s});
  ASSERT_EQ(rows[0].fate, Fate::kRescaled);
  NaiveTensor stored(DType::kF32, {4, 3});
  for (int64_t i = 0; i < 12; ++i) FromDouble(DType::kF32, 1.0 + i, stored.at(i));
  NaiveTensors values;
  for (const NamedProgram& one : twin) values[one.name] = NaiveValue(one.program, {{"s", stored}});
  EXPECT_EQ(BitDifference(stored, NaiveValue(rows[0].inverse, values)), "") << Text(rows[0].inverse);
}

// A norm's scale folded into a kernel: lost with the scale, back with it.
TEST(Invert, UndoesArithmeticWithATensorThatTheTwinHoldsToo) {
  const WeightPtr kernel = Source("kernel", DType::kF32, {6, 4});
  const WeightPtr scale = Source("scale", DType::kF32, {4});
  const WeightPtr other = Source("other", DType::kF32, {6, 1});
  const WeightPtr folded = Pad(Map(MapFn::kMul, kernel, scale), 0, 2);
  const WeightPtr twice = Map(MapFn::kAdd, other, Slice(Map(MapFn::kMul, kernel, scale), 1, 0, 1));
  EXPECT_EQ(Invert({{"t", folded}}, {kernel})[0].fate, Fate::kConsumed);
  EXPECT_EQ(Ledger({{"t", folded}}, {kernel})[0].fate, Fate::kConsumed);
  // `other` waits for `kernel`, which waits for `scale`, which comes last.
  const std::vector<NamedProgram> twin = {{"t", folded}, {"u", twice}, {"v", Scale(scale, 2)}};
  const std::vector<LedgerRow> rows = Invert(twin, {kernel, scale, other});
  NaiveTensors sources;
  for (const WeightPtr& w : {kernel, scale, other}) {
    NaiveTensor& tensor = sources[w->source_name()] = NaiveTensor(w->dtype(), w->shape());
    for (int64_t i = 0; i < w->element_count(); ++i) {  // powers of two, so that nothing rounds
      FromDouble(w->dtype(), w == scale ? static_cast<double>(1 << i) : 1.0 + i, tensor.at(i));
    }
  }
  NaiveTensors values;
  for (const NamedProgram& one : twin) values[one.name] = NaiveValue(one.program, sources);
  for (const LedgerRow& row : rows) {
    ASSERT_EQ(row.fate, Fate::kRescaled) << row.source << ": " << row.reason;
    EXPECT_EQ(BitDifference(sources.at(row.source), NaiveValue(row.inverse, values)), "")
        << Text(row.inverse);
  }
}

// Experts lie stacked in the twin and apart in the source, and the other way round.
TEST(Invert, UnstacksAndRestacksExperts) {
  std::vector<WeightPtr> experts;
  for (int i = 0; i < 64; ++i) experts.push_back(Source(absl::StrCat("e", i), DType::kBF16, {8, 4}));
  const WeightPtr stacked = Stack(0, experts);
  const std::vector<LedgerRow> apart = Invert({{"t", stacked}}, experts);
  EXPECT_EQ(apart[5].inverse, Index(Source("t", DType::kBF16, {64, 8, 4}), 0, 5));
  std::vector<NamedProgram> split;
  std::vector<WeightPtr> named;
  const WeightPtr whole = Source("w", DType::kBF16, {64, 8, 4});
  for (int i = 0; i < 64; ++i) {
    split.push_back({absl::StrCat("e", i), Index(whole, 0, i)});
    named.push_back(experts[i]);
  }
  const std::vector<LedgerRow> back = Invert(split, {whole});
  EXPECT_EQ(back[0].fate, Fate::kMoved);
  EXPECT_EQ(back[0].inverse, Stack(0, named));
}

// ---- laws

struct Twin {
  std::vector<NamedProgram> programs;
  NaiveTensors values;
};

Twin MakeTwin(Random& random, const RandomOptions& options, NaiveTensors& sources) {
  Twin twin;
  const int64_t count = Pick(random, 1, 3);
  for (int64_t i = 0; i < count; ++i) {
    const RandomProgram made = MakeRandomProgram(random, options, sources);
    const std::string name = absl::StrCat("t", i);
    twin.programs.push_back({name, made.program});
    twin.values[name] = made.value;
  }
  return twin;
}

std::vector<WeightPtr> Nodes(const NaiveTensors& sources) {
  std::vector<WeightPtr> nodes;
  for (const auto& [name, tensor] : sources) nodes.push_back(Source(name, tensor.dtype, tensor.shape));
  return nodes;
}

std::string Describe(const Twin& twin) {
  std::string text;
  for (const NamedProgram& one : twin.programs)
    absl::StrAppend(&text, one.name, " = ", Text(one.program), "\n");
  return text;
}

// Sources with labels that no fill and no other source has.
NaiveTensors Relabelled(const NaiveTensors& sources) {
  NaiveTensors labelled = sources;
  double next = 1000;
  for (auto& [name, tensor] : labelled) {
    for (int64_t i = 0; i < ElementCount(tensor.shape); ++i) FromDouble(tensor.dtype, next++, tensor.at(i));
  }
  return labelled;
}

// Moves only: the claim is exact in both directions. A source comes back if and only if
// each of its labels is somewhere in the twin.
TEST(InvertLaws, CoverageIsWhatTheLabelsSay) {
  Random random(21);
  RandomOptions options;
  options.only_moves = true;
  options.labelled = true;
  options.dtypes = {DType::kI64};
  options.verbs = 6;
  options.max_elements = 200;
  std::map<Fate, int> seen;
  for (int trial = 0; trial < 6000; ++trial) {
    NaiveTensors drawn;
    Twin twin = MakeTwin(random, options, drawn);
    const NaiveTensors sources = Relabelled(drawn);
    std::set<int64_t> present;
    for (const NamedProgram& one : twin.programs) {
      const NaiveTensor value = twin.values[one.name] = NaiveValue(one.program, sources);
      for (int64_t i = 0; i < ElementCount(value.shape); ++i) {
        present.insert(static_cast<int64_t>(ToDouble(value.dtype, value.at(i))));
      }
    }
    for (const LedgerRow& row : Invert(twin.programs, Nodes(sources))) {
      const NaiveTensor& source = sources.at(row.source);
      int64_t missing = 0;
      for (int64_t i = 0; i < ElementCount(source.shape); ++i) {
        missing += present.count(static_cast<int64_t>(ToDouble(source.dtype, source.at(i)))) == 0;
      }
      ++seen[row.fate];
      SCOPED_TRACE(absl::StrCat("trial ", trial, ", source ", row.source, "\n", Describe(twin)));
      if (missing == 0) {
        ASSERT_EQ(FateName(row.fate), "moved") << row.reason;
        ASSERT_EQ(BitDifference(source, NaiveValue(row.inverse, twin.values)), "") << Text(row.inverse);
      } else {
        ASSERT_EQ(row.inverse, nullptr) << missing << " labels are missing";
        ASSERT_TRUE(row.fate == Fate::kPartial || row.fate == Fate::kUnused);
        if (row.fate == Fate::kPartial) {
          ASSERT_EQ(row.reason, absl::StrCat(missing, " of ", ElementCount(source.shape),
                                             " elements are in no tensor of the twin"));
        }
      }
    }
  }
  EXPECT_GT(seen[Fate::kMoved], 500);
  EXPECT_GT(seen[Fate::kPartial], 500);
}

// With casts and constants: what is called moved is so bit for bit, and what was scaled
// by powers of two comes back too.
TEST(InvertLaws, ValuesComeBack) {
  Random random(22);
  RandomOptions options;
  options.computes_back = true;
  options.labelled = true;
  options.dtypes = {DType::kF32, DType::kF64};
  options.verbs = 5;
  options.max_elements = 200;
  std::map<Fate, int> seen;
  for (int trial = 0; trial < 4000; ++trial) {
    NaiveTensors sources;
    const Twin twin = MakeTwin(random, options, sources);
    for (const LedgerRow& row : Invert(twin.programs, Nodes(sources))) {
      ++seen[row.fate];
      if (row.inverse == nullptr) continue;
      SCOPED_TRACE(absl::StrCat("trial ", trial, ", source ", row.source, "\n", Describe(twin)));
      ASSERT_EQ(BitDifference(sources.at(row.source), NaiveValue(row.inverse, twin.values)), "")
          << Text(row.inverse);
    }
  }
  EXPECT_GT(seen[Fate::kMoved], 300);
  EXPECT_GT(seen[Fate::kRescaled], 300);
  EXPECT_GT(seen[Fate::kRounded], 100);
}

// The ledger is the same rows, no inverse among them.
void ExpectLedgerSaysTheSame(const Twin& twin, const std::vector<WeightPtr>& nodes) {
  const std::vector<LedgerRow> rows = Invert(twin.programs, nodes);
  const std::vector<LedgerRow> ledger = Ledger(twin.programs, nodes);
  ASSERT_EQ(rows.size(), ledger.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].source, ledger[i].source);
    EXPECT_EQ(rows[i].fate, ledger[i].fate) << rows[i].source;
    EXPECT_EQ(rows[i].reason, ledger[i].reason);
    EXPECT_EQ(rows[i].consumers, ledger[i].consumers);
    EXPECT_EQ(ledger[i].inverse, nullptr);
  }
}

TEST(InvertLaws, LedgerIsInvertWithoutInverses) {
  Random random(24);
  for (bool computes : {false, true}) {
    RandomOptions options;
    options.computes_back = computes;
    options.labelled = true;
    options.dtypes = {DType::kF32, DType::kF64};
    options.verbs = 5;
    options.max_elements = 200;
    for (int trial = 0; trial < 2000; ++trial) {
      NaiveTensors sources;
      const Twin twin = MakeTwin(random, options, sources);
      SCOPED_TRACE(absl::StrCat("trial ", trial, "\n", Describe(twin)));
      ASSERT_NO_FATAL_FAILURE(ExpectLedgerSaysTheSame(twin, Nodes(sources)));
      if (HasFailure()) return;
    }
  }
}

// ---- sets

TEST(IndexSet, SplitsIntoProductsThatCoverTheSetOnce) {
  Random random(23);
  for (int trial = 0; trial < 2000; ++trial) {
    const std::vector<int64_t> extents = {Pick(random, 1, 4), Pick(random, 1, 4), Pick(random, 1, 4)};
    std::vector<int64_t> chosen;
    for (int64_t i = 0; i < ElementCount(extents); ++i) {
      if (Pick(random, 0, 3) != 0) chosen.push_back(i);
    }
    if (chosen.empty()) continue;
    const IndexMap flat = MapOf(chosen);
    std::vector<int> hits(chosen.size(), 0);
    for (const ProductSet& product : SplitSet(flat, extents)) {
      const IndexMap again = FlattenSets(product.axes, extents);
      ASSERT_EQ(again.size(), product.positions.size());
      for (int64_t i = 0; i < again.size(); ++i) {
        ASSERT_EQ(again.At(i), flat.At(product.positions.At(i)));
        ++hits[product.positions.At(i)];
      }
    }
    for (int hit : hits) ASSERT_EQ(hit, 1);
  }
}

TEST(IndexSet, ReachesEachIndexOnce) {
  Random random(24);
  for (int trial = 0; trial < 3000; ++trial) {
    const int64_t extent = Pick(random, 1, 12);
    const IndexMap map = RandomMap(random, extent, 20);
    const Reached reached = ReachedThrough(map, extent);
    std::set<int64_t> want;
    for (int64_t i = 0; i < map.size(); ++i) {
      if (map.At(i) != Run::kFill) want.insert(map.At(i));
    }
    ASSERT_EQ(reached.indices.size(), static_cast<int64_t>(want.size()));
    int64_t i = 0;
    for (int64_t index : want) {
      ASSERT_EQ(reached.indices.At(i), index);
      ASSERT_EQ(map.At(reached.positions.At(i)), index);
      ASSERT_EQ(CountBelow(reached.indices, index), i);
      ++i;
    }
  }
}

}  // namespace
}  // namespace twinforge
