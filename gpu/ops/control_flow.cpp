#include "gpu/ops/control_flow.hpp"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"

namespace troupe::gpu {
namespace {

constexpr TypeSet kAnyType = ~TypeSet{0};
constexpr std::array<Operator, 3> kControlFlow{{
    {"If", 7, kNewestOpset, nullptr, nullptr, nullptr, TypesOf({proto::BOOL})},
    {"Loop", 7, kNewestOpset, nullptr, nullptr, nullptr, TypesOf({proto::INT64})},
    // Opset 8 has another one, of batches.
    {"Scan", 9, kNewestOpset, nullptr, nullptr, nullptr, kAnyType},
}};

std::size_t Size(const auto& repeated) {
  return static_cast<std::size_t>(repeated.size());
}

// A Loop gives its body two values before the carried ones: the trip's number and the condition.
constexpr std::size_t kLoopGiven = 2;

std::size_t ScanInputs(const proto::Step& step) {
  return static_cast<std::size_t>(std::max<std::int64_t>(StepContext{step}.Int("num_scan_inputs", 0), 0));
}

absl::Status CheckBranches(const StepContext& ctx) {
  for (const proto::Subgraph& branch : ctx.step.subgraphs()) {
    if (branch.inputs_size() != 0) return ctx.Error("has a branch with inputs; a branch has none");
    if (branch.outputs_size() == 0 || branch.outputs_size() != ctx.step.outputs_size())
      return ctx.Error(absl::StrCat("has ", ctx.step.outputs_size(), " outputs and a branch with ",
                                    branch.outputs_size(), "; it needs as many, and one at least"));
  }
  return absl::OkStatus();
}

absl::Status CheckBody(const StepContext& ctx) {
  const proto::Subgraph& body = ctx.step.subgraphs(0);
  const bool loop = ctx.step.op() == "Loop";
  const std::size_t given = loop ? kLoopGiven : ScanInputs(ctx.step);
  if (!loop && given == 0) return ctx.Error("has no attribute num_scan_inputs of at least 1");
  if (Size(body.inputs()) < given)
    return ctx.Error(
        absl::StrCat("has a body with ", body.inputs_size(), " inputs, expected at least ", given));
  const std::size_t carried = Size(body.inputs()) - given;
  const std::size_t made = carried + (loop ? 1 : 0);
  if (Size(body.outputs()) < made || body.outputs_size() == 0)
    return ctx.Error(absl::StrCat("has a body with ", body.outputs_size(), " outputs, expected at least ",
                                  made, " for a body with ", body.inputs_size(), " inputs"));
  const std::size_t outputs = Size(body.outputs()) - (loop ? 1 : 0);
  if (Size(ctx.step.outputs()) != outputs)
    return ctx.Error(absl::StrCat("has ", ctx.step.outputs_size(), " outputs, and its body makes ", outputs));
  for (std::size_t i = loop ? kLoopGiven : 0; i < Size(body.inputs()); ++i)
    if (ctx.step.inputs(static_cast<int>(i)).empty())
      return ctx.Error(absl::StrCat("lacks its input ", i, ", which its body reads"));
  return absl::OkStatus();
}

absl::Status CheckCaptures(const StepContext& ctx, const proto::Subgraph& subgraph) {
  for (const proto::Subgraph::Capture& capture : subgraph.captures())
    if (capture.input() >= Size(ctx.step.inputs()) ||
        ctx.step.inputs(static_cast<int>(capture.input())).empty())
      return ctx.Error(absl::StrCat("captures '", capture.name(), "' from its input ", capture.input(),
                                    ", which it does not have"));
  return absl::OkStatus();
}

}  // namespace

std::span<const Operator> ControlFlowOperators() {
  return kControlFlow;
}

bool IsControlFlow(std::string_view op) {
  return std::ranges::any_of(kControlFlow, [op](const Operator& entry) { return entry.name == op; });
}

const Operator* FindControlFlow(std::string_view op, int opset) {
  for (const Operator& entry : kControlFlow)
    if (entry.name == op && entry.min_opset <= opset && opset <= entry.max_opset) return &entry;
  return nullptr;
}

std::size_t OwnInputs(const proto::Step& step) {
  if (step.op() == "If") return 1;
  return step.subgraphs_size() > 0 ? Size(step.subgraphs(0).inputs()) : 0;
}

LoopCounts CountsOf(const proto::Step& step) {
  const proto::Subgraph& body = step.subgraphs(0);
  const bool loop = step.op() == "Loop";
  const std::size_t carried = Size(body.inputs()) - (loop ? kLoopGiven : ScanInputs(step));
  return {carried, Size(body.outputs()) - carried - (loop ? 1 : 0)};
}

absl::Status CheckSubgraphs(const proto::Step& step) {
  const StepContext ctx{step};
  const int wanted = !IsControlFlow(step.op()) ? 0 : step.op() == "If" ? 2 : 1;
  if (step.subgraphs_size() != wanted)
    return ctx.Error(absl::StrCat("has ", step.subgraphs_size(), " subgraphs, expected ", wanted));
  if (wanted == 0) return absl::OkStatus();
  if (Size(step.inputs()) < OwnInputs(step))
    return ctx.Error(
        absl::StrCat("has ", step.inputs_size(), " inputs, expected at least ", OwnInputs(step)));
  TROUPE_RETURN_IF_ERROR(wanted == 2 ? CheckBranches(ctx) : CheckBody(ctx));
  for (const proto::Subgraph& subgraph : step.subgraphs())
    TROUPE_RETURN_IF_ERROR(CheckCaptures(ctx, subgraph));
  return absl::OkStatus();
}

}  // namespace troupe::gpu
