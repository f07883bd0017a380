// Every key that a family reads, holding every kind of value that it should not: a model whose numbers are
// sound, or one diagnostic that names the key.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/json.h"
#include "importers/config_kinds.h"
#include "importers/family.h"
#include "importers/importer.h"
#include "ir/verify.h"
#include "tests/importers/small_checkpoints.h"

namespace twinforge {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

const char* const kOddValues[] = {
    "true",    "false",  "\"x\"",      "\"7\"",    "\"\\u001b[2J\"",       "-1", "0",      "0.5",   "1e308",
    "-1e308",  "1e-308", "NaN",        "Infinity", "99999999999999999999", "[]", "[true]", "[NaN]", "[-1]",
    "[\"x\"]", "{}",     "{\"a\": 1}", "null"};

// Keys that every family reads beside those of its file.
const char* const kCommonKeys[] = {"model_type",
                                   "architectures",
                                   "dtype",
                                   "torch_dtype",
                                   "quantization_config",
                                   "rope_parameters",
                                   "rope_scaling",
                                   "rope_theta",
                                   "partial_rotary_factor",
                                   "original_max_position_embeddings",
                                   "tie_word_embeddings"};
const char* const kScalingKeys[] = {"rope_type",        "type",
                                    "factor",           "beta_fast",
                                    "beta_slow",        "mscale",
                                    "mscale_all_dim",   "attention_factor",
                                    "truncate",         "low_freq_factor",
                                    "high_freq_factor", "short_factor",
                                    "long_factor",      "original_max_position_embeddings",
                                    "rope_theta",       "partial_rotary_factor"};

// The small configs, and rotary scalings of each kind.
std::vector<SmallConfig> Configs() {
  std::vector<SmallConfig> configs = SmallConfigs();
  const std::string llama = SmallConfigOf("llama"), phi3 = SmallConfigOf("phi3");
  const auto scaled = [](std::string json, absl::string_view scaling) {
    json.pop_back();
    return absl::StrCat(json, ", \"rope_parameters\": {\"rope_theta\": 500.0, ", scaling, "}}");
  };
  configs.push_back({"linear", scaled(llama, R"("rope_type": "linear", "factor": 2.0)")});
  configs.push_back({"dynamic", scaled(llama, R"("rope_type": "dynamic", "factor": 2.0)")});
  configs.push_back(
      {"yarn", scaled(llama, R"("rope_type": "yarn", "factor": 2.0, "beta_fast": 32, "beta_slow": 1)")});
  configs.push_back({"longrope", scaled(phi3, R"("rope_type": "longrope", "short_factor": [1, 1, 1],
      "long_factor": [2, 2, 2], "original_max_position_embeddings": 16)")});
  return configs;
}

// A floating number of the message, or of one in it, that no f32 holds.
bool HasUnsoundNumber(const Message& message) {
  std::vector<const FieldDescriptor*> fields;
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const int count = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
        const double value = field->is_repeated() ? reflection.GetRepeatedDouble(message, field, i)
                                                  : reflection.GetDouble(message, field);
        if (!(std::abs(value) <= kMostConfigNumber)) return true;
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        if (HasUnsoundNumber(field->is_repeated() ? reflection.GetRepeatedMessage(message, field, i)
                                                  : reflection.GetMessage(message, field)))
          return true;
      }
    }
  }
  return false;
}

absl::string_view LastPart(absl::string_view key) {
  const size_t dot = key.rfind('.');
  return dot == absl::string_view::npos ? key : key.substr(dot + 1);
}

class OddValues : public ::testing::TestWithParam<SmallConfig> {
 protected:
  void SetUp() override {
    absl::StatusOr<JsonValue> parsed = ParseJson(GetParam().json, "config.json");
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    config_ = *std::move(parsed);
    const FamilySpec* family = FindFamily(config_.Find("model_type")->as_string());
    ASSERT_NE(family, nullptr);
    keys_ = KeysOf(*family);
  }

  std::set<std::string> AllKeys() const {
    std::set<std::string> all(std::begin(kCommonKeys), std::end(kCommonKeys));
    for (const auto* keys : {&keys_.flags, &keys_.numbers, &keys_.words})
      all.insert(keys->begin(), keys->end());
    for (const char* key : kScalingKeys) {
      for (const char* at : {"rope_parameters.", "rope_scaling."}) {
        if (config_.FindPath(std::string(at, std::strlen(at) - 1)) != nullptr)
          all.insert(absl::StrCat(at, key));
      }
    }
    return all;
  }

  absl::StatusOr<Model> With(const std::string& key, const std::string& value) const {
    absl::StatusOr<JsonValue> odd = ParseJson(value, "value");
    JsonValue config = config_;
    config.Set(key, *std::move(odd));
    return ModelFromConfigText(config.Text(), "config.json");
  }

  JsonValue config_;
  FamilyKeys keys_;
};

TEST_P(OddValues, AreRefusedByNameOrMakeASoundModel) {
  ASSERT_TRUE(ModelFromConfigText(GetParam().json, "config.json").ok());
  int64_t refused = 0, taken = 0;
  for (const std::string& key : AllKeys()) {
    for (const std::string value : kOddValues) {
      SCOPED_TRACE(absl::StrCat(key, " = ", value));
      const absl::StatusOr<Model> model = With(key, value);
      if (model.ok()) {
        ++taken;
        EXPECT_TRUE(Verify(model->graph).ok()) << Verify(model->graph);
        for (const Node& node : model->graph.nodes())
          EXPECT_FALSE(HasUnsoundNumber(*node.attrs)) << node.path;
        continue;
      }
      ++refused;
      const std::optional<Diagnostic> said = DiagnosticOf(model.status());
      ASSERT_TRUE(said.has_value()) << model.status();
      EXPECT_TRUE(said->code >= 1402 && said->code <= 1414) << model.status();
      const std::string rendered = Render(model.status());
      // Sizes that do not fit together are the fault of no single key: factors are one for each pair that
      // turns.
      const bool together = said->code == 1414 || (LastPart(key) == "partial_rotary_factor" &&
                                                   absl::StrContains(rendered, "short_factor"));
      EXPECT_TRUE(together || absl::StrContains(rendered, LastPart(key))) << rendered;
      EXPECT_FALSE(absl::StrContains(rendered, "\x1b")) << rendered;
    }
  }
  EXPECT_GT(refused, 50);
  EXPECT_GT(taken, 20);
}

TEST_P(OddValues, TruthIsNoNumberAndNumbersAreNoTruth) {
  const FamilySpec& family = *FindFamily(config_.Find("model_type")->as_string());
  std::set<std::string> mirrored;
  for (const MirrorSpec& mirror : family.mirror()) mirrored.insert(mirror.key());
  int64_t numbers = 0;
  for (const std::string& key : keys_.numbers) {
    // A key that repeats others is not read; one that the model does not come to read neither.
    const bool read = !With(key, "\"x\"").ok();
    if (mirrored.contains(key) || !read) continue;
    ++numbers;
    for (const char* value : {"true", "false", "\"7\"", "[7]"})
      EXPECT_FALSE(With(key, value).ok()) << key << value;
  }
  EXPECT_GE(numbers, 5);
  for (const std::string& key : keys_.flags) {
    for (const char* value : {"1", "0", "\"true\"", "\"\"", "[]", "{}", "2.5"}) {
      EXPECT_FALSE(With(key, value).ok()) << key << value;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, OddValues, ::testing::ValuesIn(Configs()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace twinforge
