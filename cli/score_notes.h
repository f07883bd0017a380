// What a score leaves to the reader to judge: said beside the figures, and no reason to refuse them.
#ifndef TWINFORGE_CLI_SCORE_NOTES_H_
#define TWINFORGE_CLI_SCORE_NOTES_H_

#include "base/json.h"
#include "cli/score_request.h"
#include "cli/verb.h"

namespace twinforge {

// Adds to JSON `notes`, an array that is always there, and a line of text for each: sequences longer than the
// max_position_embeddings (or n_positions) of `config`.
void AddNotes(const JsonValue& config, const ScoreRequest& request, Outcome& outcome);

// The same of one row of a table.
void AddNotes(const JsonValue& config, const ScoreRequest& request, Json& json);

}  // namespace twinforge

#endif  // TWINFORGE_CLI_SCORE_NOTES_H_
