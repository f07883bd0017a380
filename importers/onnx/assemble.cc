#include "importers/onnx/assemble.h"

#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/json_reader.h"
#include "base/status_macros.h"
#include "importers/onnx/blocks.h"
#include "ir/builder.h"
#include "onnx/onnx-ml.pb.h"

namespace twinforge {
namespace {

// The operation that a block is, and its path where no layer is around it.
std::pair<OpKind, const char*> OpOf(const RaisedBlock& block) {
  switch (block.kind) {
    case BlockKind::kEmbedding:
      return {OpKind::kEmbedding, "embed"};
    case BlockKind::kNorm:
      return {block.rms ? OpKind::kRmsNorm : OpKind::kLayerNorm, "norm"};
    case BlockKind::kAdd:
      return {OpKind::kAdd, "add"};
    case BlockKind::kLinear:
      return {OpKind::kLinear, "dense"};
    case BlockKind::kActivation:
      return {OpKind::kActivation, "act"};
    case BlockKind::kAttention:
      return {OpKind::kAttention, "attn"};
    case BlockKind::kMlp:
      return {OpKind::kMlp, "mlp"};
    case BlockKind::kGatedMlp:
      return {OpKind::kGatedMlp, "mlp"};
    case BlockKind::kMoe:
      return {OpKind::kMoe, "moe"};
  }
  return {OpKind::kOpaque, ""};
}

class Assembler {
 public:
  Assembler(const OnnxTrace& trace, const std::map<int, int64_t>& windows);
  absl::StatusOr<Graph> Assemble();

 private:
  absl::StatusOr<Flow> OutputFlow() const;
  absl::Status CheckOthers() const;
  absl::Status Find(int head);
  void Label(int term, const std::string& label) { labels_.emplace(term, label); }
  void LabelInputs(int id, const RaisedBlock& block);
  std::string PathOf(int term, const std::string& otherwise);
  absl::Status Put(int id, const RaisedBlock& block);
  absl::Status PutHead(const Flow& flow);

  const OnnxTrace& trace_;
  BlockFinder blocks_;
  Builder builder_;
  std::map<int, RaisedBlock> found_;  // by term, ascending: what the output needs
  std::map<int, int64_t> layers_;
  std::map<int, std::string> labels_;
  std::map<int, NodeId> ids_;
  std::map<std::string, int> used_;
  std::map<int, int64_t> windows_;  // by term
  NodeId tokens_ = -1;
};

Assembler::Assembler(const OnnxTrace& trace, const std::map<int, int64_t>& windows)
    : trace_(trace), blocks_(trace), builder_("onnx") {
  int count = 0;
  for (size_t id = 0; id < trace.terms().size(); ++id) {
    if (trace.terms()[id].kind != TermKind::kAttend) continue;
    const auto window = windows.find(count++);
    if (window != windows.end()) windows_[static_cast<int>(id)] = window->second;
  }
}

// The output that is neither a cache nor another's copy: the first that tokens decide.
absl::StatusOr<Flow> Assembler::OutputFlow() const {
  const OnnxGraph& graph = trace_.model().graph;
  const int32_t slot = graph.outputs.empty() ? -1 : graph.outputs[0];
  const std::string place = trace_.model().path;
  if (slot < 0) return Error(2010, place, "the graph has no output");
  const TracedValue& value = trace_.value(slot);
  if (value.flow) return *value.flow;
  if (value.cause < 0) {
    return Error(2010, absl::StrCat(place, ": output ", JsonQuoted(graph.names[slot], 200)),
                 "does not depend on tokens", "a language model's first output is its logits");
  }
  return blocks_.NotUnderstood(value.cause);
}

// What the term `head` needs, each with the block that it is.
absl::Status Assembler::Find(int head) {
  std::set<int> open = {head};
  while (!open.empty()) {
    const int id = *open.rbegin();
    open.erase(std::prev(open.end()));
    TWIN_ASSIGN_OR_RETURN(RaisedBlock block, blocks_.Of(id));
    if (block.kind == BlockKind::kAttention) {
      const auto window = windows_.find(trace_.term(id).in[0].term);
      if (window != windows_.end()) block.attrs.mutable_attention()->set_window(window->second);
    }
    for (const int input : block.inputs) open.insert(input);
    found_.emplace(id, std::move(block));
  }
  int64_t attention = 0, feed = 0;
  for (const auto& [id, block] : found_) {
    if (block.kind == BlockKind::kAttention) layers_[id] = attention++;
    if (block.kind == BlockKind::kMlp || block.kind == BlockKind::kGatedMlp || block.kind == BlockKind::kMoe)
      layers_[id] = feed++;
  }
  for (auto it = found_.rbegin(); it != found_.rend(); ++it) LabelInputs(it->first, it->second);
  return absl::OkStatus();
}

void Assembler::LabelInputs(int id, const RaisedBlock& block) {
  const auto layer = layers_.find(id);
  if (layer != layers_.end()) {
    const bool attention = block.kind == BlockKind::kAttention;
    const std::string at = absl::StrCat("layers.", layer->second);
    const bool mixture = block.kind == BlockKind::kMoe;
    Label(id, at + (attention ? ".attn" : mixture ? ".moe" : ".mlp"));
    if (found_.at(block.inputs[0]).kind == BlockKind::kNorm)
      Label(block.inputs[0], at + (attention ? ".norm_in" : ".norm_mid"));
    return;
  }
  if (block.kind == BlockKind::kNorm && layers_.contains(block.inputs[0])) {
    const bool attention = found_.at(block.inputs[0]).kind == BlockKind::kAttention;
    Label(id, absl::StrCat("layers.", layers_[block.inputs[0]], attention ? ".norm_attn" : ".norm_mlp"));
  }
  if (block.kind != BlockKind::kAdd) return;
  for (const int input : block.inputs) {
    const RaisedBlock& side = found_.at(input);
    const int inner = side.kind == BlockKind::kNorm ? side.inputs[0] : input;
    const auto of = layers_.find(inner);
    if (of == layers_.end()) continue;
    const bool attention = found_.at(inner).kind == BlockKind::kAttention;
    Label(id, absl::StrCat("layers.", of->second, attention ? ".add_attn" : ".add_mlp"));
  }
}

// Each path once.
std::string Assembler::PathOf(int term, const std::string& otherwise) {
  const auto label = labels_.find(term);
  const std::string path = label == labels_.end() ? otherwise : label->second;
  const int count = used_[path]++;
  return count == 0 ? path : absl::StrCat(path, "_", count + 1);
}

absl::Status Assembler::Put(int id, const RaisedBlock& block) {
  std::vector<NodeId> operands;
  for (const int input : block.inputs) operands.push_back(ids_.at(input));
  if (block.kind == BlockKind::kEmbedding) operands = {tokens_};
  const auto [op, name] = OpOf(block);
  ids_[id] = builder_.Op(op, PathOf(id, name), std::move(operands), block.attrs, block.params);
  if (builder_.status().ok()) return absl::OkStatus();
  const std::optional<Diagnostic> said = DiagnosticOf(builder_.status());
  return Error(2010, absl::StrCat(trace_.model().path, ": ", trace_.NodeName(trace_.term(id).node)),
               absl::StrCat("the block that ends here fits no operation of the graph: ",
                            said ? said->message : std::string(builder_.status().message())));
}

absl::Status Assembler::PutHead(const Flow& flow) {
  TWIN_ASSIGN_OR_RETURN(const HeadBlock head, blocks_.HeadOf(flow));
  TWIN_RETURN_IF_ERROR(Find(head.input));
  tokens_ =
      builder_.Input("tokens", {DType::kI32, {{"batch", Dim::Symbol("batch")}, {"seq", Dim::Symbol("seq")}}});
  for (const auto& [id, block] : found_) TWIN_RETURN_IF_ERROR(Put(id, block));
  if (!head.head) {
    builder_.Output("hidden", ids_.at(head.input));
    return absl::OkStatus();
  }
  const NodeId logits =
      builder_.Op(OpKind::kLmHead, "lm_head", {ids_.at(head.input)}, head.attrs, head.params);
  builder_.Output("logits", logits);
  return absl::OkStatus();
}

// Heads of a projection, [batch, heads, seq, width].
absl::Status Assembler::CheckOthers() const {
  const OnnxGraph& graph = trace_.model().graph;
  for (size_t i = 1; i < graph.outputs.size(); ++i) {
    const TracedValue& value = trace_.value(graph.outputs[i]);
    const TermKind kind = value.flow ? trace_.term(*value.flow).kind : TermKind::kOther;
    const bool cache =
        (kind == TermKind::kLinear || kind == TermKind::kNorm) && value.flow->shape.size() == 4;
    if (cache) continue;
    return Error(
        2010, absl::StrCat(trace_.model().path, ": output ", JsonQuoted(graph.names[graph.outputs[i]], 200)),
        "is neither the first output nor keys or values for later calls",
        "export the model with its logits alone");
  }
  return absl::OkStatus();
}

absl::StatusOr<Graph> Assembler::Assemble() {
  TWIN_ASSIGN_OR_RETURN(const Flow flow, OutputFlow());
  TWIN_RETURN_IF_ERROR(PutHead(flow));
  TWIN_RETURN_IF_ERROR(CheckOthers());
  absl::StatusOr<Graph> graph = builder_.Finish();
  if (graph.ok()) return graph;
  const std::optional<Diagnostic> said = DiagnosticOf(graph.status());
  if (!said) return graph;
  return Error(2010, trace_.model().path,
               absl::StrCat("what is raised is no sound model: ", said->place, ": ", said->message));
}

}  // namespace

absl::StatusOr<Graph> AssembleGraph(const OnnxTrace& trace, const std::map<int, int64_t>& windows) {
  return Assembler(trace, windows).Assemble();
}

}  // namespace twinforge
