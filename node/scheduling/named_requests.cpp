#include "node/scheduling/named_requests.hpp"

#include <vector>

#include "absl/strings/str_cat.h"
#include "node/scheduling/scheduler_parts.hpp"

namespace troupe::node {

std::optional<GpuIndex> NamedRequests::PlaceFor(const RequestEntry& entry) const {
  const RequestLook look = tables_.LookFor(entry);
  if (!look.model.in_region || parts_.requests.MustTakeTurns(entry)) return std::nullopt;
  if (look.state != nullptr && (!look.state->MayRun() || look.state->line.front() != entry.request.id))
    return std::nullopt;
  const bool bound = look.state != nullptr && look.state->gpu != kNoGpu;
  const Gpu& gpu = tables_.gpus.at(bound ? look.state->gpu : entry.request.named);
  return parts_.chooser.CanTake(look, gpu, gpu.Find(entry.model)) ? std::optional(gpu.index) : std::nullopt;
}

void NamedRequests::Decide(Time now) {
  if (parts_.waiting.named().empty()) return;
  std::vector<RequestEntry*> waiting;  // a dispatch takes its request out of the queue
  for (const auto& [key, entry] : parts_.waiting.named()) waiting.push_back(entry);
  for (RequestEntry* const entry : waiting) {
    if (entry->gpu != kNoGpu) continue;  // it went with another one's run
    if (!tables_.MayRunOn(entry->request, tables_.gpus.at(entry->request.named))) {
      parts_.waiting.ForgetName(*entry);
      continue;
    }
    const auto gpu = PlaceFor(*entry);
    if (!gpu) continue;
    parts_.decision.dispatches.push_back(parts_.reservations.Reserve(*entry, {GpuVerdict::kRun, *gpu}, now));
    if (tables_.rules.by_gpu) parts_.waiting.GiveTurn(*entry);
  }
}

absl::Status NamedRequests::Refuse(const NodeRequest& request, ModelId model) const {
  const std::string& function = request.function.text();
  if (!tables_.models[model].key.empty() && (tables_.rules.by_gpu || request.named != kNoGpu))
    return absl::FailedPreconditionError(absl::StrCat(
        "function '", function,
        "' is isolated, and GPUs are chosen by a policy that knows one runtime on each (lalb, lalb-o3, "
        "first-idle); deploy it with the isolation 'shared', or choose another policy"));
  if (request.named == kNoGpu) return absl::OkStatus();
  const auto refuse = [&](const char* why) {
    return absl::UnavailableError(
        absl::StrCat("GPU ", request.named, " was named for function '", function, "', and ", why));
  };
  if (tables_.rules.limits.isolated)
    return refuse("this node has isolated runtimes, which it chooses by itself");
  const auto gpus = tables_.gpus.by_index();
  if (request.named >= gpus.size() || gpus[request.named] == nullptr)
    return refuse("this node has no such GPU");
  const Gpu& gpu = *gpus[request.named];
  if (gpu.worker != WorkerState::kReady) return refuse("it has no worker now");
  if (!tables_.CanEverFit(model, gpu)) return refuse("its memory is too small");
  return absl::OkStatus();
}

void NamedRequests::BounceFrom(std::uint32_t device, const std::string& why, Consequences& effects) {
  std::vector<RequestEntry*> waiting;
  for (const auto& [key, entry] : parts_.waiting.named())
    if (entry->request.named == device) waiting.push_back(entry);
  for (RequestEntry* const entry : waiting)
    effects.finished.push_back(
        parts_.requests.End(*entry, FinishKind::kBounced, absl::UnavailableError(why), proto::BOUNCE_NO_GPU));
}

}  // namespace troupe::node
