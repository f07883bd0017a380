// The tree of parameters, how each is read from the twin's files, and how devices split it.
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "reference/jax_emitter.h"
#include "reference/python.h"
#include "reference/runtime_text.h"

namespace twinforge {
namespace {

constexpr size_t kColumns = 120;

// A line with a comment behind it, or above it where it would become too long.
std::string Commented(const std::string& line, int columns, const std::string& comment) {
  if (comment.empty()) return line + "\n";
  if (line.size() + comment.size() + 4 <= kColumns) return absl::StrCat(line, "  # ", comment, "\n");
  return absl::StrCat(std::string(columns, ' '), "# ", comment, "\n", line, "\n");
}

}  // namespace

bool JaxEmitter::IsLeaf(const Node& node) {
  return node.params.size() == 1 && FindSlot(node.op, node.params[0].first)->main;
}

std::string JaxEmitter::SpecText(const std::string& role, bool stacked) const {
  const HeldParam& held = program_.held.at(role);
  std::vector<std::string> parts;
  if (stacked) parts.push_back("None");
  for (const int axis : held.order)
    parts.push_back(held.param->type.axes[axis].shards > 1 ? "\"model\"" : "None");
  while (!parts.empty() && parts.back() == "None") parts.pop_back();
  return absl::StrCat("P(", absl::StrJoin(parts, ", "), ")");
}

bool JaxEmitter::IsSharded() const {
  for (const auto& [role, param] : graph().params()) {
    for (const ParamAxis& axis : param.type.axes) {
      if (axis.shards > 1) return true;
    }
  }
  return false;
}

std::string JaxEmitter::TiedTo(const std::string& role) const {
  const HeldParam& own = program_.held.at(role);
  for (const auto* part : {&program_.before, &program_.after}) {
    for (const NodeId id : *part) {
      for (const auto& [slot, other] : graph().node(id).params) {
        if (other == role) return "";
        const HeldParam& held = program_.held.at(other);
        if (held.program == own.program && SpecText(other, false) == SpecText(role, false)) return other;
      }
    }
  }
  return "";
}

std::string JaxEmitter::TreeOf(const Node& node, std::string own) const {
  if (ReferenceProgram::LayerOf(node.path) >= 0) return own;
  for (const auto& [slot, role] : node.params) {
    const std::string tied = TiedTo(role);
    if (tied.empty()) continue;
    for (const Node& other : graph().nodes()) {
      for (const auto& [its_slot, its_role] : other.params) {
        if (its_role != tied) continue;
        const std::string place = Slot(other, its_slot, absl::StrCat("params[\"", other.path, "\"]"));
        own = IsLeaf(node) ? place : absl::StrCat(own, " | {\"", slot, "\": ", place, "}");
      }
    }
  }
  return own;
}

std::string JaxEmitter::LeafText(const std::string& role, bool layered) const {
  const HeldParam& held = program_.held.at(role);
  return absl::StrCat(
      layered ? "lambda i: " : "lambda: ", IsPacked(held) ? PackedLeaf(held) : held.expression, ",");
}

template <typename Leaf>
std::string JaxEmitter::Items(const std::vector<NodeId>& nodes, int columns, bool comments, Leaf leaf) const {
  std::string text;
  const std::string space(columns, ' ');
  for (const NodeId id : nodes) {
    const Node& node = graph().node(id);
    const bool layered = ReferenceProgram::LayerOf(node.path) >= 0;
    const std::string key = absl::StrCat("\"", ReferenceProgram::Suffix(node.path), "\": ");
    std::string inner;
    for (const auto& [slot, role] : node.params) {
      if (!layered && !TiedTo(role).empty()) continue;
      if (IsLeaf(node)) {
        text +=
            Commented(absl::StrCat(space, key, leaf(role)), columns, comments ? program_.AxesOf(role) : "");
      } else {
        inner += Commented(absl::StrCat(space, "    \"", slot, "\": ", leaf(role)), columns + 4,
                           comments ? program_.AxesOf(role) : "");
      }
    }
    if (!inner.empty()) absl::StrAppend(&text, space, key, "{\n", inner, space, "},\n");
  }
  return text;
}

// The same tree of partitions: which axis of each parameter the mesh's axis "model" splits.
std::string JaxEmitter::Specs() const {
  const auto leaf = [&](bool stacked) {
    return [this, stacked](const std::string& role) { return SpecText(role, stacked) + ","; };
  };
  std::string text =
      "def partitions():\n    \"\"\"Which axis of each parameter devices split.\"\"\"\n    return {\n";
  text += Items(program_.before, 8, false, leaf(false));
  text += "        \"layers\": [\n";
  for (const LayerCycle& cycle : program_.cycles) {
    const bool one = cycle.kinds.size() == 1;
    if (!one) text += "            (\n";
    for (const int kind : cycle.kinds) {
      const int columns = one ? 12 : 16;
      const std::string space(columns, ' ');
      absl::StrAppend(
          &text, space, "{\n",
          Items(program_.layers[program_.kinds[kind].layers[0]], columns + 4, false, leaf(cycle.repeats > 1)),
          space, "},\n");
    }
    if (!one) text += "            ),\n";
  }
  text += "        ],\n";
  return text + Items(program_.after, 8, false, leaf(false)) + "    }\n\n\n";
}

std::string JaxEmitter::Loader() {
  std::string text(kJaxReader);
  if (HasPacked()) text = absl::StrReplaceAll(text, {{"np.stack(", "stack_of("}}) + kJaxPacked;
  std::map<std::string, std::string> readers;  // kinds that are read alike have one
  std::vector<std::string> reader_of;
  for (const LayerKind& kind : program_.kinds) {
    const auto leaf = [this](const std::string& role) { return LeafText(role, true); };
    const auto [reader, fresh] =
        readers.emplace(Items(program_.layers[kind.layers[0]], 8, true, leaf), kind.name);
    reader_of.push_back(reader->second + "_stored");
    if (!fresh) continue;
    absl::StrAppend(&text, "def ", reader_of.back(),
                    "(read):\n    \"\"\"How each parameter of layer i is read.\"\"\"\n", "    return {\n",
                    reader->first, "    }\n\n\n");
  }
  absl::StrAppend(
      &text,
      "def stored(read):\n    \"\"\"How each parameter is read; layers of one loop are stacked, [layer, ..]."
      "\"\"\"\n    return {\n");
  const auto leaf = [this](const std::string& role) { return LeafText(role, false); };
  absl::StrAppend(&text, Items(program_.before, 8, true, leaf), "        \"layers\": [\n");
  for (const LayerCycle& cycle : program_.cycles) {
    const auto period = static_cast<int>(cycle.kinds.size());
    const int end = cycle.first + cycle.repeats * period;
    std::vector<std::string> parts;
    for (int i = 0; i < period; ++i) {
      const std::string& reader = reader_of[cycle.kinds[i]];
      parts.push_back(cycle.repeats == 1
                          ? absl::StrCat("alone(", reader, "(read), ", cycle.first, ")")
                          : absl::StrCat("stacked(", reader, "(read), range(", cycle.first + i, ", ", end,
                                         period == 1 ? "" : absl::StrCat(", ", period), "))"));
    }
    absl::StrAppend(&text, "            ", period == 1 ? "" : "(", absl::StrJoin(parts, ", "),
                    period == 1 ? "" : ")", ",\n");
  }
  absl::StrAppend(&text, "        ],\n", Items(program_.after, 8, true, leaf), "    }\n\n\n");
  if (HasPacked()) return text + kJaxPackedLoad;
  if (!IsSharded()) return text + std::string(kJaxLoad);
  return text + Specs() + std::string(kJaxShardedLoad);
}

}  // namespace twinforge
