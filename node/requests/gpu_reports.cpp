#include "node/requests/gpu_reports.hpp"

#include <utility>

#include "node/parts.hpp"

namespace troupe::node {

GpuReports::Told GpuReports::Nothing() const {
  Told told{.gpus = std::vector<std::string>(parts_.settings.gpus.size())};
  for (const auto& [digest, copy] : parts_.scheduler.FirstCopies()) told.costs.emplace(digest, copy);
  return told;
}

void GpuReports::Add(std::uint64_t router) {
  routers_[router] = Nothing();
}

void GpuReports::TellAnew() {
  for (auto& [router, told] : routers_) told = Nothing();
}

void GpuReports::CostChanged(const ModelNumber& model) {
  for (auto& [router, told] : routers_) told.costs.emplace(model->digest.text(), model);
}

proto::GpuStanding GpuReports::StandingOf(std::uint32_t index, std::uint64_t router) const {
  const auto& gpu = parts_.scheduler.gpus().at(index);
  const auto others = parts_.scheduler.OthersOn(index, router, parts_.out.now());
  proto::GpuStanding standing;
  standing.set_gpu(index);
  standing.set_ready(gpu.worker == WorkerState::kReady);
  standing.set_kind(gpu.kind);
  standing.set_memory_bytes((gpu.memory > gpu.overhead ? gpu.memory - gpu.overhead : Bytes()).count());
  standing.set_others(others.requests);
  standing.set_others_ns(others.left.count());
  for (const auto& [copy, there] : parts_.scheduler.ResidentsOf(index))
    standing.add_resident(copy->digest.text());
  return standing;
}

void GpuReports::AddCosts(const ModelNumber& model, proto::CreditGrant& grant) const {
  if (!parts_.scheduler.Knows(model)) return;  // it was taken off this node meanwhile
  for (KindId kind = 0; kind < parts_.scheduler.kinds(); ++kind) {
    const auto estimate = parts_.scheduler.EstimateOf(model, kind);
    auto& cost = *grant.add_costs();
    cost.set_digest(model->digest.text());
    cost.set_kind(kind);
    cost.set_load_ns(estimate.load.count());
    cost.set_run_ns(estimate.run.count());
    cost.set_bytes(estimate.weights.count());
    cost.set_run_bytes(estimate.activation.count());
  }
}

void GpuReports::Fill(std::uint64_t router, proto::CreditGrant& grant) {
  Told& told = routers_.at(router);
  if (parts_.settings.scheduler.isolated) {
    grant.set_gpus_withheld("has isolated runtimes, which it chooses by itself");
    return;
  }
  for (std::uint32_t gpu = 0; gpu < parts_.settings.gpus.size(); ++gpu) {
    auto standing = StandingOf(gpu, router);
    auto now = standing.SerializeAsString();
    if (now != std::exchange(told.gpus[gpu], now)) *grant.add_gpus() = std::move(standing);
  }
  for (const auto& [digest, model] : std::exchange(told.costs, {})) AddCosts(model, grant);
}

}  // namespace troupe::node
