#include "node/scheduling/batches.hpp"

#include <algorithm>
#include <utility>

#include "node/scheduling/scheduler_parts.hpp"

namespace troupe::node {

namespace {

// What one order to a worker carries of its requests' inputs.
constexpr Bytes kMostInlined = KiB(256);

// What is left of `room` when the function may take no more than its `gpu_mem` with the weights and `one` run.
Bytes WithinLimit(Bytes room, Bytes limit, Bytes weights, Bytes one) {
  if (limit == Bytes(0)) return room;
  const Bytes taken = weights + one;
  return limit > taken ? std::min(room, limit - taken) : Bytes();
}

}  // namespace

bool Batches::MayJoin(const RequestEntry& entry) const {
  return !entry.request.batch.kind.empty() && !entry.apart && !entry.suspect && !entry.request.trial &&
         !entry.request.state && !tables_.rules.by_gpu;
}

std::vector<RequestEntry*> Batches::CandidatesFor(const RequestEntry& leader) const {
  std::vector<RequestEntry*> candidates;
  if (!tables_.rules.policies.batching.Joins() || !MayJoin(leader) ||
      !tables_.models.batches.Joins(leader.model))
    return candidates;
  const BatchTerms& terms = leader.request.batch;
  const auto& waiting = *tables_.requests.queue.Find(leader.model);
  Bytes inlined;
  std::uint32_t rows = 0;
  for (auto at = waiting.find(leader.key); at != waiting.end() && rows < terms.most; ++at) {
    RequestEntry& entry = *at->second;
    const BatchTerms& other = entry.request.batch;
    if (!MayJoin(entry) || entry.request.named != leader.request.named ||
        entry.request.function != leader.request.function || other.kind != terms.kind ||
        entry.key.priority != leader.key.priority)
      continue;
    inlined += other.inlined;
    if (rows + other.rows > terms.most || (!candidates.empty() && inlined > kMostInlined)) break;
    rows += other.rows;
    candidates.push_back(&entry);
  }
  return candidates;
}

Company Batches::CompanyOf(const RequestEntry& leader, const Gpu& gpu, Bytes need, Time now) const {
  Company company;
  std::vector<RequestEntry*> joining = CandidatesFor(leader);
  if (joining.size() < 2) return company;
  std::vector<BatchCandidate> candidates;
  for (const RequestEntry* const entry : joining)
    candidates.push_back({entry->request.batch.rows, entry->request.deadline});
  const Bytes one = tables_.models[leader.model].activation;
  const Bytes room = WithinLimit(gpu.Free() > need ? gpu.Free() - need : Bytes(), leader.request.gpu_mem,
                                 tables_.models[leader.model].weights, one);
  const auto sizes = tables_.models.batches.SizesOn(leader.model, {gpu.index, gpu.kind, one, room},
                                                    leader.request.batch.most);
  const BatchChoice choice =
      ChooseBatch({.now = now, .backlog = gpu.work.Left(now), .candidates = candidates, .sizes = sizes});
  if (choice.requests < 2) return company;
  company.members.assign(joining.begin() + 1, joining.begin() + static_cast<std::ptrdiff_t>(choice.requests));
  company.run = choice.run;
  const Bytes activation = tables_.models.batches.ActivationOf(leader.model, choice.rows);
  company.room = activation > one ? activation - one : Bytes();
  return company;
}

std::uint32_t Batches::RowsOf(const std::vector<RequestEntry*>& requests) {
  std::uint32_t rows = 0;
  for (const RequestEntry* const entry : requests) rows += entry->request.batch.rows;
  return rows;
}

std::optional<Time> Batches::Awaits(RequestEntry& entry, const Gpu& gpu, Time now) const {
  const BatchingRules& rules = tables_.rules.policies.batching;
  if (rules.spare_percent == 0 || !MayJoin(entry) || entry.hold != kNoGpu) return std::nullopt;
  // One more run than those that compute is there already: the GPU is not idle between two runs.
  if (tables_.gpus.loads().InFlightOn(gpu.device) <= tables_.rules.limits.concurrency) return std::nullopt;
  const std::vector<RequestEntry*> waiting = CandidatesFor(entry);
  if (waiting.empty()) return std::nullopt;
  const auto sizes = tables_.models.batches.SizesOn(entry.model, {gpu.index, gpu.kind, Bytes(), gpu.memory},
                                                    entry.request.batch.most);
  // The best that any company could make of it; a wait for more is worth nothing.
  const std::vector<BatchCandidate> many(entry.request.batch.most);
  const BatchChoice best = ChooseBatch({.candidates = many, .sizes = sizes});
  if (best.requests < 2 || RowsOf(waiting) >= best.rows) return std::nullopt;
  if (entry.company_until == Time::min())
    entry.company_until = CompanyUntil(rules, entry.request.deadline, gpu.work.Left(now) + best.run, now);
  return entry.company_until > now ? std::optional(entry.company_until) : std::nullopt;
}

std::vector<RequestEntry*> Batches::Part(RequestEntry& leader) const {
  std::vector<RequestEntry*> requests{&leader};
  if (!tables_.rules.policies.batching.Joins()) return requests;
  for (RequestEntry* const entry : tables_.requests.pipelines[leader.gpu]) {
    if (entry->leader != &leader) continue;
    entry->leader = nullptr;
    requests.push_back(entry);
  }
  return requests;
}

void Batches::RunApart(const std::vector<RequestEntry*>& requests, const RunDone& done,
                       Consequences& effects) {
  ++parts_.counts.apart;
  if (absl::IsUnimplemented(done.status)) tables_.models.batches.Refuse(requests.front()->model);
  if (done.end == RunEnd::kNoFit) tables_.gpus.CorrectFree(done.gpu, done.free);
  for (RequestEntry* const entry : requests) {
    if (parts_.requests.EndAbandoned(*entry, effects)) continue;
    entry->apart = true;
    --entry->attempts;  // no worker was lost, and nothing of this request's own ran
    parts_.requests.Requeue(*entry, effects);
  }
}

}  // namespace troupe::node
