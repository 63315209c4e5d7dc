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

absl::StatusOr<Graph> SimplifiedGraph(FoldBudget& budget, std::span<const std::byte> file,
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
  return graph;
}

absl::Status ImportWithin(FoldBudget& budget, std::span<const std::byte> file, ImportOptions options,
                          const proto::StageBounds& bounds, const StageOutputs& outputs) {
  TROUPE_ASSIGN_OR_RETURN(Graph graph, SimplifiedGraph(budget, file, options));
  TROUPE_ASSIGN_OR_RETURN(DividedGraph divided, DivideGraph(std::move(graph), bounds));
  for (std::uint32_t number = 1; number <= divided.stages.size(); ++number) {
    auto& stage = divided.stages[number - 1];
    options.weights = outputs.weights ? outputs.weights(number) : nullptr;
    TROUPE_ASSIGN_OR_RETURN(ImportedModel imported, LayOut(std::move(stage.graph), options));
    imported.stage = number;
    imported.stages = static_cast<std::uint32_t>(divided.stages.size());
    imported.model_outputs = divided.model_outputs;
    imported.likely_inputs = std::move(stage.likely_inputs);
    if (const absl::Status sound = CheckModel(imported.model, imported.model.weights_bytes()); !sound.ok())
      return absl::InternalError(absl::StrCat("the importer made an unsound model: ", sound.message()));
    TROUPE_RETURN_IF_ERROR(outputs.take(std::move(imported)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ImportStages(std::span<const std::byte> file, const ImportOptions& options,
                          const proto::StageBounds& bounds, const StageOutputs& outputs) {
  FoldBudget budget(options.folding);
  const auto imported = ImportWithin(budget, file, options, bounds, outputs);
  if (imported.ok() || budget.stopped().empty()) return imported;
  // A value that was not folded may be what the later step lacks.
  return absl::Status(
      imported.code(),
      absl::StrCat(imported.message(), " (constant folding stopped before: ", budget.stopped(), ")"));
}

absl::StatusOr<ImportedModel> ImportOnnx(std::span<const std::byte> file, const ImportOptions& options) {
  ImportedModel whole;
  TROUPE_RETURN_IF_ERROR(ImportStages(file, options, {},
                                      {.weights = [&](std::uint32_t) { return options.weights; },
                                       .take =
                                           [&](ImportedModel imported) {
                                             whole = std::move(imported);
                                             return absl::OkStatus();
                                           }}));
  return whole;
}

}  // namespace troupe::gpu
