#include "importers/compile_layout.h"

#include <algorithm>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "importers/config_sizes.h"
#include "importers/rope_config.h"

namespace twinforge {
namespace {

constexpr absl::string_view kLayer = "{layer}";
constexpr absl::string_view kExpert = "{expert}";

// A text with at most one {layer} and one {expert} after it, cut at both.
struct Template {
  std::string before, middle, after;
  bool layer = false;
  bool expert = false;

  explicit Template(absl::string_view text) {
    const size_t layer_at = text.find(kLayer);
    layer = layer_at != absl::string_view::npos;
    if (layer) {
      before = std::string(text.substr(0, layer_at));
      text.remove_prefix(layer_at + kLayer.size());
    }
    const size_t expert_at = text.find(kExpert);
    expert = expert_at != absl::string_view::npos;
    if (expert) {
      middle = std::string(text.substr(0, expert_at));
      text.remove_prefix(expert_at + kExpert.size());
    }
    after = std::string(text);
  }
  // The whole text, or what stands before the expert's number.
  std::string UpToExpert(int64_t layer_number) const {
    const absl::string_view end = expert ? absl::string_view() : after;
    return layer ? absl::StrCat(before, layer_number, middle, end) : absl::StrCat(before, middle, end);
  }
};

using Extents = std::vector<std::vector<std::string>>;

Extents ParseShape(absl::string_view shape) {
  Extents extents;
  for (absl::string_view extent : absl::StrSplit(shape, ' ', absl::SkipEmpty())) {
    extents.push_back(absl::StrSplit(extent, '*'));
  }
  return extents;
}

// One tensor of the family file, ready to be expanded.
struct Pattern {
  Template name;
  std::vector<Template> roles;
  std::vector<Extents> extents;
  Template bundle;
  const TensorSpec* spec;
};

Pattern MakePattern(const TensorSpec& spec, const LayoutSpec& layout) {
  const auto with_words = [&](std::string text) {
    for (const Word& word : layout.word()) {
      text = absl::StrReplaceAll(text, {{absl::StrCat("{", word.name(), "}"), word.value()}});
    }
    return text;
  };
  Pattern pattern{Template(with_words(spec.name())), {}, {}, Template(spec.bundle()), &spec};
  if (!spec.role().empty()) {
    pattern.roles.emplace_back(spec.role());
    pattern.extents.push_back(ParseShape(with_words(spec.shape())));
  }
  for (const PartSpec& part : spec.part()) {
    pattern.roles.emplace_back(part.role());
    pattern.extents.push_back(ParseShape(with_words(part.shape())));
  }
  TWIN_CHECK(!pattern.roles.empty(), absl::StrCat("tensor without a role: ", spec.name()));
  return pattern;
}

class Compiler {
 public:
  Compiler(const FamilySpec& family, const Blueprint& plan, const LayoutSpec& spec)
      : family_(family), plan_(plan), spec_(spec) {}

  CompiledLayout Compile() {
    out_.layout.name = spec_.name();
    std::vector<Pattern> patterns;
    for (const std::string& use : spec_.use()) {
      const TensorGroup* group = nullptr;
      for (const TensorGroup& one : family_.tensors()) {
        if (one.name() == use) group = &one;
      }
      TWIN_CHECK(group != nullptr, absl::StrCat(family_.name(), ": no tensors are called ", use));
      for (const TensorSpec& tensor : group->tensor()) patterns.push_back(MakePattern(tensor, spec_));
    }
    // Templates of layers that follow each other are expanded layer by layer.
    for (size_t i = 0; i < patterns.size();) {
      size_t end = i + 1;
      while (end < patterns.size() && patterns[end].name.layer == patterns[i].name.layer) ++end;
      const int64_t layers = patterns[i].name.layer ? plan_.layers : 1;
      for (int64_t layer = 0; layer < layers; ++layer) {
        for (size_t k = i; k < end; ++k) Expand(patterns[k], layer);
      }
      i = end;
    }
    return std::move(out_);
  }

 private:
  void Expand(const Pattern& pattern, int64_t layer) {
    std::vector<std::string> roles;
    const ParamType* first = nullptr;
    for (const Template& role : pattern.roles) {
      roles.push_back(role.UpToExpert(layer));
      const auto type = plan_.types.find(roles.back());
      if (type == plan_.types.end()) {
        TWIN_CHECK(first == nullptr, absl::StrCat("half of a tensor's roles are absent: ", roles.back()));
        return;
      }
      if (first == nullptr) first = &type->second;
    }
    const int64_t experts = pattern.name.expert ? first->Get("expert").size : 0;
    LayoutTensor& tensor = out_.layout.tensors.emplace_back();
    tensor.name = pattern.name.UpToExpert(layer);
    if (pattern.name.expert) tensor.name_end = pattern.name.after;
    tensor.join_axis = pattern.spec->join_axis();
    if (pattern.spec->interleave()) tensor.arrangement = Bundle::Arrangement::kInterleave;
    for (size_t i = 0; i < roles.size(); ++i) {
      tensor.parts.push_back({roles[i], pattern.extents[i], experts});
      for (const TieSpec& tie : family_.tie()) tensor.optional = tensor.optional || tie.role() == roles[i];
    }
    if (pattern.spec->bundle().empty()) return;
    Bundle bundle;
    bundle.role = pattern.bundle.UpToExpert(layer);
    bundle.members = std::move(roles);
    if (pattern.spec->interleave()) bundle.arrangement = Bundle::Arrangement::kInterleave;
    out_.bundles.push_back(std::move(bundle));
  }

  const FamilySpec& family_;
  const Blueprint& plan_;
  const LayoutSpec& spec_;
  CompiledLayout out_;
};

ConfigBinding Fixed(const std::string& key, const std::string& json) {
  ConfigBinding binding;
  binding.key = key;
  binding.fact = ConfigBinding::Fact::kFixed;
  binding.text = json;
  return binding;
}

// The key of `keys` that this config uses, or the family's first spelling.
std::string KeyInUse(const ConfigView& config, const google::protobuf::RepeatedPtrField<std::string>& keys) {
  const std::string present = config.FirstKey(keys);
  return present.empty() ? keys.Get(0) : present;
}

class Binder {
 public:
  using Fact = ConfigBinding::Fact;
  Binder(const FamilySpec& family, const ConfigView& config, const Blueprint& plan)
      : family_(family), config_(config), plan_(plan) {}

  std::vector<ConfigBinding> Bind() {
    for (const DimSpec& dim : family_.dim()) BindDim(dim);
    for (const MirrorSpec& mirror : family_.mirror()) {
      ConfigBinding& binding = Add(mirror.plus().empty() ? Fact::kAxis : Fact::kAxisSum, mirror.key());
      binding.axis = mirror.axis();
      binding.text = mirror.plus();
      binding.only_if_present = true;
    }
    const BlockSpec& block = family_.block();
    BindNumber(Fact::kNormEps, block.norm().eps());
    if (block.attention().has_rope()) BindRope(block.attention().rope());
    if (block.latent_attention().has_rope()) BindRope(block.latent_attention().rope());
    if (block.attention().has_scale_power()) {
      BindNumber(Fact::kSoftmaxScalePower, block.attention().scale_power());
    }
    if (block.has_moe()) BindNumber(Fact::kTopK, block.moe().top_k());
    for (const char* key : {"dtype", "torch_dtype"}) {
      if (config_.Find(key) != nullptr) Add(Fact::kDType, key).only_if_present = true;
    }
    return std::move(bindings_);
  }

 private:
  ConfigBinding& Add(Fact fact, std::string key) {
    ConfigBinding& binding = bindings_.emplace_back();
    binding.fact = fact;
    binding.key = std::move(key);
    return binding;
  }
  void BindNumber(Fact fact, const Number& number) {
    ConfigBinding& binding = Add(fact, KeyInUse(config_, number.key()));
    if (number.has_absent()) binding.implied = number.absent();
  }
  void BindDim(const DimSpec& dim) {
    if (dim.key().empty() || dim.counts_only() || plan_.dims.at(dim.name()) == 0) return;
    ConfigBinding& binding =
        Add(dim.per().empty() ? Fact::kAxis : Fact::kAxisQuotient, KeyInUse(config_, dim.key()));
    binding.axis = dim.axis().empty() ? dim.name() : dim.axis();
    binding.text = dim.per();
    binding.scope = dim.scope();
    if (dim.absent().empty()) return;
    const absl::StatusOr<int64_t> absent = Evaluate(dim.absent(), plan_.dims, config_.place());
    if (absent.ok()) binding.implied = static_cast<double>(*absent);
    const std::vector<std::string> words = absl::StrSplit(dim.absent(), ' ');
    for (const DimSpec& other : family_.dim()) {
      if (other.key().empty() || std::find(words.begin(), words.end(), other.name()) == words.end()) continue;
      binding.implied_from.push_back(KeyInUse(config_, other.key()));
    }
  }
  void BindRope(const RopeSpec& rope) {
    const std::string in_use = ThetaKey(config_);
    Add(Fact::kRopeTheta, in_use).implied = rope.theta();
    for (const std::string& key : ThetaKeys()) {
      if (key != in_use && config_.Find(key) != nullptr) Add(Fact::kRopeTheta, key).only_if_present = true;
    }
    if (rope.has_interleaved()) {
      Add(Fact::kRopeInterleaved, rope.interleaved().key()).implied = rope.interleaved().missing() ? 1 : 0;
    }
    if (rope.partial_key().empty()) return;
    const std::string inside = absl::StrCat("rope_parameters.", rope.partial_key());
    Add(Fact::kPartialRotary, config_.Find(inside) != nullptr ? inside : rope.partial_key()).implied = 1;
  }

  const FamilySpec& family_;
  const ConfigView& config_;
  const Blueprint& plan_;
  std::vector<ConfigBinding> bindings_;
};

std::vector<Carrier> CarriersOf(const FamilySpec& family, const ConfigView& config, const Blueprint& plan) {
  std::vector<Carrier> carriers;
  for (const CarrierSpec& spec : family.carrier()) {
    bool fits = true;
    for (const Condition& when : spec.when()) fits = fits && config.Holds(when, plan.architecture);
    if (!fits) continue;
    Carrier& carrier = carriers.emplace_back();
    carrier.model_type = spec.model_type();
    carrier.bindings.push_back(Fixed("model_type", absl::StrCat("\"", spec.model_type(), "\"")));
    carrier.bindings.push_back(Fixed("architectures", absl::StrCat("[\"", spec.architecture(), "\"]")));
    for (const Word& fixed : spec.fixed()) carrier.bindings.push_back(Fixed(fixed.name(), fixed.value()));
    ConfigBinding& scale = carrier.bindings.emplace_back();
    scale.fact = ConfigBinding::Fact::kSoftmaxScale;
    scale.key = spec.scale_key();
  }
  return carriers;
}

}  // namespace

std::vector<CompiledLayout> CompileLayouts(const FamilySpec& family, const ConfigView& config,
                                           const Blueprint& plan) {
  std::vector<CompiledLayout> layouts;
  for (const LayoutSpec& spec : family.layout()) {
    if (spec.has_when() && !config.Holds(spec.when(), plan.architecture)) continue;
    CompiledLayout compiled = Compiler(family, plan, spec).Compile();
    Layout& layout = compiled.layout;
    for (const IgnoreSpec& ignore : family.ignore()) {
      layout.ignored.push_back(
          {absl::StrReplaceAll(ignore.pattern(), {{"{layers}", absl::StrCat(plan.layers)}}),
           ignore.reason()});
    }
    for (const TieSpec& tie : family.tie()) {
      if (plan.types.contains(tie.role()))
        layout.ties.push_back({tie.role(), tie.to(), tie.key(), tie.absent()});
    }
    layout.bindings = Binder(family, config, plan).Bind();
    layout.carriers = CarriersOf(family, config, plan);
    layout.head_dim_is_key = !family.derives_head_dim();
    layout.heads_divide_d_model = family.heads_divide_d_model();
    const RopeSpec& rope = family.block().attention().rope();
    layout.partial_rotary_is_key = !rope.partial_key().empty();
    if (rope.style() != Rope::ABSENT) layout.rope_style = rope.style();
    layouts.push_back(std::move(compiled));
  }
  TWIN_CHECK(!layouts.empty(), absl::StrCat(family.name(), ": no layout for ", plan.architecture));
  return layouts;
}

}  // namespace twinforge
