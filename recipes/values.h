// The numbers of a recipe's text, held against what they can mean: a count is at least 1, a layer's number at
// least 0, and a choice is one of its names.
//
// The text format knows neither: it takes `multiple: 0` as if nothing stood there, and `form: 7` as it is.
#ifndef TWINFORGE_RECIPES_VALUES_H_
#define TWINFORGE_RECIPES_VALUES_H_

#include <google/protobuf/text_format.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "recipes/recipe.pb.h"

namespace twinforge {

// TF1101 for a choice that has no name, TF1103 for a number in `where`, TF1505 for one of a transform, each
// with the line and column where it stands. `place` names the text.
absl::Status CheckValues(const Recipe& recipe, const google::protobuf::TextFormat::ParseInfoTree& places,
                         absl::string_view place);

}  // namespace twinforge

#endif  // TWINFORGE_RECIPES_VALUES_H_
