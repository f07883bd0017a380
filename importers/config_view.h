// Reads a config.json by a family's declarations: numbers, conditions and lists, with diagnostics that
// name the key.
//
// A key that is absent means the class's default, which the family file states; nothing is guessed. A key of
// the wrong kind ("hidden_size": "big", "top_k": true) or out of range is an error (TF1406), never a default.
#ifndef TWINFORGE_IMPORTERS_CONFIG_VIEW_H_
#define TWINFORGE_IMPORTERS_CONFIG_VIEW_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/json.h"
#include "importers/family.pb.h"

namespace twinforge {

// What runtimes hold in f32, they must be able to hold. (A rotary base comes near: that of a head padded
// eightfold is the eighth power.)
inline constexpr double kMostConfigNumber = std::numeric_limits<float>::max();
inline constexpr double kLeastConfigFactor = std::numeric_limits<float>::min();  // of what is divided by
inline constexpr int64_t kMostConfigSize = int64_t{1} << 40;

// Keys are dotted paths throughout. Pointers into `config` live as long as it does.
class ConfigView {
 public:
  // `config` must outlive the view. `place` names it in diagnostics.
  ConfigView(const JsonValue& config, std::string place);

  const std::string& place() const { return place_; }
  const JsonValue& json() const { return config_; }
  // The value, or nullptr where it is absent or null.
  const JsonValue* Find(absl::string_view key) const;
  // TF1407 where a key turns the mask off, which runtimes of causal families obey.
  absl::Status CheckCausal() const;
  // TF1407 where the config gives a layer another type than `all`, for a family whose layers are alike.
  absl::Status CheckLayerTypes(absl::string_view all) const;
  // TF1406 where two of `keys` are there and say different things.
  absl::Status CheckAgree(const google::protobuf::RepeatedPtrField<std::string>& keys) const;
  // The first of `keys` that is present and not null, or "".
  std::string FirstKey(const google::protobuf::RepeatedPtrField<std::string>& keys) const;
  // The same; where none is present the first that the family reads, for sentences about its default.
  std::string KeyToName(const google::protobuf::RepeatedPtrField<std::string>& keys) const;

  absl::StatusOr<double> Get(const Number& number) const;
  // The same, where a whole number is needed.
  absl::StatusOr<int64_t> GetWhole(const Number& number) const;
  // The same, where what a key says must lie in a range; defaults are the family's own and may not.
  absl::StatusOr<double> GetWithin(const Number& number, double least, double most) const;
  absl::StatusOr<int64_t> GetWholeWithin(const Number& number, int64_t least, int64_t most) const;
  absl::StatusOr<bool> GetFlag(absl::string_view key, bool absent) const;
  absl::StatusOr<double> GetNumber(absl::string_view key, double absent) const;
  absl::StatusOr<std::string> GetString(absl::string_view key, absl::string_view absent) const;
  absl::StatusOr<std::vector<double>> GetNumbers(absl::string_view key) const;  // a list; empty if absent
  absl::StatusOr<std::vector<std::string>> GetWords(absl::string_view key) const;

  // What config.json names in `architectures`; else `absent`.
  absl::StatusOr<std::string> Architecture(absl::string_view absent) const;
  // `architecture` is the one that is meant.
  bool Holds(const Condition& condition, absl::string_view architecture) const;

  // For each of `layers` layers, whether it is in the set.
  absl::StatusOr<std::vector<bool>> Layers(const LayerSet& set, int64_t layers) const;

  // The number that `value` is; nothing where it is none, or beyond what configs may say.
  static std::optional<double> NumberIn(const JsonValue& value);

  absl::Status WrongKind(absl::string_view key, absl::string_view wanted, absl::string_view hint = "") const;

 private:
  const JsonValue& config_;
  std::string place_;
};

}  // namespace twinforge

#endif  // TWINFORGE_IMPORTERS_CONFIG_VIEW_H_
