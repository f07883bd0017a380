#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/diagnostic.h"
#include "base/json_reader.h"

namespace twinforge {
namespace {

std::string ErrorOf(absl::string_view text, int max_depth = 64) {
  const auto value = ParseJson(text, "c.json", max_depth);
  return value.ok() ? "ok" : Render(value.status());
}

std::string Again(absl::string_view text, int indent = 0) {
  const auto value = ParseJson(text, "c.json");
  return value.ok() ? value->Text(indent) : Render(value.status());
}

struct Row {
  std::string text;
  std::string expected;  // after "error[TF1206]: c.json:"
};

TEST(ParseJson, RefusesWithLineAndColumn) {
  const std::vector<Row> rows = {
      {"", "1:1: the text ends where a value should stand"},
      {" \n ", "2:2: the text ends where a value should stand"},
      {"\xEF\xBB\xBF{}", "1:1: begins with a byte-order mark"},
      {"{\n\"a\": \"\xFF\"}", "2:7: is not valid UTF-8"},
      {"[\"\xED\xA0\x80\"]", "1:3: is not valid UTF-8"},
      {"[1, 2", "1:6: a comma or ] should stand here"},
      {"[1 2]", "1:4: a comma or ] should stand here"},
      {"[1,]", "1:4: a value should stand here"},
      {"[,1]", "1:2: a value should stand here"},
      {"{\"a\" 1}", "1:6: a colon should stand here"},
      {"{a: 1}", "1:2: a key in quotes should stand here"},
      {"{'a': 1}", "1:2: a key in quotes should stand here"},
      {"{\"a\": 1,}", "1:9: a key in quotes should stand here"},
      {"// c\n{}", "1:1: a value should stand here"},
      {"{}\n{}", "2:1: something follows the value"},
      {"1 x", "1:3: something follows the value"},
      {"tru", "1:1: a value should stand here"},
      {"nul", "1:1: a value should stand here"},
      {"nan", "1:1: a value should stand here"},
      {"-NaN", "1:2: a digit should stand here"},
      {"Inf", "1:1: a value should stand here"},
      {"01", "1:2: a number begins with 0"},
      {"-", "1:2: a digit should stand here"},
      {"+1", "1:1: a value should stand here"},
      {".5", "1:1: a value should stand here"},
      {"1.", "1:3: a digit should stand here"},
      {"1e+", "1:4: a digit should stand here"},
      {"\"abc", "1:1: a string that does not end"},
      {"\"a\tb\"", "1:3: a control character inside a string"},
      {"\"\\x41\"", "1:2: no such escape"},
      {"\"\\u12g4\"", "1:6: \\u needs four hexadecimal digits"},
      {"\"\\ud800\"", "1:2: half of a surrogate pair"},
      {"\"\\udc00\\ud800\"", "1:2: half of a surrogate pair"},
      {"\"\\ud800\\u0041\"", "1:2: half of a surrogate pair"},
      {"\"\\", "1:2: no such escape"},
      {"{\"a\": 1, \"a\": 2}", "1:10: the key \"a\" appears twice in one object"},
      {"{\"a\": 1,\n \"\\u0061\": 2}", "2:2: the key \"a\" appears twice in one object"},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(ErrorOf(row.text), "error[TF1206]: c.json:" + row.expected + "\n") << row.text;
  }
}

TEST(ParseJson, DuplicatesAreSeenInLargeObjectsToo) {
  for (int size : {2, 7, 8, 9, 10, 100}) {
    for (int twin = 0; twin < size; ++twin) {
      std::string text = "{";
      for (int i = 0; i < size; ++i) text += "\"k" + std::to_string(i) + "\": 0, ";
      EXPECT_EQ(ErrorOf(text + "\"k\": 0}"), "ok");
      EXPECT_THAT(ErrorOf(text + "\"k" + std::to_string(twin) + "\": 0}"),
                  testing::HasSubstr("appears twice"));
    }
  }
}

TEST(ParseJson, DepthHasALimit) {
  EXPECT_EQ(ErrorOf(std::string(64, '[') + std::string(64, ']')), "ok");
  EXPECT_EQ(ErrorOf(std::string(65, '[') + std::string(65, ']')),
            "error[TF1206]: c.json:1:65: nested deeper than 64 levels\n");
  EXPECT_EQ(ErrorOf(std::string(1000000, '[')), "error[TF1206]: c.json:1:65: nested deeper than 64 levels\n");
  EXPECT_EQ(ErrorOf("[[], [], [[]]]", 2), "error[TF1206]: c.json:1:11: nested deeper than 2 levels\n");
}

TEST(ParseJson, KeepsSpellingAndOrder) {
  for (const char* text : {"null", "true", "false", "0", "-0", "1e5", "1E+05", "0.10", "1e-05",
                           "123456789012345678901234567890", "NaN", "Infinity", "-Infinity", "[]", "{}",
                           "[1, [2, []], {}]", "{\"z\": 1, \"a\": {\"y\": null, \"b\": \"\"}}",
                           "\"a\\\"\\\\\\n\\r\\t\\b\\f\\u0000\\u001f/\\u00e9\\ud83d\\ude00\"", "\"\x7F\""}) {
    EXPECT_EQ(Again(text), std::string(text) == "\"\x7F\"" ? "\"\x7F\"" : text);
  }
  EXPECT_EQ(Again("\"\xC3\xA9\\/\""), "\"\\u00e9/\"");
  EXPECT_EQ(Again("{\"a\":[1,2],\"b\":{},\"c\":{\"d\":[]}}", 2),
            "{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": {},\n  \"c\": {\n    \"d\": []\n  }\n}");
}

TEST(ParseJson, NumbersByKind) {
  const auto parse = [](absl::string_view text) { return *ParseJson(text, "c.json"); };
  EXPECT_EQ(parse("-12").kind(), JsonValue::Kind::kInteger);
  EXPECT_EQ(parse("-12").as_integer(), -12);
  EXPECT_EQ(parse("-12").as_number(), -12.0);
  EXPECT_EQ(parse("1.0").kind(), JsonValue::Kind::kReal);
  EXPECT_EQ(parse("1e2").kind(), JsonValue::Kind::kReal);
  EXPECT_EQ(parse("1e2").as_number(), 100);
  EXPECT_EQ(parse("9223372036854775807").as_integer(), INT64_MAX);
  // The tokenizers' "no limit": an integer still, at the end of the range.
  EXPECT_EQ(parse("1000000000000000019884624838656").kind(), JsonValue::Kind::kInteger);
  EXPECT_EQ(parse("1000000000000000019884624838656").as_integer(), INT64_MAX);
  EXPECT_EQ(parse("1000000000000000019884624838656").as_number(), 1e30);
  EXPECT_EQ(parse("-1000000000000000019884624838656").as_integer(), INT64_MIN);
  EXPECT_EQ(parse("1e999").as_number(), std::numeric_limits<double>::infinity());
  EXPECT_EQ(parse("-1e999").as_number(), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(parse("1e-999").as_number(), 0);
  EXPECT_TRUE(std::isnan(parse("NaN").as_number()));
  EXPECT_EQ(parse("-Infinity").as_number(), -std::numeric_limits<double>::infinity());
}

// As Python's repr writes them, since that is what wrote the configs.
TEST(JsonValue, RealsAreSpelledAsPythonDoes) {
  const std::vector<std::pair<double, const char*>> rows = {
      {1, "1.0"},
      {-0.0, "-0.0"},
      {0.1, "0.1"},
      {1e-5, "1e-05"},
      {1.5e-7, "1.5e-07"},
      {0.0001, "0.0001"},
      {1e15, "1000000000000000.0"},
      {1e16, "1e+16"},
      {1.25e300, "1.25e+300"},
      {10000.0, "10000.0"},
      {0.30000000000000004, "0.30000000000000004"},
      {5e-324, "5e-324"},
      {1e22, "1e+22"},
      {std::numeric_limits<double>::infinity(), "Infinity"},
      {-std::numeric_limits<double>::infinity(), "-Infinity"},
      {std::numeric_limits<double>::quiet_NaN(), "NaN"},
  };
  for (const auto& [value, text] : rows) EXPECT_EQ(JsonValue::Real(value).Text(), text);
}

TEST(JsonValue, PathsFindSetAndRemove) {
  JsonValue config = *ParseJson("{\"a\": {\"b\": 1, \"c\": 2}, \"d\": 3}", "c.json");
  ASSERT_NE(config.FindPath("a.b"), nullptr);
  EXPECT_EQ(config.FindPath("a.b")->as_integer(), 1);
  EXPECT_EQ(config.FindPath("a.x"), nullptr);
  EXPECT_EQ(config.FindPath("d.x"), nullptr);
  EXPECT_EQ(config.Find("a.b"), nullptr);
  config.Set("a.b", JsonValue::String("new"));
  config.Set("x.y.z", JsonValue::Bool(true));
  config.Set("d", JsonValue::Array({JsonValue::Null(), JsonValue::Integer(-5)}));
  EXPECT_EQ(config.Text(0),
            "{\"a\": {\"b\": \"new\", \"c\": 2}, \"d\": [null, -5], \"x\": {\"y\": {\"z\": true}}}");
  config.Set("d.e", JsonValue::Object());  // what stood in the way is replaced
  config.Remove("a.c");
  config.Remove("x");
  config.Remove("no.such.thing");
  EXPECT_EQ(config.Text(0), "{\"a\": {\"b\": \"new\"}, \"d\": {\"e\": {}}}");
}

TEST(JsonQuoted, IsCutAndNeverRaw) {
  EXPECT_EQ(JsonQuoted("abc", 2), "\"ab\"... (3 bytes)");
  EXPECT_EQ(JsonQuoted("\x1b[2J\x1f"), "\"\\u001b[2J\\u001f\"");
  EXPECT_EQ(JsonQuoted("\xFF"), "\"\\u00ff\"");  // a file name need not be UTF-8
}

TEST(JsonReader, SkipsAnyValueAndReadsOn) {
  JsonReader reader("{\"a\": [1, {\"b\": [true, null, \"x\"]}, -1.5e3], \"c\": \"d\\n\"}", "f",
                    JsonDialect::kHeader);
  ASSERT_TRUE(reader.Start().ok());
  ASSERT_TRUE(reader.EnterObject().ok());
  absl::string_view key, value;
  ASSERT_TRUE(*reader.NextMember(&key));
  EXPECT_EQ(key, "a");
  ASSERT_TRUE(reader.Skip().ok());
  ASSERT_TRUE(*reader.NextMember(&key));
  ASSERT_TRUE(reader.String(&value).ok());
  EXPECT_EQ(key, "c");
  EXPECT_EQ(value, "d\n");
  EXPECT_FALSE(*reader.NextMember(&key));
  EXPECT_TRUE(reader.Finish().ok());
}

TEST(JsonReader, HeadersHaveNoPythonNumbers) {
  JsonReader reader("NaN", "f", JsonDialect::kHeader);
  EXPECT_EQ(Render(reader.Skip()), "error[TF1206]: f: header byte 0: a value should stand here\n");
}

}  // namespace
}  // namespace twinforge
