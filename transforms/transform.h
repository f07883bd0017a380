// One rewrite, one claim.
//
// A transform finds the places it fits (Sites), may ask for small facts about the values
// there (Wants), and changes one place at a time (Rewrite). Sites never mutates, Rewrite
// never searches; the driver snapshots the sites, applies each once, verifies. A place
// that does not fit is a refusal with its reason: a row in the report, never an error.
//
// Each <verb_noun>.cc opens with Before/After, Why on a TPU, Refuses, Fidelity; registry.cc lists the
// factories, transforms.proto their parameters. There is no header per transform.
#ifndef TWINFORGE_TRANSFORMS_TRANSFORM_H_
#define TWINFORGE_TRANSFORMS_TRANSFORM_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ir/adapter.h"
#include "ir/graph.h"
#include "ir/rewriter.h"

namespace twinforge {

class TransformStep;  // transforms/transforms.proto

// How equal a twin is to its origin; a ladder, lower is weaker.
enum class Fidelity : uint8_t {
  kRetrain = 0,       // needs tuning
  kBounded = 1,       // an error bound is stated: casts
  kReassociated = 2,  // equal in real arithmetic
  kMoved = 3,         // values only move: bit-equal where they land
};
absl::string_view FidelityName(Fidelity fidelity);  // "MOVED"
std::string BoundText(double bound);                // "2^-8"; "" for 0
// One bound after another.
double JoinBounds(double first, double second);

// A node (or a parameter's owner) that a transform can rewrite.
struct Site {
  NodeId node = -1;
  std::string path;  // the node's path, or a role where one parameter is meant
};

struct Refusal {
  std::string path;    // node path or role
  std::string reason;  // "kv_heads 6 does not divide 4 shards"
};

struct Sites {
  std::vector<Site> fit;            // in graph order; to rewrite one changes the graph
  std::vector<Refusal> refused;     // places of the right kind where the rule does not hold
  std::vector<std::string> native;  // paths of the right kind with nothing to do
};

// Values that a site asked for, by the names Wants gave them.
using Observed = std::map<std::string, std::vector<double>>;

class Transform {
 public:
  virtual ~Transform() = default;
  virtual absl::string_view name() const = 0;
  // What equality it claims with these parameters, weights stored in f32 or wider.
  virtual Fidelity fidelity() const = 0;
  // What it claims at one site, roundings apart: stronger than fidelity() where only some places need what it
  // computes. That weights are rounded when they are stored, and how far off that puts them, the driver reads
  // from the programs that Rewrite made (weights/rounding.h).
  virtual Fidelity SiteFidelity(const Graph& graph, const Site& site) const { return fidelity(); }
  virtual Sites FindSites(const Graph& graph) const = 0;
  // TF1105 where a name or pattern among its parameters means nothing in this model: misspelt, it would do
  // nothing and look as if there were nothing to do.
  virtual absl::Status CheckNames(const Graph& graph) const { return absl::OkStatus(); }
  // Weight programs with small results that Rewrite must know, by name. Usually none.
  virtual std::map<std::string, WeightPtr> Wants(const Graph& graph, const Site& site) const { return {}; }
  // FailedPrecondition without a diagnostic is a refusal that only `observed` could tell; nothing was changed
  // then.
  virtual absl::Status Rewrite(const Site& site, const Observed& observed, Rewriter& rewriter) const = 0;
};

// Facts of the target that a step may name instead of a number.
struct ChipFacts {
  int64_t lanes = 128;  // minor tile of the vector unit
  int64_t mxu = 128;    // edge of the matrix unit
  int64_t shards = 1;   // --shards
  int64_t kernel = 1;   // multiple of head_dim that the serving kernel demands (--kernel paged: 128)
};

// What a recipe's runner hands to the factories.
struct TransformContext {
  ChipFacts facts;
  std::map<std::string, Adapter> adapters;  // by the path that merge_lora names
};

// One registered transform. `make` checks the parameters: a wrong one is TF1505.
struct TransformInfo {
  absl::string_view name;     // "pad_vocab": also the field's name in TransformStep
  absl::string_view promise;  // one line
  std::function<absl::StatusOr<std::unique_ptr<Transform>>(const TransformStep& step,
                                                           const TransformContext& context)>
      make;
};

// All transforms in the order of the documentation.
absl::Span<const TransformInfo> AllTransforms();
// The transform that `step` names. TF1504 when it names none.
absl::StatusOr<std::unique_ptr<Transform>> MakeTransform(const TransformStep& step,
                                                         const TransformContext& context);

// ---- the driver

struct StepReport {
  std::string step;                      // "2 pad_vocab"
  Fidelity fidelity = Fidelity::kMoved;  // the weakest claim of the sites rewritten
  double bound = 0;                      // how far one of its weights may be off, as a part of its magnitude
  std::vector<std::string> sites;        // paths rewritten
  std::vector<Refusal> refused;
  std::vector<std::string> native;
  int64_t elements_added = 0;  // stored elements after minus before
};

// Applies `transform` once to every site of `graph` that `selected` accepts (null: all),
// then re-infers types and verifies. `observe` evaluates Wants (null: a transform that wants is refused). A
// site that would claim less than `require` is refused.
using Observer = std::function<absl::StatusOr<std::vector<double>>(const WeightPtr&)>;
absl::StatusOr<StepReport> Apply(const Transform& transform, absl::string_view step, Graph& graph,
                                 const std::function<bool(const Site&)>& selected, const Observer& observe,
                                 Fidelity require = Fidelity::kRetrain);

}  // namespace twinforge

#endif  // TWINFORGE_TRANSFORMS_TRANSFORM_H_
