#include "importers/config_kinds.h"

#include <vector>

#include "absl/strings/match.h"

namespace twinforge {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Collects the keys of `message` and of all messages in it.
void Collect(const Message& message, FamilyKeys& keys) {
  if (const auto* condition = dynamic_cast<const Condition*>(&message); condition != nullptr) {
    if (!condition->key().empty())
      (condition->equals().empty() ? keys.flags : keys.words).insert(condition->key());
    return;
  }
  if (const auto* number = dynamic_cast<const Number*>(&message); number != nullptr) {
    keys.numbers.insert(number->key().begin(), number->key().end());
    return;
  }
  if (const auto* tie = dynamic_cast<const TieSpec*>(&message); tie != nullptr) {
    keys.flags.insert(tie->key());
    return;
  }
  if (const auto* dim = dynamic_cast<const DimSpec*>(&message); dim != nullptr)
    keys.numbers.insert(dim->key().begin(), dim->key().end());
  if (const auto* moe = dynamic_cast<const MoeSpec*>(&message); moe != nullptr)
    keys.flags.insert(moe->renormalize().key().begin(), moe->renormalize().key().end());
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const bool is_key = field->cpp_type() == FieldDescriptor::CPPTYPE_STRING &&
                        (absl::EndsWith(field->name(), "_key") && field->name() != "scale_key");
    if (is_key && field->is_repeated()) {
      for (int i = 0; i < message.GetReflection()->FieldSize(message, field); ++i)
        keys.words.insert(message.GetReflection()->GetRepeatedString(message, field, i));
    } else if (is_key) {
      keys.words.insert(message.GetReflection()->GetString(message, field));
    }
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    const int count = field->is_repeated() ? message.GetReflection()->FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      Collect(field->is_repeated() ? message.GetReflection()->GetRepeatedMessage(message, field, i)
                                   : message.GetReflection()->GetMessage(message, field),
              keys);
    }
  }
}

}  // namespace

FamilyKeys KeysOf(const FamilySpec& family) {
  FamilyKeys keys;
  Collect(family, keys);
  for (const MirrorSpec& mirror : family.mirror()) keys.numbers.insert(mirror.key());
  const MoeSpec& moe = family.block().moe();
  for (const std::string& key : moe.renormalize().key()) keys.numbers.erase(key);
  for (const std::string& key : keys.numbers) keys.flags.erase(key);
  return keys;
}

absl::Status CheckFlags(const FamilySpec& family, const ConfigView& config) {
  for (const std::string& key : KeysOf(family).flags) {
    const JsonValue* value = config.Find(key);
    if (value != nullptr && value->kind() != JsonValue::Kind::kBool)
      return config.WrongKind(key, "true or false");
  }
  return absl::OkStatus();
}

}  // namespace twinforge
