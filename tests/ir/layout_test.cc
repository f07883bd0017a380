#include "ir/layout.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/rewriter.h"
#include "ir/verify.h"
#include "tests/ir/tiny.h"
#include "weights/build.h"
#include "weights/simplify.h"
#include "weights/text.h"

namespace twinforge {
namespace {

using ::testing::HasSubstr;

constexpr auto kInterleave = Bundle::Arrangement::kInterleave;
constexpr auto kConcat = Bundle::Arrangement::kConcat;

// Every way of lying on disk that the families know, one op each.
struct LayoutCase {
  const char* name;
  OneOp op;
  std::vector<LayoutTensor> tensors;
  std::vector<Bundle> bundles;
};

OpAttrs Mlp(Activation act) {
  OpAttrs attrs;
  attrs.mutable_mlp()->set_act(act);
  return attrs;
}

OpAttrs Moe(int64_t top_k) {
  OpAttrs attrs;
  attrs.mutable_moe()->set_top_k(top_k);
  attrs.mutable_moe()->mutable_expert()->set_act(SILU);
  return attrs;
}

OpAttrs Latent() {
  OpAttrs attrs;
  LatentAttentionAttrs* latent = attrs.mutable_latent_attention();
  latent->set_scale(0.2);
  latent->set_norm_eps(1e-6);
  latent->mutable_rope()->set_style(Rope::INTERLEAVED);
  latent->mutable_rope()->set_theta(10000);
  latent->mutable_rope()->set_rotary_dim(8);
  return attrs;
}

std::vector<LayoutTensor> PerExpert(int64_t experts) {
  return {TensorOf("router", {{"m.router", "expert d_model"}}),
          ExpertsOf("e", ".w1", "m.gate", "d_ff d_model", experts),
          ExpertsOf("e", ".w3", "m.up", "d_ff d_model", experts),
          ExpertsOf("e", ".w2", "m.down", "d_model d_ff", experts)};
}

const std::vector<std::pair<std::string, std::string>> kMoeSlots = {
    {"router", "d_model=16 -> expert=4"},
    {"gate", "expert=4; d_model=16 -> d_ff=12"},
    {"up", "expert=4; d_model=16 -> d_ff=12"},
    {"down", "expert=4; d_ff=12 -> d_model=16"}};

std::vector<LayoutCase> AttentionCases() {
  std::vector<LayoutCase> cases;
  cases.push_back({"phi3 fused qkv",
                   {OpKind::kAttention,
                    AttentionOf(8, 10000),
                    {{"q", "d_model=32 -> heads=4 head_dim=8"},
                     {"k", "d_model=32 -> kv_heads=2 head_dim=8"},
                     {"v", "d_model=32 -> kv_heads=2 head_dim=8"},
                     {"o", "heads=4 head_dim=8 -> d_model=32"}}},
                   {TensorOf("qkv_proj", {{"m.q", "heads*head_dim d_model"},
                                          {"m.k", "kv_heads*head_dim d_model"},
                                          {"m.v", "kv_heads*head_dim d_model"}}),
                    TensorOf("o_proj", {{"m.o", "d_model heads*head_dim"}})},
                   {{"m.qkv", {"m.q", "m.k", "m.v"}, kConcat, 1}}});
  cases.push_back({"gpt2 c_attn and its bias",
                   {OpKind::kAttention,
                    AttentionOf(8, 0),
                    {{"q", "d_model=16 -> heads=2 head_dim=8"},
                     {"k", "d_model=16 -> kv_heads=2 head_dim=8"},
                     {"v", "d_model=16 -> kv_heads=2 head_dim=8"},
                     {"o", "heads=2 head_dim=8 -> d_model=16"},
                     {"q_bias", "heads=2 head_dim=8"},
                     {"k_bias", "kv_heads=2 head_dim=8"},
                     {"v_bias", "kv_heads=2 head_dim=8"},
                     {"o_bias", "d_model=16"}}},
                   {TensorOf("c_attn.weight",
                             {{"m.q", "d_model heads*head_dim"},
                              {"m.k", "d_model kv_heads*head_dim"},
                              {"m.v", "d_model kv_heads*head_dim"}},
                             1),
                    TensorOf("c_attn.bias", {{"m.q_bias", "heads*head_dim"},
                                             {"m.k_bias", "kv_heads*head_dim"},
                                             {"m.v_bias", "kv_heads*head_dim"}}),
                    TensorOf("c_proj.weight", {{"m.o", "heads*head_dim d_model"}}),
                    TensorOf("c_proj.bias", {{"m.o_bias", "d_model"}})},
                   {{"m.qkv", {"m.q", "m.k", "m.v"}, kConcat, 1},
                    {"m.qkv_bias", {"m.q_bias", "m.k_bias", "m.v_bias"}, kConcat, 1}}});
  cases.push_back(
      {"deepseek latent attention",
       {OpKind::kLatentAttention,
        Latent(),
        {{"q_a", "d_model=32 -> q_lora=12"},
         {"q_a_norm", "q_lora=12"},
         {"q_nope", "q_lora=12 -> heads=3 nope_dim=10"},
         {"q_rope", "q_lora=12 -> heads=3 rope_dim=8"},
         {"kv_a", "d_model=32 -> kv_lora=14"},
         {"k_rope", "d_model=32 -> rope_dim=8"},
         {"kv_a_norm", "kv_lora=14"},
         {"k_b", "kv_lora=14 -> heads=3 nope_dim=10"},
         {"v_b", "kv_lora=14 -> heads=3 v_head_dim=6"},
         {"o", "heads=3 v_head_dim=6 -> d_model=32"}}},
       {TensorOf("q_a_proj", {{"m.q_a", "q_lora d_model"}}),
        TensorOf("q_a_layernorm", {{"m.q_a_norm", "q_lora"}}),
        TensorOf("q_b_proj", {{"m.q_nope", "heads*nope_dim q_lora"}, {"m.q_rope", "heads*rope_dim q_lora"}},
                 1),
        TensorOf("kv_a_proj_with_mqa", {{"m.kv_a", "kv_lora d_model"}, {"m.k_rope", "rope_dim d_model"}}),
        TensorOf("kv_a_layernorm", {{"m.kv_a_norm", "kv_lora"}}),
        TensorOf("kv_b_proj", {{"m.k_b", "heads*nope_dim kv_lora"}, {"m.v_b", "heads*v_head_dim kv_lora"}},
                 1),
        TensorOf("o_proj", {{"m.o", "d_model heads*v_head_dim"}})},
       {}});
  return cases;
}

std::vector<LayoutCase> ExpertCases() {
  std::vector<LayoutCase> cases;
  cases.push_back({"phi3 fused gate_up",
                   {OpKind::kGatedMlp,
                    Mlp(SILU),
                    {{"gate", "d_model=16 -> d_ff=12"},
                     {"up", "d_model=16 -> d_ff=12"},
                     {"down", "d_ff=12 -> d_model=16"}}},
                   {TensorOf("gate_up_proj", {{"m.gate", "d_ff d_model"}, {"m.up", "d_ff d_model"}}),
                    TensorOf("down_proj", {{"m.down", "d_model d_ff"}})},
                   {{"m.gate_up", {"m.gate", "m.up"}, kConcat, 1}}});
  cases.push_back({"one tensor per expert", {OpKind::kMoe, Moe(2), kMoeSlots}, PerExpert(4), {}});
  cases.push_back(
      {"experts stacked, gate and up joined",
       {OpKind::kMoe, Moe(2), kMoeSlots},
       {TensorOf("router", {{"m.router", "expert d_model"}}),
        TensorOf("gate_up_proj", {{"m.gate", "expert d_ff d_model"}, {"m.up", "expert d_ff d_model"}}, 1),
        TensorOf("down_proj", {{"m.down", "expert d_model d_ff"}})},
       {{"m.gate_up", {"m.gate", "m.up"}, kConcat, 1}}});
  std::vector<std::pair<std::string, std::string>> slots = kMoeSlots;
  slots.emplace_back("gate_bias", "expert=4; d_ff=12");
  slots.emplace_back("up_bias", "expert=4; d_ff=12");
  cases.push_back(
      {"gpt-oss, gate and up interleaved",
       {OpKind::kMoe, Moe(2), slots},
       {TensorOf("router", {{"m.router", "expert d_model"}}),
        TensorOf("gate_up_proj", {{"m.gate", "expert d_model d_ff"}, {"m.up", "expert d_model d_ff"}}, 2,
                 kInterleave),
        TensorOf("gate_up_proj_bias", {{"m.gate_bias", "expert d_ff"}, {"m.up_bias", "expert d_ff"}}, 1,
                 kInterleave),
        TensorOf("down_proj", {{"m.down", "expert d_ff d_model"}})},
       {{"m.gate_up", {"m.gate", "m.up"}, kInterleave, 1},
        {"m.gate_up_bias", {"m.gate_bias", "m.up_bias"}, kInterleave, 1}}});
  return cases;
}

std::vector<LayoutCase> AllCases() {
  std::vector<LayoutCase> cases = AttentionCases();
  for (LayoutCase& one : ExpertCases()) cases.push_back(std::move(one));
  return cases;
}

Layout LayoutFor(const LayoutCase& one) {
  Layout layout;
  layout.tensors = one.tensors;
  return layout;
}

std::string MessageOf(const absl::Status& status) { return status.ok() ? "ok" : Render(status); }

TEST(LayoutTest, AnUntouchedGraphGoesBackToItsSources) {
  for (const LayoutCase& one : AllCases()) {
    SCOPED_TRACE(one.name);
    const Layout layout = LayoutFor(one);
    const TinyModel model = TinyOf(one.op, layout, one.bundles);
    absl::StatusOr<std::vector<NamedProgram>> files = FilesFromGraph(layout, model.graph);
    ASSERT_TRUE(files.ok()) << files.status();
    ASSERT_EQ(files->size(), model.stored.size());
    for (const NamedProgram& file : *files) {
      EXPECT_EQ(file.program, model.stored.at(file.name)) << file.name << " = " << Text(file.program);
    }
  }
}

// Bundles are how the twin's own layout fuses; a layout that fuses does not need them.
TEST(LayoutTest, AnAxisThatTheParameterLacksIsTheFamilysMistake) {
  ParamType type;
  type.axes = {{"d_model", 8, 8}, {"d_ff", 12, 12}};
  type.in = 1;
  const LayoutTensor tensor{"up.weight", "", {{"layers.0.mlp.up", {{"d_ffn"}, {"d_model"}}, 0}}};
  const absl::StatusOr<Shape> shape = StoredShape(tensor, {{"layers.0.mlp.up", type}});
  ASSERT_FALSE(shape.ok());
  EXPECT_EQ(DiagnosticOf(shape.status())->code, 1503);
  EXPECT_EQ(ExitCodeOf(shape.status()), ExitCode::kInternal);
}

TEST(LayoutTest, AFusedLayoutNeedsNoBundle) {
  for (const LayoutCase& one : AllCases()) {
    const Layout layout = LayoutFor(one);
    EXPECT_TRUE(FilesFromGraph(layout, TinyOf(one.op, layout).graph).ok()) << one.name;
  }
}

// Role by role: each twin tensor, read back, is the parameter again.
TEST(TwinTest, RolesComeBackFromTheirTensors) {
  for (const LayoutCase& one : AllCases()) {
    SCOPED_TRACE(one.name);
    const TinyModel model = TinyOf(one.op, LayoutFor(one), one.bundles);
    Bindings bindings;
    for (const TwinTensor& tensor : TwinTensors(model.graph))
      bindings.emplace_back(tensor.name, tensor.program);
    std::sort(bindings.begin(), bindings.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    const std::map<std::string, WeightPtr> roles = RolesFromTwin(model.graph);
    ASSERT_EQ(roles.size(), model.graph.params().size());
    for (const auto& [role, program] : roles) {
      EXPECT_EQ(Substitute(program, bindings), model.graph.FindParam(role)->program)
          << role << " = " << Text(program);
    }
  }
}

TEST(TwinTest, KernelsAreMatricesThatLieAsStorageSays) {
  Graph graph = TinyLlama(true);
  Rewriter rewriter(graph, "1 test");
  rewriter.SetStorage("layers.0.attn.o", {Orientation::kInOut, false});
  rewriter.AddBundle(
      {"layers.0.attn.qkv", {"layers.0.attn.q", "layers.0.attn.k", "layers.0.attn.v"}, kConcat, 2});
  ASSERT_TRUE(Verify(graph).ok()) << Verify(graph);
  std::map<std::string, TwinTensor> tensors;
  for (TwinTensor& tensor : TwinTensors(graph)) tensors[tensor.name] = tensor;
  EXPECT_EQ(Text(tensors.at("layers.0.attn.o").program),
            "transpose(source(\"o_proj\": bf16[64, 64]), [1, 0])");
  // Shard 0 has heads 0 and 1 of q, head 0 of k and of v; shard 1 the others.
  EXPECT_EQ(
      Text(tensors.at("layers.0.attn.qkv").program),
      "concat(0, take(source(\"q_proj\": bf16[64, 64]), 0, [0:32]), take(source(\"k_proj\": bf16[32, 64]), "
      "0, "
      "[0:16]), take(source(\"v_proj\": bf16[32, 64]), 0, [0:16]), take(source(\"q_proj\": bf16[64, 64]), 0, "
      "[32:64]), take(source(\"k_proj\": bf16[32, 64]), 0, [16:32]), take(source(\"v_proj\": bf16[32, 64]), "
      "0, "
      "[16:32]))");
  // The tied head lies as its table does, so it is the same tensor.
  EXPECT_EQ(tensors.at("embed").roles, (std::vector<std::string>{"embed", "lm_head"}));
  EXPECT_FALSE(tensors.contains("lm_head"));
}

TEST(TwinTest, ATiedHeadTurnedTheOtherWayIsStoredOnceMore) {
  Graph graph = TinyLlama(true);
  Rewriter(graph, "1 test").SetStorage("lm_head", {Orientation::kInOut, false});
  std::map<std::string, TwinTensor> tensors;
  for (TwinTensor& tensor : TwinTensors(graph)) tensors[tensor.name] = tensor;
  EXPECT_EQ(tensors.at("lm_head").program->shape(), (Shape{64, 300}));
}

TEST(LayoutTest, PaddingBetweenImportAndExportIsOneTake) {
  Graph graph = TinyLlama(true);
  Rewriter rewriter(graph, "1 test");
  ParamType type = graph.FindParam("layers.0.attn.q")->type;
  type.axes[2].size = 20;
  rewriter.SetParam("layers.0.attn.q", type, Pad(graph.FindParam("layers.0.attn.q")->program, 2, 4));
  absl::StatusOr<std::vector<NamedProgram>> files = FilesFromGraph(LlamaLayout(), graph);
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ((*files)[2].name, "q_proj");
  EXPECT_EQ(Text((*files)[2].program), "take(source(\"q_proj\": bf16[64, 64]), 0, [0:16 fill:4] x 4)");
}

TEST(LayoutTest, TiesAreLeftOut) {
  const Layout layout = LlamaLayout();
  EXPECT_EQ(FilesFromGraph(layout, TinyLlama(true))->size(), 9);
  EXPECT_EQ(FilesFromGraph(layout, TinyLlama(false))->size(), 10);
  // A tied role that was changed on its own is written.
  Graph graph = TinyLlama(true);
  Rewriter rewriter(graph, "1 test");
  const Param& head = *graph.FindParam("lm_head");
  rewriter.SetParam("lm_head", head.type, Scale(head.program, 2));
  EXPECT_EQ(FilesFromGraph(layout, graph)->size(), 10);
}

// ---- refusals, each with its reason

using Change = void (*)(Rewriter&);
struct RefusalCase {
  const char* reason;
  Change change;
};

void Regroup(Rewriter& rewriter) {
  // Two by two: [expert; d_model -> d_ff] to [expert_group; d_model -> member d_ff].
  for (const char* role : {"m.gate", "m.up"}) {
    const Param& param = *rewriter.graph().FindParam(role);
    WeightPtr grouped = Transpose(Reshape(param.program, {2, 2, 16, 12}), {0, 2, 1, 3});
    rewriter.SetParam(role, TypeOf("expert_group=2; d_model=16 -> member=2 d_ff=12"), grouped);
    rewriter.SetStorage(role, {Orientation::kOutIn, false});
  }
  const Param& down = *rewriter.graph().FindParam("m.down");
  rewriter.SetParam("m.down", TypeOf("expert_group=2; member=2 d_ff=12 -> d_model=16"),
                    Reshape(down.program, {2, 2, 12, 16}));
  rewriter.SetStorage("m.down", {Orientation::kOutIn, false});
}

TEST(LayoutTest, RefusesWhatAPlainLayoutCannotSay) {
  const RefusalCase cases[] = {
      {"error[TF1601]: layers.0.attn.q: after step 3 test: it lies [in, out], the layout stores it [out, in]",
       [](Rewriter& r) {
         r.SetStorage("layers.0.attn.q", {Orientation::kInOut, false});
       }},
      {"error[TF1601]: layers.0.mlp.gate: after step 3 test: it lies fused in layers.0.mlp.gate_up, the "
       "layout stores "
       "it alone in \"gate_proj\"",
       [](Rewriter& r) {
         r.AddBundle({"layers.0.mlp.gate_up", {"layers.0.mlp.gate", "layers.0.mlp.up"}, kConcat, 1});
       }},
      {"error[TF1601]: lm_head: after step 3 test: it is tied to embed, which lies the other way",
       [](Rewriter& r) {
         r.SetStorage("lm_head", {Orientation::kInOut, false});
       }},
      {"error[TF1601]: layers.0.attn.q_bias: after step 3 test: the layout has no place for it",
       [](Rewriter& r) {
         r.AddParam(r.graph().FindNode("layers.0.attn")->id, "q_bias", TypeOf("heads=4 head_dim=16"),
                    Fill(0, DType::kBF16, {4, 16}), {});
       }},
  };
  for (const RefusalCase& one : cases) {
    Graph graph = TinyLlama(true);
    Rewriter rewriter(graph, "3 test");
    one.change(rewriter);
    // What a later step did to the same nodes is not to blame.
    Rewriter later(graph, "4 later");
    for (NodeId id = 1; id < static_cast<NodeId>(graph.nodes().size()); ++id)
      later.SetAttrs(id, *graph.node(id).attrs);
    ASSERT_TRUE(Verify(graph).ok()) << Verify(graph);
    EXPECT_THAT(MessageOf(FilesFromGraph(LlamaLayout(), graph).status()), HasSubstr(one.reason));
  }
}

TEST(LayoutTest, RefusesExpertsThatLieOtherwise) {
  const RefusalCase cases[] = {
      {"it lies [out, in], the layout stores it [out, in], one tensor per expert",
       [](Rewriter& r) {
         r.SetStorage("m.up", {Orientation::kOutIn, false});
       }},
      {"m.gate: after step 3 test: the layout stores 4 experts apart, but it is bf16[expert_group=2; "
       "d_model=16 -> "
       "member=2, d_ff=12]",
       Regroup},
  };
  Layout layout;
  layout.tensors = PerExpert(4);
  for (const RefusalCase& one : cases) {
    TinyModel model = TinyOf({OpKind::kMoe, Moe(2), kMoeSlots}, layout);
    Rewriter rewriter(model.graph, "3 test");
    one.change(rewriter);
    ASSERT_TRUE(Verify(model.graph).ok()) << Verify(model.graph);
    EXPECT_THAT(MessageOf(FilesFromGraph(layout, model.graph).status()), HasSubstr(one.reason));
  }
}

TEST(LayoutTest, RefusesABundleCutForShards) {
  const LayoutCase phi3 = AttentionCases()[0];
  TinyModel model = TinyOf(phi3.op, LayoutFor(phi3), {{"m.qkv", {"m.q", "m.k", "m.v"}, kConcat, 2}});
  EXPECT_THAT(MessageOf(FilesFromGraph(LayoutFor(phi3), model.graph).status()),
              HasSubstr("m.qkv is cut for 2 shards, the layout stores it whole"));
  model = TinyOf(phi3.op, LayoutFor(phi3), {{"m.kqv", {"m.k", "m.q", "m.v"}, kConcat, 1}});
  EXPECT_THAT(MessageOf(FilesFromGraph(LayoutFor(phi3), model.graph).status()),
              HasSubstr("it lies fused in m.kqv"));
}

TEST(LayoutTest, AMissingTensorThatIsNotOptionalIsRefused) {
  Layout layout = LlamaLayout();
  layout.tensors.push_back(TensorOf("final_norm", {{"norm", "d_model"}}));
  EXPECT_THAT(MessageOf(FilesFromGraph(layout, TinyLlama(true)).status()),
              HasSubstr("error[TF1601]: norm: the model does not have it, and \"final_norm\" needs it"));
}

TEST(LayoutTest, GroupedExpertsGoToTheTwinAsTheyAre) {
  Layout layout;
  layout.tensors = PerExpert(4);
  TinyModel model = TinyOf({OpKind::kMoe, Moe(2), kMoeSlots}, layout);
  Rewriter rewriter(model.graph, "3 test");
  Regroup(rewriter);
  for (const TwinTensor& tensor : TwinTensors(model.graph)) {
    if (tensor.name == "m.router") continue;
    const Shape want = tensor.name == "m.down" ? Shape{2, 16, 24} : Shape{2, 24, 16};
    EXPECT_EQ(tensor.program->shape(), want) << tensor.name;
  }
}

TEST(GraphTest, TiedParametersCountOnce) {
  EXPECT_EQ(StoredElements(TinyLlama(false)) - StoredElements(TinyLlama(true)), 300 * 64);
}

}  // namespace
}  // namespace twinforge
