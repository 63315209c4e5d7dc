#include "node/models/preparation.hpp"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "node/parts.hpp"
#include "node/requests/batch_terms.hpp"
#include "node/runtimes/worker_orders.hpp"

namespace troupe::node {

bool Preparation::AskAll(const ModelNumber& copy) {
  bool asked = false;
  for (GpuIndex gpu = 0; gpu < queues_.size(); ++gpu) asked |= Ask(gpu, copy);
  return asked;
}

void Preparation::AskMissing(const ModelNumber& copy) {
  for (GpuIndex gpu = 0; gpu < queues_.size(); ++gpu) {
    const auto* model = parts_.models.Find(copy);
    if (!model->PreparedBy(gpu, parts_.runtimes.Life(gpu))) Ask(gpu, copy);
  }
}

void Preparation::WorkerUp(GpuIndex gpu) {
  Forget(gpu);
  auto placed = parts_.models.held().InOrder();
  std::erase_if(placed, [&](const ModelNumber& copy) { return !parts_.copies.Usable(copy); });
  for (const auto& copy : placed) {
    if (!Ask(gpu, copy)) continue;
    if (parts_.models.Find(copy)->adopted && parts_.settings.scheduler.isolated) parts_.trials.Await(copy);
  }
}

bool Preparation::Ask(GpuIndex gpu, const ModelNumber& copy) {
  if (!parts_.runtimes.Serves(gpu, copy)) return false;
  queues_[gpu].Push(copy, !parts_.models.Find(copy)->adopted);
  OrderNext(gpu);
  return true;
}

void Preparation::OrderNext(GpuIndex gpu) {
  auto& queue = queues_[gpu];
  for (auto plan = queue.Next(); plan; plan = queue.Next()) {
    const auto& [copy, rows] = *plan;
    const auto* model = parts_.models.Find(copy);
    if (model == nullptr || !parts_.copies.Usable(copy)) {
      queue.Done();  // the copy left meanwhile, and is prepared when it comes back
      continue;
    }
    parts_.orders.GiveFor(copy, gpu, PrepareOrderFor(model->function, model->copy, rows),
                          PrepareOrdered{gpu, copy, parts_.runtimes.Life(gpu), model->life, rows});
    return;
  }
}

void Preparation::On(const PrepareOrdered& purpose, const proto::WorkerOutcome& outcome) {
  const bool same = parts_.runtimes.Life(purpose.gpu) == purpose.life;
  if (same) queues_[purpose.gpu].Done();
  purpose.rows == 1 ? Prepared(purpose, outcome) : PreparedBatch(purpose, outcome);
  if (same && outcome.code() == 0) AskBatch(purpose.gpu, purpose.copy, 2 * purpose.rows);
  if (same && parts_.runtimes.Up(purpose.gpu)) OrderNext(purpose.gpu);
}

void Preparation::Prepared(const PrepareOrdered& purpose, const proto::WorkerOutcome& outcome) {
  const auto& copy = purpose.copy;
  auto* model = parts_.models.Find(copy);
  if (model == nullptr || model->life != purpose.held) return;
  if (outcome.code() == 0) {
    model->prepared[purpose.gpu] = parts_.runtimes.Life(purpose.gpu);
    if (const auto sizes = CheckSizes(outcome.prepared()); sizes.ok()) {
      parts_.models.Describe(copy, Bytes(outcome.prepared().weights_bytes()),
                             Bytes(outcome.prepared().activation_bytes()));
    } else {
      parts_.out.Note("worker-sizes-refused", absl::StrCat(parts_.settings.Label(purpose.gpu), ", model ",
                                                           copy->digest.text(), ": ", sizes.message()));
    }
    return parts_.models.Adopted(copy);
  }
  if (model->adopted) return;
  // When a worker died while it prepared, the model is not at fault.
  if (absl::IsUnavailable(StatusOf(outcome))) return parts_.models.Adopted(copy);
  parts_.models.AdoptFailed(copy, StatusOf(outcome));
}

void Preparation::AskBatch(GpuIndex gpu, const ModelNumber& copy, std::uint32_t rows) {
  const auto* model = parts_.models.Find(copy);
  if (model != nullptr && rows <= MostRows(model->function, parts_.scheduler.batching()))
    queues_[gpu].PushBatch(copy, rows);
}

// A model that has no plan for so many rows is served with fewer.
void Preparation::PreparedBatch(const PrepareOrdered& purpose, const proto::WorkerOutcome& outcome) {
  const auto* model = parts_.models.Find(purpose.copy);
  const bool same = parts_.runtimes.Life(purpose.gpu) == purpose.life;
  if (model == nullptr || model->life != purpose.held || !same) return;
  const auto& outputs = outcome.prepared().outputs();
  const bool divisible = std::ranges::all_of(outputs, [&](const proto::TensorSpec& output) {
    return output.shape_size() > 0 && output.shape(0) == purpose.rows;
  });
  if (outcome.code() == 0 && divisible && CheckSizes(outcome.prepared()).ok())
    parts_.scheduler.BatchPrepared(purpose.gpu, purpose.copy, purpose.rows,
                                   Bytes(outcome.prepared().activation_bytes()));
}

void Preparation::GivenUp(const ModelNumber& copy) {
  for (auto& queue : queues_) queue.Remove(copy);
}

void Preparation::Forget(GpuIndex gpu) {
  for (const auto& copy : queues_[gpu].Clear())
    if (parts_.models.Find(copy) != nullptr) parts_.models.Adopted(copy);
}

}  // namespace troupe::node
