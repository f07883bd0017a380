#include <vector>

#include "tests/proof/seeded_bugs.h"
#include "weights/build.h"

namespace twinforge {
namespace {

constexpr char kPadFfn[] = "step { pad_ffn { multiple: 8 } }";
constexpr char kPadParts[] = "step { pad_ffn { multiple: 4 shards: 2 } }";
constexpr char kStack[] = "step { stack_experts { } }";

std::vector<int64_t> OffByOne(int64_t size) {
  std::vector<int64_t> order;
  for (int64_t i = 0; i < size; ++i) order.push_back((i + 1) % size);
  return order;
}

// 0 1 .. 6 p | 7 .. 13 p -> 0 .. 13 p p
std::vector<int64_t> PadsAtTheTail(int64_t size) {
  std::vector<int64_t> order;
  for (int64_t i = 0; i < size; ++i) {
    if (i % (size / 2) != size / 2 - 1) order.push_back(i);
  }
  order.push_back(size / 2 - 1);
  order.push_back(size - 1);
  return order;
}

std::vector<int64_t> FirstTwoSwapped(int64_t size) {
  std::vector<int64_t> order;
  for (int64_t i = 0; i < size; ++i) order.push_back(i == 0 ? 1 : i == 1 ? 0 : i);
  return order;
}

std::function<void(Rewriter&)> Moe(std::string path, std::function<void(MoeAttrs&)> change) {
  return Attrs(std::move(path), [=](OpAttrs& attrs) { change(*attrs.mutable_moe()); });
}

std::vector<SeededBug> MlpBugs() {
  return {
      {"gate and up swapped", "llama", "step { fuse_gate_up { } }", 1, "layers.1",
       Swapped("layers.1.mlp.gate", "layers.1.mlp.up")},
      {"gate's shards padded otherwise than up's", "llama", kPadParts, 1, "layers.1",
       Reordered("layers.1.mlp.gate", "d_ff", PadsAtTheTail)},
      {"down projection off by one place", "llama", kPadFfn, 1, "layers.2",
       Reordered("layers.2.mlp.down", "d_ff", OffByOne)},
      {"weights of the layer before", "llama", kPadFfn, 1, "layers.1",
       Program("layers.1.mlp.up",
               [](const Graph& graph, const Param&) { return graph.FindParam("layers.0.mlp.up")->program; })},
      {"another activation", "gpt2", kPadFfn, 1, "layers.1",
       Attrs("layers.1.mlp", [](OpAttrs& attrs) { attrs.mutable_mlp()->set_act(GELU); })},
      {"bias before the activation dropped", "gpt2", kPadFfn, 1, "layers.0",
       Dropped("layers.0.mlp", "up_bias")},
      {"bias after the block dropped", "llama_biases", kPadFfn, 1, "layers.2",
       Dropped("layers.2.mlp", "down_bias")},
  };
}

std::vector<SeededBug> ExpertBugs() {
  return {
      {"expert off by one", "mixtral", kStack, 1, "layers.1",
       Reordered("layers.1.moe.gate", "expert", OffByOne)},
      {"two experts swapped in one kernel", "qwen3_moe", kStack, 1, "layers.2",
       Reordered("layers.2.moe.down", "expert", FirstTwoSwapped)},
      {"router's rows in another order than the experts", "mixtral", kStack, 1, "layers.0",
       Reordered("layers.0.moe.router", "expert", FirstTwoSwapped)},
      {"router weights not normalised", "qwen3_moe", kStack, 1, "layers.1",
       Moe("layers.1.moe", [](MoeAttrs& a) { a.set_renormalize(false); })},
      {"one expert too many", "mixtral", kStack, 1, "layers.2",
       Moe("layers.2.moe", [](MoeAttrs& a) { a.set_top_k(a.top_k() + 1); })},
      {"softmax over all experts instead of the chosen", "gpt_oss", kStack, 1, "layers.1",
       Moe("layers.1.moe",
           [](MoeAttrs& a) {
             a.set_score(MoeAttrs::SOFTMAX_ALL);
             a.set_renormalize(false);
           })},
      {"scale of the routed experts lost", "deepseek_v3", kStack, 1, "layers.1",
       Moe("layers.1.moe", [](MoeAttrs& a) { a.set_routed_scale(a.routed_scale() == 1 ? 2 : 1); })},
      {"expert groups lost", "deepseek_v3", kStack, 1, "layers.2",
       Moe("layers.2.moe",
           [](MoeAttrs& a) {
             a.set_groups(0);
             a.set_top_groups(0);
           })},
      {"correction of the router's choice off by one", "deepseek_v3", kStack, 1, "layers.2",
       Reordered("layers.2.moe.router_correction", "expert", OffByOne)},
      {"shared expert's gate and up swapped", "deepseek_v3", "step { fuse_gate_up { } }", 1, "layers.1",
       Swapped("layers.1.moe.shared_gate", "layers.1.moe.shared_up")},
      {"clamp of the experts lost", "gpt_oss", kStack, 1, "layers.0",
       Moe("layers.0.moe", [](MoeAttrs& a) { a.mutable_expert()->set_clamp_limit(1e6); })},
      {"offset of up lost", "gpt_oss", kStack, 1, "layers.1",
       Moe("layers.1.moe", [](MoeAttrs& a) { a.mutable_expert()->set_up_offset(0); })},
      {"experts' bias off by one expert", "gpt_oss", kStack, 1, "layers.2",
       Reordered("layers.2.moe.down_bias", "expert", OffByOne)},
  };
}

}  // namespace

std::vector<SeededBug> FeedForwardBugs() {
  std::vector<SeededBug> bugs = MlpBugs();
  for (SeededBug& bug : ExpertBugs()) bugs.push_back(std::move(bug));
  return bugs;
}

}  // namespace twinforge
