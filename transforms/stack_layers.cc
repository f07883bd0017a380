// Before                                       After  stack_layers { }
//   layers.0.attn.q  [d_model -> heads, ..]       layers.0-31.attn.q, one stored tensor [layer=32, ...]
//   layers.1.attn.q  [d_model -> heads, ..]
//   ...              ..
//
// Why on a TPU. A program that scans over its layers compiles one of them, so compiling takes minutes less
// for a deep model and its text is a layer long. Such code wants each role of all layers as one array with
// the layer in front; stacking 32 files' worth at load time needs the model twice in memory, and stacked and
// unstacked checkpoints are incompatible files today.
//
// A site is a run of layers that are equal but for their values: the same ops, attributes, types and storage.
// Where layers differ by turns (a window in every other one) a period of the turn is what repeats: layers 0,
// 2, 4 ... are stacked as layers.0-2-24, layers 1, 3, 5 ... as layers.1-3-25. The period is the shortest that
// covers the most layers. A first dense layer before experts stays apart. Fused parameters are stacked as
// they are fused; the graph computes what it did, layer by layer.
//
// Refuses. A layer that is like no neighbour; parameters that share their bytes, which a stack would store
// again; layers that are stacked in another way.
//
// Fidelity. MOVED.
#include <algorithm>
#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "ir/type.h"
#include "transforms/edit.h"
#include "transforms/transforms.pb.h"

namespace twinforge {
namespace {

constexpr absl::string_view kLayers = "layers.";

// The number in "layers.3.attn", or -1.
int64_t LayerNumber(absl::string_view path) {
  if (path.substr(0, kLayers.size()) != kLayers) return -1;
  path.remove_prefix(kLayers.size());
  const size_t dot = path.find('.');
  int64_t layer = -1;
  if (dot == absl::string_view::npos || !absl::SimpleAtoi(path.substr(0, dot), &layer)) return -1;
  return layer;
}

// "attn.q" of "layers.3.attn.q".
absl::string_view WithinLayer(absl::string_view name) {
  return name.substr(name.find('.', kLayers.size()) + 1);
}

// Stored tensors of one layer, by their names within it, and what the layer is apart from values.
struct LayerContent {
  std::vector<std::string> tensors;  // "attn.qkv", "mlp.up", in graph order
  std::string signature;
  NodeId first = -1;
  std::string shared;  // why it can't be stacked, or ""
};

class LayerReader {
 public:
  explicit LayerReader(const Graph& graph) : graph_(graph), sharing_(graph) {}

  // By layer number.
  std::map<int64_t, LayerContent> Read() {
    for (const Node& node : graph_.nodes()) {
      const int64_t layer = LayerNumber(node.path);
      if (layer >= 0) Add(node, layer, layers_[layer]);
    }
    return std::move(layers_);
  }

 private:
  void Add(const Node& node, int64_t layer, LayerContent& content) {
    if (content.first < 0) content.first = node.id;
    absl::StrAppend(&content.signature, WithinLayer(node.path), "=", Info(node.op).name, "(");
    for (const NodeId operand : node.operands) {
      const std::string& path = graph_.node(operand).path;
      absl::StrAppend(&content.signature, LayerNumber(path) == layer ? WithinLayer(path) : "before", ",");
    }
    absl::StrAppend(&content.signature, "){", node.attrs->SerializeAsString(), "}", Text(node.type));
    for (const auto& [slot, role] : node.params) AddParam(role, content);
  }

  void AddParam(const std::string& role, LayerContent& content) {
    const Param& param = *graph_.FindParam(role);
    const Bundle* bundle = graph_.BundleOf(role);
    absl::StrAppend(&content.signature, WithinLayer(role), Text(param.type),
                    param.storage.orientation == Orientation::kOutIn, param.storage.per_expert);
    const std::string partner = sharing_.Partner(param);
    if (!partner.empty() && content.shared.empty()) {
      content.shared = absl::StrCat(role, " shares its bytes with ", partner);
    }
    std::string name(WithinLayer(bundle == nullptr ? role : bundle->role));
    if (bundle != nullptr) {
      absl::StrAppend(&content.signature, "in ", name, static_cast<int>(bundle->arrangement), bundle->shards);
      for (const std::string& member : bundle->members)
        absl::StrAppend(&content.signature, WithinLayer(member));
    }
    if (std::find(content.tensors.begin(), content.tensors.end(), name) == content.tensors.end()) {
      content.tensors.push_back(std::move(name));
    }
  }

  const Graph& graph_;
  Sharing sharing_;
  std::map<int64_t, LayerContent> layers_;
};

// Layers [first, first + period * turns) that repeat every `period` layers.
struct LayerRun {
  int64_t first = 0, period = 1, turns = 1;
  int64_t last() const { return first + period * turns - 1; }
  std::string path() const { return absl::StrCat(kLayers, first, "-", last()); }
  // The stack's name for the layers at `turn` of each period: "layers.0-31", "layers.1-3-25".
  std::string StackPath(int64_t turn) const {
    const int64_t begin = first + turn, end = begin + period * (turns - 1);
    return period == 1 ? absl::StrCat(kLayers, begin, "-", end)
                       : absl::StrCat(kLayers, begin, "-", begin + period, "-", end);
  }
};

// The run that begins at `first`: the period that covers the most layers, the shortest of those.
LayerRun RunAt(const std::vector<const std::string*>& signatures, int64_t first) {
  const auto count = static_cast<int64_t>(signatures.size());
  LayerRun best{first, 1, 1};
  for (int64_t period = 1; first + 2 * period <= count; ++period) {
    int64_t end = first + period;
    while (end < count && *signatures[end] == *signatures[end - period]) ++end;
    const int64_t turns = (end - first) / period;
    if (turns >= 2 && (best.turns == 1 || turns * period > best.turns * best.period))
      best = {first, period, turns};
  }
  return best;
}

class StackLayersTransform : public Transform {
 public:
  absl::string_view name() const override { return "stack_layers"; }
  Fidelity fidelity() const override { return Fidelity::kMoved; }

  Sites FindSites(const Graph& graph) const override {
    Sites sites;
    const std::map<int64_t, LayerContent> layers = LayerReader(graph).Read();
    for (const LayerRun& run : RunsOf(layers)) {
      Judgement verdict = Judge(graph, layers, run);
      const std::string path = run.turns == 1 ? absl::StrCat(kLayers, run.first) : run.path();
      if (verdict.refused()) {
        sites.refused.push_back({path, std::move(verdict.reason)});
      } else if (verdict.kind == Judgement::Kind::kNative) {
        sites.native.push_back(path);
      } else {
        sites.fit.push_back({layers.at(run.first).first, path});
      }
    }
    return sites;
  }

  absl::Status Rewrite(const Site& site, const Observed&, Rewriter& rewriter) const override {
    const std::map<int64_t, LayerContent> layers = LayerReader(rewriter.graph()).Read();
    for (const LayerRun& run : RunsOf(layers)) {
      if (run.path() != site.path) continue;
      for (const LayerStack& stack : StacksOf(layers, run)) rewriter.AddStack(stack);
    }
    return absl::OkStatus();
  }

 private:
  // Numbers without a gap, from the first; a graph with other names has no runs.
  static std::vector<LayerRun> RunsOf(const std::map<int64_t, LayerContent>& layers) {
    std::vector<const std::string*> signatures;
    for (const auto& [number, content] : layers) {
      if (number != static_cast<int64_t>(signatures.size())) return {};
      signatures.push_back(&content.signature);
    }
    std::vector<LayerRun> runs;
    for (int64_t at = 0; at < static_cast<int64_t>(signatures.size()); at = runs.back().last() + 1) {
      runs.push_back(RunAt(signatures, at));
    }
    return runs;
  }

  static std::vector<LayerStack> StacksOf(const std::map<int64_t, LayerContent>& layers,
                                          const LayerRun& run) {
    std::vector<LayerStack> stacks;
    for (int64_t turn = 0; turn < run.period; ++turn) {
      for (const std::string& tensor : layers.at(run.first + turn).tensors) {
        LayerStack stack{absl::StrCat(run.StackPath(turn), ".", tensor), {}};
        for (int64_t i = 0; i < run.turns; ++i) {
          stack.members.push_back(absl::StrCat(kLayers, run.first + turn + i * run.period, ".", tensor));
        }
        stacks.push_back(std::move(stack));
      }
    }
    return stacks;
  }

  static Judgement Judge(const Graph& graph, const std::map<int64_t, LayerContent>& layers,
                         const LayerRun& run) {
    if (run.turns == 1) return Judgement::Refused("no neighbour is like it");
    for (int64_t layer = run.first; layer <= run.last(); ++layer) {
      if (!layers.at(layer).shared.empty()) return Judgement::Refused(layers.at(layer).shared);
    }
    bool all = true;
    for (const LayerStack& wanted : StacksOf(layers, run)) {
      for (const std::string& member : wanted.members) {
        const LayerStack* present = graph.StackOf(member);
        if (present != nullptr && *present != wanted) {
          return Judgement::Refused(absl::StrCat(member, " lies in ", present->role, " already"));
        }
        all = all && present != nullptr;
      }
    }
    return all ? Judgement::Native() : Judgement::Fits();
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transform>> MakeStackLayers(const TransformStep&, const TransformContext&) {
  return std::make_unique<StackLayersTransform>();
}

}  // namespace twinforge
