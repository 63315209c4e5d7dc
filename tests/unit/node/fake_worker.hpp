// A worker for tests of decisions: it accounts for device memory as a real one does, carries out orders one
// after another, and answers NoFit when something does not fit. So the scheduler's plan is checked against
// what this device has.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "node/request.hpp"

namespace troupe::node {

struct FakeModel {
  Bytes weights;
  Bytes activation;
};
// The state of a function is the number of runs that made it. The images at the host are shared by the
// workers.
struct FakeStates {
  Bytes bytes;                               // the size of each state on a device
  bool write_back_each = true;               // write back after each run; else when the model is evicted
  std::map<std::string, std::string> model;  // the model of each function
  std::map<std::string, std::uint64_t> images;
};

class FakeWorker {
 public:
  // The worker from which a dispatch copies; null when that worker is dead.
  using Peers = std::function<const FakeWorker*(const Dispatch&)>;
  FakeWorker(GpuIndex gpu, Bytes memory, Bytes hidden, const std::map<std::string, FakeModel>& models,
             Peers peers = {}, FakeStates* host = nullptr)
      : gpu_(gpu),
        memory_(memory),
        hidden_(hidden),
        models_(&models),
        host_(host),
        peers_(std::move(peers)) {}

  void Order(const Dispatch& dispatch) { orders_.push_back(dispatch); }
  void OrderEviction(const ModelNumber& model) { evictions_.push_back(model); }
  [[nodiscard]] bool idle() const { return orders_.empty() && evictions_.empty(); }
  [[nodiscard]] Bytes used() const {
    Bytes used = hidden_;
    for (const auto& [model, bytes] : resident_) used += bytes;
    used += host_ == nullptr ? Bytes() : host_->bytes * states_.size();
    return used;
  }
  [[nodiscard]] bool overbooked() const { return overbooked_; }
  [[nodiscard]] WorkerReady Ready() const {
    return {.gpu = gpu_,
            .memory = memory_,
            .free = memory_ - hidden_,
            .resident = {},
            .peer_copies = peers_ != nullptr,
            .broadcasts = peers_ != nullptr};
  }
  [[nodiscard]] bool Has(const std::string& model) const { return resident_.contains(model); }
  [[nodiscard]] const std::map<std::string, std::uint64_t>& states() const { return states_; }

  // Whether what a model's states hold cannot be written back now: the model stays, and what was ordered behind its
  // eviction is turned back. Asked for each eviction of a model with states.
  void WriteBackFails(std::function<bool()> fails) { write_back_fails_ = std::move(fails); }

  struct Outcomes {
    std::vector<EvictDone> evicted;
    std::vector<SwapInDone> swapped;
    std::vector<RunDone> ran;
    std::vector<EvictDone> stayed;  // to be told after the others
  };
  // Carries out the oldest order. `status` is the outcome of the run when it gets that far.
  Outcomes Step(Duration took, const absl::Status& status) {
    Outcomes out;
    for (const ModelNumber& model : std::exchange(evictions_, {})) Evict(model, out);
    if (!out.stayed.empty()) TurnBack(out);
    if (orders_.empty()) return out;
    const Dispatch dispatch = orders_.front();
    for (const ModelNumber& victim : std::exchange(orders_.front().victims, {})) Evict(victim, out);
    if (!out.stayed.empty()) {
      TurnBack(out);
      return out;
    }
    orders_.pop_front();
    RunDone done{
        .gpu = gpu_, .request = dispatch.request, .end = RunEnd::kRan, .status = status, .took = took};
    const FakeModel& model = models_->at(dispatch.model.text());
    const bool passes = dispatch.source == SwapSource::kLayers;
    const Bytes window = passes ? Bytes(model.weights.count() / 3) : Bytes();
    passed_ += passes ? 1 : 0;
    if (dispatch.source != SwapSource::kResident && !passes) {
      const bool fits = used() + model.weights + NewState(dispatch) <= memory_;
      absl::Status swap = fits ? absl::OkStatus() : absl::ResourceExhaustedError("no fit");
      if (fits && dispatch.source == SwapSource::kPeer && !FindPeer(dispatch)) {
        swap = absl::UnavailableError("that GPU's worker is gone");
      }
      if (swap.ok()) resident_[dispatch.model.text()] = model.weights;
      out.swapped.push_back({.gpu = gpu_,
                             .model = dispatch.model,
                             .status = swap,
                             .device_bytes = model.weights,
                             .took = TransferTime(model.weights, BytesPerSecond{6e9})});
      if (!fits) done.end = RunEnd::kNoFit;
      if (dispatch.ahead) return out;
    }
    if (done.end == RunEnd::kRan && used() + NewState(dispatch) > memory_) done.end = RunEnd::kNoFit;
    if (done.end == RunEnd::kRan && !Has(dispatch.model.text()) && !passes) done.end = RunEnd::kNotResident;
    if (done.end == RunEnd::kRan && dispatch.bring_state) {
      states_[dispatch.state.text()] = host_->images[dispatch.state.text()];
      done.brought_state = true;
    }
    if (done.end == RunEnd::kRan && dispatch.state && !states_.contains(dispatch.state.text()))
      done.end = RunEnd::kNotResident;
    if (done.end == RunEnd::kRan && used() + window + model.activation > memory_) done.end = RunEnd::kNoFit;
    if (done.end == RunEnd::kNoFit) done.free = done.largest = memory_ - used();
    if (used() > memory_) overbooked_ = true;
    if (done.end == RunEnd::kRan && status.ok() && dispatch.state) Advance(dispatch.state.text());
    out.ran.push_back(done);
    return out;
  }

  // The runs whose model passed through by layer.
  [[nodiscard]] std::uint64_t passed() const { return passed_; }
  // Orders to copy from a GPU that was alive and did not have the model, although the plan promised that it
  // would.
  [[nodiscard]] std::uint64_t broken_promises() const { return broken_promises_; }

 private:
  bool FindPeer(const Dispatch& dispatch) {
    const FakeWorker* peer = peers_ ? peers_(dispatch) : nullptr;
    if (peer == nullptr) return false;
    broken_promises_ += peer->Has(dispatch.model.text()) ? 0 : 1;
    return peer->Has(dispatch.model.text());
  }
  [[nodiscard]] Bytes NewState(const Dispatch& dispatch) const {
    return dispatch.bring_state && !states_.contains(dispatch.state.text()) ? host_->bytes : Bytes();
  }
  void Advance(const std::string& state) {
    ++states_.at(state);
    if (host_->write_back_each) host_->images[state] = states_.at(state);
  }
  void TurnBack(Outcomes& out) {
    const absl::Status full = absl::ResourceExhaustedError("the disk is full");
    for (const Dispatch& dispatch : std::exchange(orders_, {})) {
      for (const ModelNumber& victim : dispatch.victims) Evict(victim, out);
      if (dispatch.ahead) {
        out.swapped.push_back({.gpu = gpu_, .model = dispatch.model, .status = full});
      } else {
        out.ran.push_back(
            {.gpu = gpu_, .request = dispatch.request, .end = RunEnd::kNotOrdered, .status = full});
      }
    }
  }
  void Evict(const ModelNumber& model, Outcomes& out) {
    const bool has_states = std::ranges::any_of(
        states_, [&](const auto& state) { return host_->model.at(state.first) == model.text(); });
    if (has_states && write_back_fails_ && write_back_fails_()) {
      out.stayed.push_back({.gpu = gpu_, .model = model, .status = absl::ResourceExhaustedError("full")});
      return;
    }
    std::erase_if(states_, [&](const auto& state) {
      if (host_->model.at(state.first) != model.text()) return false;
      host_->images[state.first] = std::max(host_->images[state.first], state.second);
      return true;
    });
    const bool there = resident_.erase(model.text()) == 1;
    out.evicted.push_back(
        {.gpu = gpu_, .model = model, .status = there ? absl::OkStatus() : absl::NotFoundError("")});
  }

  GpuIndex gpu_;
  Bytes memory_;
  Bytes hidden_;  // memory that the device itself takes, of which the plan does not know
  const std::map<std::string, FakeModel>* models_;
  FakeStates* host_;
  std::map<std::string, Bytes> resident_;
  std::map<std::string, std::uint64_t> states_;
  std::deque<Dispatch> orders_;
  std::vector<ModelNumber> evictions_;
  bool overbooked_ = false;
  Peers peers_;
  std::function<bool()> write_back_fails_;
  std::uint64_t broken_promises_ = 0;
  std::uint64_t passed_ = 0;
};

}  // namespace troupe::node
