#include "proof/moduli.h"

#include <google/protobuf/message.h>

#include <numeric>
#include <set>

#include "transforms/transforms.pb.h"

namespace twinforge {
namespace {

constexpr int64_t kLargestModulus = 1 << 20;

int64_t FactValue(int fact, const ChipFacts& facts) {
  switch (static_cast<ChipFact>(fact)) {
    case LANES:
      return facts.lanes;
    case MXU:
      return facts.mxu;
    case SHARDS:
      return facts.shards;
    case KERNEL:
      return facts.kernel;
    default:
      return 1;
  }
}

// The product of a step's numbers, read off its message: what a new transform divides by is among them.
int64_t ModulusOf(const TransformStep& step, const ChipFacts& facts) {
  using Field = google::protobuf::FieldDescriptor;
  const auto* oneof = step.GetDescriptor()->FindOneofByName("transform");
  const Field* which = step.GetReflection()->GetOneofFieldDescriptor(step, oneof);
  if (which == nullptr || which->cpp_type() != Field::CPPTYPE_MESSAGE) return 1;
  const google::protobuf::Message& parameters = step.GetReflection()->GetMessage(step, which);
  std::vector<const Field*> fields;
  parameters.GetReflection()->ListFields(parameters, &fields);
  int64_t product = 1;
  for (const Field* field : fields) {
    if (field->is_repeated()) continue;
    int64_t number = 1;
    if (field->cpp_type() == Field::CPPTYPE_INT64)
      number = parameters.GetReflection()->GetInt64(parameters, field);
    if (field->cpp_type() == Field::CPPTYPE_ENUM && field->enum_type() == ChipFact_descriptor())
      number = FactValue(parameters.GetReflection()->GetEnumValue(parameters, field), facts);
    if (number > 1 && number <= kLargestModulus / product) product *= number;
  }
  return product;
}

// Axes whose extent some parameter has changed between two graphs.
std::set<std::string> ChangedAxes(const Graph& before, const Graph& after) {
  std::set<std::string> axes;
  for (const auto& [role, param] : after.params()) {
    const Param* was = before.FindParam(role);
    if (was == nullptr || was->type.axes.size() != param.type.axes.size()) continue;
    for (size_t i = 0; i < param.type.axes.size(); ++i) {
      if (was->type.axes[i].size != param.type.axes[i].size) axes.insert(param.type.axes[i].name);
    }
  }
  return axes;
}

}  // namespace

RecipeModuli ModuliOf(const LoadedRecipe& recipe, const ChipFacts& facts, const StepTrace& trace) {
  std::map<std::string, int64_t> of_step;
  std::set<int64_t> all = {1};
  for (const RecipeStep& step : recipe.steps)
    all.insert(of_step[step.name] = ModulusOf(*step.parameters, facts));
  RecipeModuli moduli;
  moduli.all.assign(all.begin(), all.end());
  for (size_t k = 0; k < trace.names.size(); ++k) {
    for (const std::string& axis : ChangedAxes(trace.graphs[k], trace.graphs[k + 1])) {
      int64_t& held = moduli.held.emplace(axis, 1).first->second;
      const int64_t joined = std::lcm(held, of_step[trace.names[k]]);
      if (joined <= kLargestModulus) held = joined;
    }
  }
  return moduli;
}

}  // namespace twinforge
