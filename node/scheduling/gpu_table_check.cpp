// What is always true of the table of GPUs; a violation ends the process.
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "node/scheduling/gpu_table.hpp"

namespace troupe::node {
namespace {

void CheckSwaps(const GpuMap& gpus) {
  std::map<std::pair<GpuIndex, ModelId>, std::uint32_t> readers;
  for (const auto& [index, gpu] : gpus) {
    std::size_t loads = 0;
    std::uint32_t pieces = gpu.in_flight;
    for (const auto& [model, resident] : gpu.residents) {
      const bool loading = resident.state == ResidentState::kLoading;
      TROUPE_CHECK(loading || resident.source == kNoGpu, "a swap that ended keeps its source");
      TROUPE_CHECK(!resident.missing || resident.pins > 0, "a model that is missing stays");
      pieces += resident.occupies > Duration() ? 1 : 0;
      if (resident.source != kNoGpu) ++readers[{resident.source, model}];
      loads += std::count(gpu.host_loads.begin(), gpu.host_loads.end(), model);
      TROUPE_CHECK(!loading || resident.readers == 0 || resident.source == kNoGpu,
                   "a model is sent on that comes from another GPU");
    }
    TROUPE_CHECK(loads == gpu.host_loads.size(), "the link carries what no GPU is loading");
    TROUPE_CHECK(gpu.bringing.pieces() == loads, "loads that ended are a backlog");
    TROUPE_CHECK(gpu.work.pieces() == pieces, "runs that ended are a backlog");
  }
  for (const auto& [index, gpu] : gpus) {
    for (const auto& [model, resident] : gpu.residents) {
      const auto it = readers.find({index, model});
      TROUPE_CHECK(resident.readers == (it == readers.end() ? 0 : it->second),
                   "a source is locked without a copy");
      if (it != readers.end()) readers.erase(it);
    }
  }
  TROUPE_CHECK(readers.empty(), "a swap reads what is not there");
}

void CheckHolders(const GpuMap& gpus, const ModelHolders& holders) {
  std::size_t held = 0;
  std::vector<std::uint32_t> evicting(holders.evicting().size());
  for (const auto& [index, gpu] : gpus) {
    held += gpu.residents.size();
    for (const auto& [model, orders] : gpu.evicting) ++evicting[model];
  }
  for (ModelId model = 0; model < holders.end(); ++model) {
    held -= holders.Count(model);
    for (const GpuIndex gpu : holders.Of(model))
      TROUPE_CHECK(gpus.at(gpu).Find(model) != nullptr, "the index of models is wrong");
  }
  TROUPE_CHECK(held == 0, "the index of models is wrong");
  TROUPE_CHECK(evicting == holders.evicting(), "the GPUs that give a model up are counted wrong");
}

void CheckMemory(const Gpu& gpu) {
  Bytes staying, idle;
  std::uint32_t coming = 0;
  std::uint32_t pins = 0;
  for (const auto& [model, resident] : gpu.residents) {
    Bytes states;
    for (const auto& [state, bytes] : resident.states) states += bytes;
    TROUPE_CHECK(states == resident.state_bytes, "the bytes of a model's states are counted wrong");
    staying += resident.WithStates();
    if (resident.Idle()) idle += resident.WithStates();
    pins += resident.pins;
    coming += resident.state == ResidentState::kLoading ? 1 : 0;
    TROUPE_CHECK((resident.state == ResidentState::kRunning) <= (resident.pins > 0),
                 "a model runs without a run");
    TROUPE_CHECK((resident.state == ResidentState::kResident) <= (resident.pins == 0),
                 "a model in use looks idle");
  }
  TROUPE_CHECK(staying == gpu.staying, "the sum of the residents is wrong");
  TROUPE_CHECK(idle == gpu.idle, "the sum of the idle residents is wrong");
  TROUPE_CHECK(gpu.staying + gpu.promised + gpu.overhead <= gpu.memory, "GPU memory is reserved twice");
  TROUPE_CHECK(coming == gpu.coming_models, "the models on their way are counted wrong");
  TROUPE_CHECK(pins <= gpu.in_flight, "a model is pinned without a request");
}

}  // namespace

void GpuTable::Check() const {
  CheckSwaps(gpus_);
  loads_.Check(by_index());
  CheckHolders(gpus_, holders_);
  std::size_t keyed = 0;
  for (const auto& [index, gpu] : gpus_) {
    CheckMemory(gpu);
    keyed += !gpu.key.empty() || !gpu.coming.value_or("").empty() ? 1 : 0;
  }
  TROUPE_CHECK(keyed == keyed_, "the runtimes that serve a key are counted wrong");
}

}  // namespace troupe::node
