// README.md of a twin: what it is, how equal it is, how to judge it and how to undo it.
#ifndef TWINFORGE_EXPORTERS_MODEL_CARD_H_
#define TWINFORGE_EXPORTERS_MODEL_CARD_H_

#include <string>

#include "exporters/exporter.h"

namespace twinforge {

// No date, path or machine in it: the same forge writes the same card. The licence and base model that the
// source's own card names are carried forward. `graph` is the twin's; of `model`, which may be the source,
// only the root and the type are said, and of small files only config.json is read.
std::string ModelCard(const Model& model, const Graph& graph, const ExportPlan& plan,
                      const Provenance& provenance);

}  // namespace twinforge

#endif  // TWINFORGE_EXPORTERS_MODEL_CARD_H_
