#include "gpu/import/import_model.hpp"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/import/model_check.hpp"
#include "gpu/import/passes.hpp"
#include "gpu/import/stages.hpp"
#include "gpu/import/subgraphs.hpp"
#include "gpu/import/weight_layout.hpp"

namespace troupe::gpu {
namespace {

absl::StatusOr<ImportedModel> ImportWithin(FoldBudget& budget, std::span<const std::byte> file,
                                           const ImportOptions& options) {
  TROUPE_ASSIGN_OR_RETURN(Graph graph, ReadGraph(file, options));
  EliminateDeadSteps(graph);
  // Identities first: they would hide constants from the patterns below.
  EliminateIdentities(graph);
  TROUPE_RETURN_IF_ERROR(FoldAndInline(graph, options, budget));
  TROUPE_RETURN_IF_ERROR(SimplifySubgraphs(graph, options, budget));
  TROUPE_RETURN_IF_ERROR(SealSubgraphs(graph));
  EliminateIdentities(graph);
  EliminateDeadSteps(graph);
  TROUPE_RETURN_IF_ERROR(CheckOperators(graph));
  TROUPE_ASSIGN_OR_RETURN(const ValueInfos values, InferShapes(graph));
  TROUPE_RETURN_IF_ERROR(RecordOutputs(graph, values));
  // Scales before sums before activations: each leaves the next one's pattern adjacent.
  FoldAffine(graph, values);
  FuseAddends(graph, values);
  FuseSwish(graph, values);
  FuseActivations(graph, values);
  EliminateDeadSteps(graph);
  TROUPE_ASSIGN_OR_RETURN(KeptStage stage, KeepStage(graph, options.stage));
  TROUPE_ASSIGN_OR_RETURN(ImportedModel imported, LayOut(std::move(graph), options));
  imported.stages = stage.count;
  imported.model_outputs = std::move(stage.model_outputs);
  imported.likely_inputs = std::move(stage.likely_inputs);
  if (const absl::Status sound = CheckModel(imported.model, imported.model.weights_bytes()); !sound.ok())
    return absl::InternalError(absl::StrCat("the importer made an unsound model: ", sound.message()));
  return imported;
}

}  // namespace

absl::StatusOr<ImportedModel> ImportOnnx(std::span<const std::byte> file, const ImportOptions& options) {
  FoldBudget budget(options.folding);
  auto imported = ImportWithin(budget, file, options);
  if (imported.ok() || budget.stopped().empty()) return imported;
  // A value that was not folded may be what the later step lacks.
  return absl::Status(imported.status().code(),
                      absl::StrCat(imported.status().message(),
                                   " (constant folding stopped before: ", budget.stopped(), ")"));
}

}  // namespace troupe::gpu
