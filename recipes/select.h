// Which of a transform's places a step's `where` selects, and why the others were left.
#ifndef TWINFORGE_RECIPES_SELECT_H_
#define TWINFORGE_RECIPES_SELECT_H_

#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "ir/graph.h"

namespace twinforge {

class Where;

class Selector {
 public:
  // REQUIRES: patterns were checked (recipe.cc).
  explicit Selector(const Where& where);
  ~Selector();

  bool selects_all() const { return selects_all_; }
  // `path`: a node's path, or a parameter's role.
  bool Selects(const Graph& graph, absl::string_view path) const;
  // The first clause that excludes `path`, in words: "op: attention is not mlp"; "" if selected.
  std::string Excluded(const Graph& graph, absl::string_view path) const;

 private:
  struct Patterns;
  std::unique_ptr<const Where> where_;
  std::unique_ptr<Patterns> patterns_;
  bool selects_all_ = true;
};

}  // namespace twinforge

#endif  // TWINFORGE_RECIPES_SELECT_H_
