// The twin's own layout: roles are names, kernels are matrices that lie as Storage says.
//
//   attn.q, out_in      [d_model -> heads, head_dim]    [heads*head_dim, d_model]
//   attn.qkv, in_out    q, k, v joined along heads      [d_model, (heads + 2 kv_heads)*head_dim]
//   moe.up, out_in      [expert; d_model -> d_ff]       [expert, d_ff, d_model]
//   stacked layers      each as above                   [layer, ...]
//
// Both directions walk the same plan of one tensor, so they cannot disagree.
#include <algorithm>
#include <map>
#include <set>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "ir/layout.h"
#include "weights/build.h"

namespace twinforge {
namespace {

using Arrangement = Bundle::Arrangement;

// How one parameter's axes stand in its stored tensor, before products are taken.
struct Stand {
  std::vector<int64_t> perm;  // stored axis i is canonical axis perm[i]
  Shape sizes;                // of the stored axes
  int64_t lead = 0;           // leading axes, kept apart
  int64_t split = 0;          // where the first merged extent ends and the second begins
  int64_t first_out = 0;      // position of the first out axis
  int64_t last_out = 0;
};

Stand StandOf(const Param& param) {
  const ParamType& type = param.type;
  const auto rank = static_cast<int64_t>(type.axes.size());
  Stand stand;
  stand.lead = type.lead;
  std::vector<int64_t> in, out;
  for (int64_t i = 0; i < rank; ++i) {
    if (i < type.lead) {
      stand.perm.push_back(i);
    } else {
      (i < type.lead + type.in ? in : out).push_back(i);
    }
  }
  const bool out_first = param.storage.orientation == Orientation::kOutIn;
  const std::vector<int64_t>& first = out_first ? out : in;
  const std::vector<int64_t>& second = out_first ? in : out;
  stand.perm.insert(stand.perm.end(), first.begin(), first.end());
  stand.split = static_cast<int64_t>(stand.perm.size());
  stand.perm.insert(stand.perm.end(), second.begin(), second.end());
  stand.first_out = out_first ? stand.lead : stand.split;
  stand.last_out = stand.first_out + static_cast<int64_t>(out.size()) - 1;
  for (int64_t axis : stand.perm) stand.sizes.push_back(type.axes[axis].size);
  return stand;
}

// [lead..., product to `split`, product from there]; an empty product is no extent.
Shape Merged(const Stand& stand, const Shape& factored) {
  Shape merged(factored.begin(), factored.begin() + stand.lead);
  const auto rank = static_cast<int64_t>(factored.size());
  if (stand.split > stand.lead) {
    merged.push_back(ElementCount(absl::MakeSpan(factored).subspan(stand.lead, stand.split - stand.lead)));
  }
  if (rank > stand.split) merged.push_back(ElementCount(absl::MakeSpan(factored).subspan(stand.split)));
  return merged;
}

std::vector<int64_t> InversePermutation(const std::vector<int64_t>& perm) {
  std::vector<int64_t> inverse(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) inverse[perm[i]] = static_cast<int64_t>(i);
  return inverse;
}

// One stored tensor: its members, as they stand, and how they are joined.
struct TensorPlan {
  std::string name;
  std::vector<const Param*> members;
  std::vector<Stand> stands;
  Arrangement arrangement = Arrangement::kConcat;
  int64_t shards = 1;
  int64_t axis = 0;  // joined, in stored factored axes
  Shape joined;      // factored
};

TensorPlan PlanOf(const Graph& graph, std::string name, const std::vector<std::string>& roles,
                  const Bundle* bundle) {
  TensorPlan plan;
  plan.name = std::move(name);
  for (const std::string& role : roles) {
    plan.members.push_back(graph.FindParam(role));
    plan.stands.push_back(StandOf(*plan.members.back()));
  }
  plan.joined = plan.stands[0].sizes;
  if (bundle == nullptr) return plan;
  plan.arrangement = bundle->arrangement;
  plan.shards = bundle->shards;
  const bool concat = plan.arrangement == Arrangement::kConcat;
  plan.axis = concat ? plan.stands[0].first_out : plan.stands[0].last_out;
  for (size_t i = 1; i < plan.stands.size(); ++i) plan.joined[plan.axis] += plan.stands[i].sizes[plan.axis];
  return plan;
}

// Calls `visit(member, start in the member, start in the joined axis, count)` for each piece, in stored
// order.
template <typename Visit>
void ForEachPiece(const TensorPlan& plan, Visit visit) {
  int64_t at = 0;
  for (int64_t shard = 0; shard < plan.shards; ++shard) {
    for (size_t i = 0; i < plan.members.size(); ++i) {
      const int64_t count = plan.stands[i].sizes[plan.axis] / plan.shards;
      visit(i, shard * count, at, count);
      at += count;
    }
  }
}

WeightPtr StoredProgram(const TensorPlan& plan) {
  std::vector<WeightPtr> parts;
  for (size_t i = 0; i < plan.members.size(); ++i) {
    parts.push_back(Transpose(plan.members[i]->program, plan.stands[i].perm));
  }
  WeightPtr joined = parts[0];
  if (parts.size() > 1 && plan.arrangement == Arrangement::kInterleave) {
    const auto count = static_cast<int64_t>(parts.size());
    const int64_t size = plan.stands[0].sizes[plan.axis];
    joined =
        Take(Concat(plan.axis, parts), plan.axis, IndexMap::Tile(IndexMap::Slice(0, count, size), size, 1));
  } else if (parts.size() > 1) {
    std::vector<WeightPtr> pieces;
    ForEachPiece(plan, [&](size_t i, int64_t start, int64_t, int64_t count) {
      pieces.push_back(Slice(parts[i], plan.axis, start, count));
    });
    joined = Concat(plan.axis, std::move(pieces));
  }
  return Reshape(joined, Merged(plan.stands[0], plan.joined));
}

// The canonical programs of a plan's members over the stored tensor, in their order.
std::vector<WeightPtr> MemberPrograms(const TensorPlan& plan, const WeightPtr& stored) {
  const WeightPtr joined = Reshape(stored, plan.joined);
  std::vector<WeightPtr> programs;
  const auto members = static_cast<int64_t>(plan.members.size());
  std::vector<std::vector<IndexMap>> maps(plan.members.size());
  ForEachPiece(plan, [&](size_t i, int64_t, int64_t at, int64_t count) {
    maps[i].push_back(IndexMap::Slice(at, count));
  });
  for (int64_t i = 0; i < members; ++i) {
    WeightPtr part = joined;
    if (members > 1) {
      const int64_t size = plan.stands[i].sizes[plan.axis];
      const bool interleaved = plan.arrangement == Arrangement::kInterleave;
      part =
          Take(joined, plan.axis, interleaved ? IndexMap::Slice(i, size, members) : IndexMap::Join(maps[i]));
    }
    programs.push_back(Transpose(part, InversePermutation(plan.stands[i].perm)));
  }
  return programs;
}

// Plans in graph order, a bundle at its first member.
std::vector<TensorPlan> PlansOf(const Graph& graph) {
  std::vector<TensorPlan> plans;
  absl::flat_hash_set<std::string> done;
  for (const Node& node : graph.nodes()) {
    for (const auto& [slot, role] : node.params) {
      const Bundle* bundle = graph.BundleOf(role);
      if (bundle == nullptr) {
        plans.push_back(PlanOf(graph, role, {role}, nullptr));
      } else if (done.insert(bundle->role).second) {
        plans.push_back(PlanOf(graph, bundle->role, bundle->members, bundle));
      }
    }
  }
  return plans;
}

// Plans with their stored programs; an alias has the index of the tensor it shares.
struct Stored {
  TensorPlan plan;
  WeightPtr program;
  size_t tensor;
};

std::vector<Stored> StoredOf(const Graph& graph) {
  std::vector<Stored> all;
  absl::flat_hash_map<const Weight*, size_t> tensors;
  for (TensorPlan& plan : PlansOf(graph)) {
    WeightPtr program = StoredProgram(plan);
    // Only plain tensors are shared: a bundle, or a layer of a stack, has a meaning of its own.
    size_t tensor = all.size();
    if (plan.members.size() == 1 && graph.StackOf(plan.name) == nullptr)
      tensor = tensors.emplace(program.get(), tensor).first->second;
    all.push_back({std::move(plan), std::move(program), tensor});
  }
  return all;
}

TwinTensor StackTensor(const LayerStack& stack,
                       const absl::flat_hash_map<absl::string_view, const Stored*>& by_name) {
  TwinTensor tensor{stack.role, nullptr, {}};
  std::vector<WeightPtr> layers;
  for (const std::string& member : stack.members) {
    const Stored& stored = *by_name.at(member);
    layers.push_back(stored.program);
    for (const Param* param : stored.plan.members) tensor.roles.push_back(param->role);
  }
  tensor.program = Stack(0, std::move(layers));
  return tensor;
}

// One layer of a stack as if it were a tensor of its own.
WeightPtr LayerOf(const LayerStack& stack, const Stored& stored) {
  const auto layer = std::find(stack.members.begin(), stack.members.end(), stored.plan.name);
  Shape shape = stored.program->shape();
  shape.insert(shape.begin(), static_cast<int64_t>(stack.members.size()));
  return Index(Source(stack.role, stored.program->dtype(), shape), 0, layer - stack.members.begin());
}

}  // namespace

std::vector<TwinTensor> TwinTensors(const Graph& graph) {
  const std::vector<Stored> all = StoredOf(graph);
  absl::flat_hash_map<absl::string_view, const Stored*> by_name;
  for (const Stored& stored : all) by_name[stored.plan.name] = &stored;
  std::vector<TwinTensor> tensors;
  std::vector<size_t> place(all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    const Stored& stored = all[i];
    if (const LayerStack* stack = graph.StackOf(stored.plan.name)) {
      if (stack->members[0] == stored.plan.name) tensors.push_back(StackTensor(*stack, by_name));
      continue;
    }
    if (stored.tensor == i) {
      place[i] = tensors.size();
      tensors.push_back({stored.plan.name, stored.program, {}});
    }
    std::vector<std::string>& roles = tensors[place[stored.tensor]].roles;
    for (const Param* member : stored.plan.members) roles.push_back(member->role);
  }
  return tensors;
}

std::map<std::string, WeightPtr> RolesFromTwin(const Graph& graph) {
  const std::vector<Stored> all = StoredOf(graph);
  std::map<std::string, WeightPtr> programs;
  for (const Stored& stored : all) {
    const WeightPtr& program = all[stored.tensor].program;
    const LayerStack* stack = graph.StackOf(stored.plan.name);
    const WeightPtr source = stack != nullptr
                                 ? LayerOf(*stack, stored)
                                 : Source(all[stored.tensor].plan.name, program->dtype(), program->shape());
    std::vector<WeightPtr> members = MemberPrograms(stored.plan, source);
    for (size_t i = 0; i < members.size(); ++i)
      programs[stored.plan.members[i]->role] = std::move(members[i]);
  }
  return programs;
}

}  // namespace twinforge
