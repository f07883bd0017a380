#include "ir/text.h"

#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "base/diagnostic.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/builder.h"
#include "ir/rewriter.h"
#include "ir/verify.h"
#include "tests/ir/tiny.h"
#include "weights/build.h"

namespace twinforge {
namespace {

using ::testing::HasSubstr;

// The whole canonical text of a small graph: what tests, manifests and people read.
constexpr absl::string_view kLlama = R"(graph llama(tokens: i32[batch, seq]) -> (logits: lm_head) {
  embed = embedding(tokens) @embed {}
  layers.0.norm_in = rms_norm(embed) @layers.0.norm_in {eps: 1e-05}
  layers.0.attn = attention(layers.0.norm_in) q=@layers.0.attn.q k=@layers.0.attn.k v=@layers.0.attn.v o=@layers.0.attn.o {scale: 0.25 rope { style: HALVES theta: 10000 rotary_dim: 16 max_position_embeddings: 2048 } causal: true}
  layers.0.add_attn = add(embed, layers.0.attn)
  layers.0.mlp = gated_mlp(layers.0.add_attn) gate=@layers.0.mlp.gate up=@layers.0.mlp.up down=@layers.0.mlp.down {act: SILU} by "2 fuse_gate_up"
  layers.0.add_mlp = add(layers.0.add_attn, layers.0.mlp)
  lm_head = lm_head(layers.0.add_mlp) @lm_head {} by "1 pad_vocab"
}
params {
  @embed: bf16[vocab=300 -> d_model=64] in_out = source("embed_tokens": bf16[300, 64])
  @layers.0.attn.k: bf16[d_model=64 -> kv_heads=2, head_dim=16] out_in = reshape(transpose(source("k_proj": bf16[32, 64]), [1, 0]), [64, 2, 16])
  @layers.0.attn.o: bf16[heads=4, head_dim=16 -> d_model=64] out_in = reshape(transpose(source("o_proj": bf16[64, 64]), [1, 0]), [4, 16, 64])
  @layers.0.attn.q: bf16[d_model=64 -> heads=4, head_dim=16] out_in = reshape(transpose(source("q_proj": bf16[64, 64]), [1, 0]), [64, 4, 16])
  @layers.0.attn.v: bf16[d_model=64 -> kv_heads=2, head_dim=16] out_in = reshape(transpose(source("v_proj": bf16[32, 64]), [1, 0]), [64, 2, 16])
  @layers.0.mlp.down: bf16[d_ff=96 -> d_model=64] out_in = transpose(source("down_proj": bf16[64, 96]), [1, 0])
  @layers.0.mlp.gate: bf16[d_model=64 -> d_ff=96] out_in = transpose(source("gate_proj": bf16[96, 64]), [1, 0])
  @layers.0.mlp.up: bf16[d_model=64 -> d_ff=96] out_in = transpose(source("up_proj": bf16[96, 64]), [1, 0])
  @layers.0.norm_in: bf16[d_model=64] = source("input_layernorm": bf16[64])
  @lm_head: bf16[d_model=64 -> vocab=320~300] out_in = transpose(take(source("lm_head": bf16[300, 64]), 0, [0:300 fill:20]), [1, 0])
}
bundles {
  @layers.0.mlp.gate_up = concat(@layers.0.mlp.gate, @layers.0.mlp.up) shards 2
}
)";

Graph Changed() {
  Graph graph = TinyLlama(false);
  Rewriter pad(graph, "1 pad_vocab");
  const Param& head = *graph.FindParam("lm_head");
  ParamType type = head.type;
  type.axes[1].size = 320;
  pad.SetParam("lm_head", type, Pad(head.program, 1, 20));
  pad.InferTypes();
  Rewriter fuse(graph, "2 fuse_gate_up");
  fuse.AddBundle(
      {"layers.0.mlp.gate_up", {"layers.0.mlp.gate", "layers.0.mlp.up"}, Bundle::Arrangement::kConcat, 2});
  fuse.InferTypes();
  return graph;
}

TEST(TextTest, PrintsCanonically) { EXPECT_EQ(Text(Changed()), kLlama); }

TEST(TextTest, ParsesBackToTheSameGraph) {
  const Graph graph = Changed();
  absl::StatusOr<Graph> parsed = ParseGraph(kLlama);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(Text(*parsed), kLlama);
  for (const auto& [role, param] : graph.params()) {
    EXPECT_EQ(parsed->FindParam(role)->program, param.program) << role;
    EXPECT_EQ(parsed->FindParam(role)->storage, param.storage) << role;
  }
  for (size_t i = 0; i < graph.nodes().size(); ++i) EXPECT_EQ(parsed->nodes()[i].type, graph.nodes()[i].type);
  EXPECT_EQ(parsed->bundles(), graph.bundles());
}

TEST(TextTest, TheHeadHidesPadding) {
  const Graph graph = Changed();
  EXPECT_EQ(Text(graph.FindNode("lm_head")->type), "bf16[batch, seq, vocab=300]");
}

// One change of the text, and what the reader is told.
struct Mistake {
  const char* from;
  const char* to;
  const char* told;
};

TEST(TextTest, MistakesAreToldWithTheirPlace) {
  const Mistake mistakes[] = {
      {"graph llama", "grph llama", "error[TF1502]: 1:1: expected graph "},
      {"i32[batch, seq]", "int[batch, seq]", "1:21: \"int\" is no dtype"},
      {"i32[batch, seq]", "i32[batch=3*, seq]", "size \"3*\": neither a number nor a symbol"},
      {"logits: lm_head", "logits: nowhere", "output logits: no value nowhere"},
      {"= embedding(", "= embeding(", "2:11: \"embeding\" is no op"},
      {"rms_norm(embed)", "rms_norm(x)", "3:3: no value x before this line"},
      {"q=@layers.0.attn.q", "q=@layers.0.attn.qq", "the role is @layers.0.attn.q"},
      {"q=@layers.0.attn.q", "w=@layers.0.attn.q", "attention has no slot w"},
      {"add(embed, layers.0.attn)", "add(embed, layers.0.attn) {eps: 1}", "add has no attributes"},
      {"{act: SILU}", "{act: SILLY}", "6:126: Unknown enumeration value of \"SILLY\" for field \"act\"."},
      {"{act: SILU}", "{act: SILU", "6:129: Message type \"twinforge.MlpAttrs\" has no field named \"by\"."},
      {"eps: 1e-05", "epsilon: 1e-05", "has no field named \"epsilon\""},
      {"add(embed, layers.0.attn)", "add(embed, layers.0.attn) of dot", "\"dot\" is no composite"},
      {"add(embed, layers.0.attn)", "add(embed, layers.0.attn) of linear {eps: 1}",
       "linear has no attributes"},
      {"add(embed, layers.0.attn)", "add(embed, layers.0.attn) of rms_norm {epsilon: 1}",
       "has no field named \"epsilon\""},
      {"@embed: bf16", "@embbed: bf16", "@embed stands nowhere under params"},
      {"source(\"embed_tokens\"", "sourze(\"embed_tokens\"",
       "11:50: weight program: line 1, column 1: unknown verb 'sourze'"},
      {"source(\"embed_tokens\": bf16[300, 64])", "source(\"embed_tokens\": bf16[300, 64]", "no ) closes"},
      {"vocab=300 -> d_model=64] in_out", "vocab=300 -> d_model=64]", "expected out_in"},
      {"[vocab=300 -> d_model=64]", "[vocab=300 -> d_model -> 64]", "expected ="},
      {"vocab=320~300", "vocab=320~", "expected a whole number"},
      {"shards 2\n}", "shards 2\n} more", "text after the graph"},
      // The grammar is kept, the rules of a graph are not: Verify speaks.
      {"theta: 10000", "theta: -1", "error[TF1501]: layers.0.attn: rope theta is -1"},
      {"rotary_dim: 16", "rotary_dim: 18", "rotary_dim 18 of a head of 16"},
      {"scale: 0.25", "scale: nan", "softmax scale is nan"},
      {"{act: SILU}", "{}", "no activation that is known"},
      {"eps: 1e-05", "eps: -1", "eps is -1"},
      {"kv_heads=2, head_dim=16] out_in = reshape(transpose(source(\"k_proj\": bf16[32, 64]), [1, 0]), [64, "
       "2, 16])",
       "kv_heads=1, head_dim=16] out_in = reshape(transpose(source(\"k_proj\": bf16[16, 64]), [1, 0]), [64, "
       "1, 16])",
       "layers.0.attn.v: axis kv_heads is 2~2 here and 1~1 in layers.0.attn.k"},
      {"vocab=320~300", "vocab=320~400", "axis vocab has size 320 and logical size 400"},
      {"vocab=320~300", "vocab=300", "the program has shape [64, 320]"},
      {"@lm_head: bf16", "@lm_head: f32", "the program has dtype bf16"},
      {"[d_ff=96 -> d_model=64]", "[ff=96 -> d_model=64]", "where the slot has [d_ff -> d_model]"},
      {"add(embed, layers.0.attn)", "add(embed)", "add takes 2 operands, not 1"},
      {"add(embed, layers.0.attn)", "add(embed, tokens)", "operands of unequal axes"},
      {"v=@layers.0.attn.v o=", "o=", "no node uses @layers.0.attn.v"},
      {"gate_up = concat(@layers.0.mlp.gate, ", "gate_up = concat(@layers.0.mlp.down, ", "differs in size"},
      {"shards 2", "shards 5", "d_ff 96 of layers.0.mlp.gate does not divide into 5 shards"},
      {"gate_up = concat", "gate = concat", "a parameter has the bundle's role"},
      {"@layers.0.norm_in: bf16[d_model=64]", "@layers.0.norm_in: bf16[d_model=64] per_expert",
       "stored per expert"},
  };
  for (const Mistake& mistake : mistakes) {
    ASSERT_TRUE(absl::StrContains(kLlama, mistake.from)) << mistake.from;
    std::string text(kLlama);
    text.replace(text.find(mistake.from), strlen(mistake.from), mistake.to);
    absl::StatusOr<Graph> parsed = ParseGraph(text);
    ASSERT_FALSE(parsed.ok()) << mistake.from << " became " << mistake.to;
    EXPECT_THAT(Render(parsed.status()), HasSubstr(mistake.told)) << mistake.to;
  }
}

TEST(TextTest, APrefixIsRefusedUnlessItEndsASection) {
  for (size_t size = 0; size + 1 < kLlama.size(); ++size) {
    const bool whole_params = size + 1 >= kLlama.find("bundles") && size <= kLlama.find("bundles");
    EXPECT_EQ(ParseGraph(kLlama.substr(0, size)).ok(), whole_params) << size;
  }
}

TEST(TextTest, SpacesAndLinesDoNotMatter) {
  const std::string text = absl::StrReplaceAll(kLlama, {{", ", " ,\n  "}, {" = ", "="}});
  absl::StatusOr<Graph> parsed = ParseGraph(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(Text(*parsed), kLlama);
}

// ---- sizes

TEST(DimTest, EqualSizesHaveEqualTexts) {
  const Dim batch = Dim::Symbol("batch"), seq = Dim::Symbol("seq");
  EXPECT_EQ((batch * seq + Dim(4) + seq * Dim(2)).Text(), "batch*seq + 2*seq + 4");
  EXPECT_EQ(seq * Dim(2) + batch * seq + Dim(4), *Dim::Parse("4 + seq*batch + seq + seq"));
  EXPECT_EQ((batch + batch * Dim(-1)).Text(), "0");
  EXPECT_EQ((batch * seq).Bind({{"batch", 3}, {"seq", 5}}), 15);
  EXPECT_EQ((batch * seq).Bind({{"batch", 3}}), std::nullopt);
  EXPECT_EQ((batch * batch).Bind({{"batch", int64_t{1} << 40}}), std::nullopt);
  EXPECT_FALSE(Dim::Parse("9223372036854775807 + 1").ok());
  EXPECT_FALSE(Dim::Parse("").ok());
}

// ---- building and rewriting

TEST(BuilderTest, KeepsItsFirstError) {
  Builder builder("g");
  const NodeId x = builder.Input("x", {DType::kF32, {{"d_model", Dim(8), 0}}});
  builder.Add("sum", x, 7);
  builder.Add("sum", x, x);
  builder.Output("y", 99);
  EXPECT_THAT(Render(builder.Finish().status()), HasSubstr("sum: an operand does not come before its user"));
}

TEST(BuilderTest, OneRoleOnce) {
  Builder builder("g");
  const NodeId x = builder.Input("x", {DType::kF32, {{"d_model", Dim(8), 0}}});
  builder.Add("x", x, x);
  EXPECT_THAT(Render(builder.Finish().status()), HasSubstr("x: the path is taken"));
}

TEST(RewriterTest, StampsWhatItTouches) {
  const Graph before = TinyLlama(true);
  Graph graph = before;
  Rewriter rewriter(graph, "3 orient_weights");
  rewriter.SetStorage("layers.0.attn.o", graph.FindParam("layers.0.attn.o")->storage);
  EXPECT_FALSE(rewriter.changed());
  rewriter.SetStorage("layers.0.attn.o", {Orientation::kInOut, false});
  rewriter.SetStorage("layers.0.norm_in", {Orientation::kInOut, false});
  EXPECT_TRUE(rewriter.changed());
  EXPECT_EQ(graph.FindNode("layers.0.attn")->step, "3 orient_weights");
  EXPECT_EQ(graph.FindNode("layers.0.norm_in")->step, "") << "a vector lies one way only";
  EXPECT_EQ(before.FindNode("layers.0.attn")->step, "") << "a graph is a value";
}

TEST(RewriterTest, ParametersComeAndGoInTheOrderOfSlots) {
  Graph graph = TinyLlama(true);
  const std::string text = Text(graph);
  const NodeId attn = graph.FindNode("layers.0.attn")->id;
  Rewriter rewriter(graph, "");
  rewriter.AddParam(attn, "sinks", TypeOf("heads=4"), Fill(0, DType::kBF16, {4}), {});
  rewriter.AddParam(attn, "o_bias", TypeOf("d_model=64"), Fill(0, DType::kBF16, {64}), {});
  ASSERT_TRUE(Verify(graph).ok()) << Verify(graph);
  EXPECT_EQ(graph.node(attn).params[4].first, "o_bias");
  rewriter.RemoveParam(attn, "sinks");
  rewriter.RemoveParam(attn, "o_bias");
  rewriter.AddBundle({"b", {"layers.0.mlp.gate", "layers.0.mlp.up"}});
  EXPECT_EQ(graph.BundleOf("layers.0.mlp.up")->role, "b");
  rewriter.RemoveBundle("b");
  EXPECT_EQ(graph.BundleOf("layers.0.mlp.up"), nullptr);
  EXPECT_EQ(Text(graph), text);
}

TEST(RewriterTest, ARequiredSlotIsMissed) {
  Graph graph = TinyLlama(true);
  Rewriter(graph, "1 test").RemoveParam(graph.FindNode("layers.0.attn")->id, "v");
  EXPECT_THAT(Render(Verify(graph)), HasSubstr("layers.0.attn: no parameter in slot v"));
}

TEST(RewriterTest, TypesFollowThroughTheGraph) {
  Graph graph = TinyLlama(true);
  Rewriter rewriter(graph, "1 test");
  for (const char* role : {"embed", "lm_head"}) {
    ParamType type = graph.FindParam(role)->type;
    const int axis = type.Find("vocab");
    type.axes[axis].size = 320;
    rewriter.SetParam(role, type, Pad(graph.FindParam(role)->program, axis, 20));
  }
  rewriter.InferTypes();
  EXPECT_TRUE(Verify(graph).ok()) << Verify(graph);
  // d_model of one kernel alone: the edge no longer fits, and Verify says where.
  ParamType type = graph.FindParam("layers.0.norm_in")->type;
  type.axes[0].size = 80;
  rewriter.SetParam("layers.0.norm_in", type, Pad(graph.FindParam("layers.0.norm_in")->program, 0, 16));
  rewriter.InferTypes();
  EXPECT_THAT(Render(Verify(graph)), HasSubstr("layers.0.norm_in: axis d_model of the operand"));
}

constexpr absl::string_view kSum = R"(graph g(x: f32[d_model=4]) -> (y: c) {
  a = add(x, x)
  b = negate(a)
  of = abs(b)
  c = add(a, of) of rms_norm {eps: 1e-06} by "1 test"
}
)";

TEST(RewriterTest, NodesComeAndGoAllAtOnce) {
  Graph graph = *ParseGraph(kSum);
  EXPECT_EQ(Text(graph), kSum);
  Rewriter rewriter(graph, "2 test");
  auto origin = std::make_shared<Origin>();
  origin->set_op("linear");
  const NodeId a = graph.FindNode("a")->id, b = graph.FindNode("b")->id;
  rewriter.Replace(
      a,
      [](Rewriter::Moved moved, Builder& to) -> absl::StatusOr<NodeId> {
        const NodeId half = to.Op(OpKind::kNegate, "a.0", {moved(0)}, OpAttrs(), {});
        return to.Op(OpKind::kNegate, "a.1", {half}, OpAttrs(), {});
      },
      origin);
  // What users read instead may be there already.
  rewriter.Replace(b, [a](Rewriter::Moved moved, Builder&) -> absl::StatusOr<NodeId> { return moved(a); });
  EXPECT_TRUE(rewriter.changed());
  EXPECT_NE(graph.FindNode("b"), nullptr);
  ASSERT_TRUE(rewriter.Rebuild().ok());
  EXPECT_EQ(Text(graph), R"(graph g(x: f32[d_model=4]) -> (y: c) {
  a.0 = negate(x) by "2 test"
  a.1 = negate(a.0) of linear by "2 test"
  of = abs(a.1)
  c = add(a.1, of) of rms_norm {eps: 1e-06} by "1 test"
}
)");
}

TEST(RewriterTest, AFailedRebuildLeavesTheGraphAsItWas) {
  Graph graph = *ParseGraph(kSum);
  Rewriter rewriter(graph, "2 test");
  rewriter.Replace(graph.FindNode("b")->id, [](Rewriter::Moved moved, Builder& to) -> absl::StatusOr<NodeId> {
    return to.Op(OpKind::kNegate, "a", {moved(0)}, OpAttrs(), {});
  });
  EXPECT_THAT(Render(rewriter.Rebuild()), HasSubstr("error[TF1501]: a: the path is taken"));
  EXPECT_EQ(Text(graph), kSum);
}

TEST(VerifyTest, AnOriginIsACompositeWithItsAttributes) {
  for (const char* op : {"dot", "gated_mlp", "nothing \x1b[2J"}) {
    Graph graph = *ParseGraph(kSum);
    OpAttrs attrs = *graph.FindNode("c")->attrs;
    attrs.mutable_origin()->set_op(op);
    Rewriter(graph, "2 test").SetAttrs(graph.FindNode("c")->id, attrs);
    EXPECT_THAT(Render(Verify(graph)), HasSubstr("c: it comes of \""));
    EXPECT_THAT(Render(Verify(graph)), HasSubstr("which is no composite, or another one's attributes"));
  }
}

TEST(GraphTest, UsersAreKnown) {
  const Graph graph = TinyLlama(true);
  const NodeId embed = graph.FindNode("embed")->id;
  EXPECT_EQ(graph.UsersOf(embed), (std::vector<NodeId>{graph.FindNode("layers.0.norm_in")->id,
                                                       graph.FindNode("layers.0.add_attn")->id}));
}

TEST(OpTest, TheCatalogueIsConsistent) {
  for (const OpInfo& info : AllOps()) {
    EXPECT_EQ(&Info(info.kind), &info);
    EXPECT_EQ(OpKindFromName(info.name), info.kind);
    for (const SlotInfo& slot : info.slots) {
      EXPECT_EQ(FindSlot(info.kind, slot.name), &slot);
      EXPECT_FALSE(FormsOf(slot).empty());
    }
  }
  EXPECT_EQ(RoleOf(OpKind::kLmHead, "lm_head", "bias"), "lm_head.bias");
  EXPECT_EQ(RoleOf(OpKind::kLmHead, "lm_head", "head"), "lm_head");
}

}  // namespace
}  // namespace twinforge
