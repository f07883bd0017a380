// Index maps against plain lists of indices.
#include "weights/index_map.h"

#include <random>

#include "gtest/gtest.h"

namespace twinforge {
namespace {

using List = std::vector<int64_t>;  // -1 is fill

List Spread(const IndexMap& map) {
  List list;
  for (const Run& run : map.runs()) {
    for (int64_t i = 0; i < run.count; ++i) list.push_back(run.is_fill() ? -1 : run.start + i * run.step);
  }
  return list;
}

IndexMap Gathered(const List& list) {
  std::vector<Run> runs;
  for (int64_t index : list) runs.push_back({.start = index, .step = index < 0 ? 0 : 1, .count = 1});
  return IndexMap(std::move(runs));
}

TEST(IndexMap, PrintsAndParsesBack) {
  for (const char* text : {
           "[]",
           "[8:16]",
           "[0:300 fill:20]",
           "[0:64:2]",
           "[0:64:2 1:64:2]",
           "[0:64:2 1:64:2] x 32",
           "[63:-1:-1]",
           "[5]",
           "[5*4]",
           "[0:64 0:64] x 4",
           "[0:16 fill:112] x 4",
           "[(0:16 fill:112) x 3 48:64 fill:624]",
           "[0:2] x 8 by 4",
           "[fill:3 0:2]",
           "[0 5:9]",
           "[9:0:-3]",
           "[1:64:2]",
           "[0*2 1*2]",
           "[0*2] x 8",
           "[0 2] x 4",
           "[0 2] x 4 by 5",
           "[(9 2) x 4 by 3 99]",
           "[6:8] x 4 by -2",
           "[fill:2 0:4 fill:2] x 3",
           "[fill:1 (0:4 fill:2) x 2 8]",
       }) {
    const absl::StatusOr<IndexMap> map = IndexMap::Parse(text);
    ASSERT_TRUE(map.ok()) << text << ": " << map.status();
    EXPECT_EQ(map->Text(), text);
  }
}

TEST(IndexMap, ParsesOtherSpellings) {
  EXPECT_EQ(IndexMap::Parse("[0:1 1:2 2:3]")->Text(), "[0:3]");
  EXPECT_EQ(IndexMap::Parse("[0:63:2]")->Text(), "[0:64:2]");
  EXPECT_EQ(IndexMap::Parse("[0:4:2]")->Text(), "[0 2]");
  EXPECT_EQ(IndexMap::Parse("[ fill:1  fill:2 ]")->Text(), "[fill:3]");
  EXPECT_EQ(IndexMap::Parse("[0:4] x 3")->Text(), "[0:12]");
  EXPECT_EQ(IndexMap::Parse("[0:4] x 3 by 0")->Text(), "[0:4 0:4 0:4]");
}

TEST(IndexMap, RefusesWhatIsNoMap) {
  struct Case {
    const char* text;
    const char* message;
  };
  for (const Case& c : std::vector<Case>{
           {"", "expected '['"},
           {"[0:4", "expected ']'"},
           {"[0:4] y", "end of the index map"},
           {"[0:4] x", "expected a number"},
           {"[0:4] x 0", "at least 1"},
           {"[4:4]", "no places"},
           {"[4:0]", "no places"},
           {"[-1]", "negative"},
           {"[0:4:0]", "step of 0"},
           {"[fill:0]", "no places"},
           {"[fill:-3]", "no places"},
           {"[0*-3]", "no places"},
           {"[99999999999999999999]", "expected a number"},
           {"[0:281474976710656:1] x 2 by 0", "more places"},
           {"[0] x 1000000000000", "more runs"},
           {"[0 2] x 1000000000000 by 1000000000", "outside any tensor"},
           {"[((0) x 2) x 2]", "group inside a group"},
           {"[(0:2) 3]", "expected 'x'"},
           {"[0] x 3 by -1", "outside any tensor"},
           {"[1*2] x 3 by -1", "outside any tensor"},
           {"[x]", "expected a number"},
       }) {
    const absl::StatusOr<IndexMap> map = IndexMap::Parse(c.text);
    ASSERT_FALSE(map.ok()) << c.text << " gave " << map->Text();
    EXPECT_NE(map.status().message().find(c.message), absl::string_view::npos)
        << c.text << ": " << map.status();
  }
}

TEST(IndexMap, SaysWhatItHolds) {
  const IndexMap map = *IndexMap::Parse("[3 fill:2 8:4:-1]");
  EXPECT_EQ(map.size(), 7);
  EXPECT_EQ(map.max_index(), 8);
  EXPECT_TRUE(map.has_fill());
  EXPECT_FALSE(map.IsIdentity(7));
  EXPECT_EQ(IndexMap::Fill(3).max_index(), -1);
  EXPECT_TRUE(IndexMap::Identity(5).IsIdentity(5));
  EXPECT_FALSE(IndexMap::Identity(5).IsIdentity(6));
  EXPECT_TRUE(IndexMap::Identity(0).IsIdentity(0));
}

TEST(IndexMap, InverseFindsTheFirstPlace) {
  EXPECT_EQ(
      IndexMap::Parse("[0:64:2 1:64:2]")->Inverse(64)->After(*IndexMap::Parse("[0:64:2 1:64:2]")).Text(),
      "[0:64]");
  EXPECT_EQ(IndexMap::Parse("[0:300 fill:20]")->Inverse(300)->Text(), "[0:300]");
  EXPECT_EQ(IndexMap::Parse("[0:16 fill:112] x 4")->Inverse(64)->Text(), "[0:16] x 4 by 128");
  EXPECT_EQ(IndexMap::Parse("[0:4 0:4]")->Inverse(4)->Text(), "[0:4]");
  EXPECT_EQ(IndexMap::Parse("[7:-1:-1]")->Inverse(8)->Text(), "[7:-1:-1]");
  EXPECT_EQ(IndexMap::Parse("[1:4]")->Inverse(4), std::nullopt);
  EXPECT_EQ(IndexMap::Parse("[0:2 3:5]")->Inverse(5), std::nullopt);
  EXPECT_EQ(IndexMap::Parse("[0:3]")->Inverse(4), std::nullopt);
}

// ---- random maps against lists

struct RandomLists {
  std::mt19937_64 random{7};

  int64_t Pick(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  }

  // Runs of all kinds into an axis of `extent`.
  List Make(int64_t extent) {
    List list;
    for (int64_t runs = Pick(0, 5); runs > 0; --runs) {
      int64_t index = Pick(0, extent - 1);
      const int64_t step = Pick(-3, 3);
      const bool fill = Pick(0, 4) == 0;
      for (int64_t count = Pick(1, 8); count > 0; --count) {
        if (index < 0 || index >= extent) break;
        list.push_back(fill ? -1 : index);
        index += step;
      }
    }
    return list;
  }

  // The list as runs cut at random places, so that normalisation has work.
  IndexMap Cut(const List& list) {
    std::vector<Run> runs;
    for (size_t i = 0; i < list.size();) {
      Run run{.start = list[i], .step = list[i] < 0 ? 0 : Pick(-2, 3), .count = 1};
      if (list[i] >= 0 && i + 1 < list.size() && list[i + 1] >= 0) run.step = list[i + 1] - list[i];
      if (run.is_fill()) run.step = 0;
      while (i + run.count < list.size() && list[i + run.count] == run.start + run.count * run.step &&
             (list[i + run.count] >= 0 || run.is_fill()) && Pick(0, 3) != 0) {
        ++run.count;
      }
      runs.push_back(run);
      if (Pick(0, 5) == 0) runs.push_back({.start = 4, .step = 7, .count = 0});
      i += run.count;
    }
    return IndexMap(std::move(runs));
  }
};

TEST(IndexMap, EqualListsHaveEqualRunsAndTexts) {
  RandomLists lists;
  for (int i = 0; i < 20000; ++i) {
    const List list = lists.Make(lists.Pick(1, 20));
    const IndexMap map = lists.Cut(list);
    ASSERT_EQ(Spread(map), list);
    ASSERT_EQ(map, Gathered(list)) << map.Text() << " and " << Gathered(list).Text();
    ASSERT_EQ(map.size(), static_cast<int64_t>(list.size()));
    const absl::StatusOr<IndexMap> parsed = IndexMap::Parse(map.Text());
    ASSERT_TRUE(parsed.ok()) << map.Text() << parsed.status();
    ASSERT_EQ(*parsed, map) << map.Text();
    for (size_t at = 0; at < list.size(); ++at) ASSERT_EQ(map.At(at), list[at]);
  }
}

TEST(IndexMap, OperationsAreThoseOfLists) {
  RandomLists lists;
  for (int i = 0; i < 20000; ++i) {
    const List inner = lists.Make(20);
    const IndexMap map = lists.Cut(inner);
    // Range
    const int64_t begin = lists.Pick(0, inner.size());
    const int64_t count = lists.Pick(0, static_cast<int64_t>(inner.size()) - begin);
    ASSERT_EQ(map.Range(begin, count), Gathered(List(inner.begin() + begin, inner.begin() + begin + count)));
    // After
    if (!inner.empty()) {
      const List outer = lists.Make(inner.size());
      List composed;
      for (int64_t index : outer) composed.push_back(index < 0 ? -1 : inner[index]);
      ASSERT_EQ(Gathered(outer).After(map), Gathered(composed));
    }
    // Tile
    const int64_t copies = lists.Pick(0, 4);
    const int64_t stride = lists.Pick(0, 1) == 0 ? map.max_index() + 1 : lists.Pick(0, 30);
    List tiled;
    for (int64_t copy = 0; copy < copies; ++copy) {
      for (int64_t index : inner) tiled.push_back(index < 0 ? -1 : index + copy * stride);
    }
    ASSERT_EQ(IndexMap::Tile(map, copies, stride), Gathered(tiled));
    ASSERT_EQ(*IndexMap::Parse(Gathered(tiled).Text()), Gathered(tiled)) << Gathered(tiled).Text();
    // Refine and Coarsen
    const int64_t block = lists.Pick(1, 4);
    List refined;
    for (int64_t index : inner) {
      for (int64_t k = 0; k < block; ++k) refined.push_back(index < 0 ? -1 : index * block + k);
    }
    ASSERT_EQ(map.Refine(block), Gathered(refined));
    ASSERT_EQ(map.Refine(block).Coarsen(block), map);
  }
}

TEST(IndexMap, CoarsenRefusesACutBlock) {
  RandomLists lists;
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    const List list = lists.Make(8);
    const int64_t block = lists.Pick(2, 3);
    const std::optional<IndexMap> coarse = Gathered(list).Coarsen(block);
    List whole;
    bool possible = list.size() % block == 0;
    for (size_t at = 0; possible && at < list.size(); at += block) {
      whole.push_back(list[at] < 0 ? -1 : list[at] / block);
      for (int64_t k = 0; k < block; ++k) {
        possible = possible && list[at + k] == (list[at] < 0 ? -1 : whole.back() * block + k);
      }
    }
    ASSERT_EQ(coarse.has_value(), possible) << Gathered(list).Text() << " by " << block;
    if (possible) {
      ASSERT_EQ(*coarse, Gathered(whole));
    }
    refused += possible ? 0 : 1;
  }
  EXPECT_GT(refused, 1000);
}

TEST(IndexMap, InverseIsThatOfLists) {
  RandomLists lists;
  int inverted = 0;
  for (int i = 0; i < 40000; ++i) {
    const int64_t extent = lists.Pick(1, 6);
    List list = lists.Make(extent);
    if (lists.Pick(0, 1) == 0) {
      for (int64_t k = 0; k < extent; ++k) list.push_back((k * 5 + 1) % extent);
    }
    const int64_t size = lists.Pick(1, extent);
    List places(size, -1);
    for (int64_t at = static_cast<int64_t>(list.size()) - 1; at >= 0; --at) {
      if (list[at] >= 0 && list[at] < size) places[list[at]] = at;
    }
    const bool covered = std::find(places.begin(), places.end(), -1) == places.end();
    const std::optional<IndexMap> inverse = Gathered(list).Inverse(size);
    ASSERT_EQ(inverse.has_value(), covered) << Gathered(list).Text() << " over " << size;
    if (covered) {
      ASSERT_EQ(*inverse, Gathered(places));
    }
    inverted += covered ? 1 : 0;
  }
  EXPECT_GT(inverted, 5000);
}

TEST(IndexMapDeath, ReadingOutsideIsOurBug) {
  EXPECT_DEATH(IndexMap::Identity(4).At(4), "outside an index map");
  EXPECT_DEATH(IndexMap::Identity(4).Range(2, 3), "outside an index map");
  EXPECT_DEATH(IndexMap::Identity(5).After(IndexMap::Identity(4)), "past the end");
  EXPECT_DEATH(IndexMap::Slice(2, 5, -1), "negative index");
}

}  // namespace
}  // namespace twinforge
