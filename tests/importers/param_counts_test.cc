// Counts from published configs alone equal the counts that Hugging Face's own classes give.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/file.h"
#include "base/json.h"
#include "importers/importer.h"

namespace twinforge {
namespace {

const char kData[] = TWINFORGE_SOURCE_DIR "/../shared/data/";

// One line of a CSV file; fields may be quoted.
std::vector<std::string> Fields(const std::string& line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (char c : line) {
    if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      fields.emplace_back();
    } else {
      fields.back().push_back(c);
    }
  }
  return fields;
}

struct Row {
  std::map<std::string, std::string> field;
  int64_t Number(const std::string& name) const {
    int64_t value = -1;
    return absl::SimpleAtoi(field.at(name), &value) ? value : -1;
  }
};

std::vector<Row> CountedRows() {
  std::ifstream in(absl::StrCat(kData, "param_counts.csv"));
  std::string line;
  std::getline(in, line);
  const std::vector<std::string> names = Fields(line);
  std::vector<Row> rows;
  while (std::getline(in, line)) {
    const std::vector<std::string> fields = Fields(line);
    Row& row = rows.emplace_back();
    for (size_t i = 0; i < names.size() && i < fields.size(); ++i) row.field[names[i]] = fields[i];
  }
  return rows;
}

JsonValue PublishedConfigs() {
  absl::StatusOr<std::string> text = ReadTextFile(absl::StrCat(kData, "model_configs.json"));
  if (!text.ok()) return JsonValue::Null();
  absl::StatusOr<JsonValue> json = ParseJson(*text, "model_configs.json");
  return json.ok() ? *json : JsonValue::Null();
}

// Entries of the collection that are fragments, and the code that says so. None may be counted wrong instead.
const std::map<std::string, int>& Fragments() {
  static const auto* const fragments = new std::map<std::string, int>{
      {"google-bert/bert-large-uncased", 1402},  // no model_type
  };
  return *fragments;
}

TEST(ParameterCounts, EqualThePublishedOnesExactly) {
  const std::vector<Row> rows = CountedRows();
  const JsonValue collection = PublishedConfigs();
  ASSERT_FALSE(rows.empty()) << "no data at " << kData;
  ASSERT_NE(collection.Find("models"), nullptr);
  std::map<std::string, const JsonValue*> configs;
  for (const JsonValue& model : collection.Find("models")->items()) {
    configs[model.Find("name")->as_string()] = model.Find("config");
  }
  std::set<std::string> supported;
  for (const std::string& type : SupportedModelTypes()) supported.insert(type);
  std::map<std::string, int> counted;
  for (const Row& row : rows) {
    const std::string& name = row.field.at("model");
    const std::string& type = row.field.at("model_type");
    if (!supported.contains(type)) continue;
    SCOPED_TRACE(name);
    ASSERT_TRUE(configs.contains(name));
    JsonValue config = *configs[name];
    // The class that was counted: an encoder was counted without the head that its config names.
    config.Set("architectures", JsonValue::Array({JsonValue::String(row.field.at("count_class"))}));
    const absl::StatusOr<Model> model = ModelFromConfigText(config.Text(), name);
    if (const auto fragment = Fragments().find(name); fragment != Fragments().end()) {
      ASSERT_FALSE(model.ok());
      EXPECT_EQ(DiagnosticOf(model.status())->code, fragment->second);
      continue;
    }
    EXPECT_TRUE(model.ok()) << model.status();
    if (!model.ok()) continue;
    const ParameterCounts counts = CountParameters(model->graph);
    EXPECT_EQ(counts.total, row.Number("total_params"));
    EXPECT_EQ(counts.expert, row.Number("expert_params"));
    EXPECT_EQ(counts.embedding, row.Number("embedding_params"));
    const int64_t active = row.Number("active_params");
    EXPECT_EQ(counts.active, active >= 0 ? active : counts.active);
    ++counted[type];
  }
  for (const std::string& type : supported) EXPECT_GT(counted[type], 0) << type << " is counted nowhere";
}

}  // namespace
}  // namespace twinforge
