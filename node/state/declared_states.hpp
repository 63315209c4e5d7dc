// DECLARED STATES: the functions of this node that keep state on the device, by what requests call them, and their sequences
// whose states are in memory here.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "cluster/function_state.hpp"
#include "node/names.hpp"
#include "proto/function.pb.h"
#include "proto/worker.pb.h"

namespace troupe::node {

struct DeclaredState {
  StateNumber key;
  StateNumber owner;  // of a sequence: the state of its function; none: it is that
  FunctionNumber function;
  std::string version;
  std::string name;  // for people
  ModelNumber model;
  std::vector<proto::StateTensor> tensors;
  std::vector<proto::TensorSpec> specs;
  Bytes bytes{};               // of its image
  std::uint32_t replicas = 0;  // other nodes that are to have copies of its images
  bool loading = true;         // its file is being read
  std::size_t recovering = 0;  // living workers of an earlier daemon that are asked for it
  absl::Status failed;         // why the function cannot run here
  std::uint64_t runs = 0;      // that were answered well, as this daemon knows

  // Each tensor is there twice, and rounded up.
  [[nodiscard]] Bytes OnDevice() const { return bytes * 2 + Bytes(512 * specs.size()); }
  // What the first run finds: no data stands for zeros.
  [[nodiscard]] proto::StateImage Zeros() const {
    proto::StateImage image;
    image.set_function(key.text());
    for (const auto& spec : specs) *image.add_tensors()->mutable_spec() = spec;
    return image;
  }
};

class DeclaredStates {
 public:
  // Null: the function has none, or is not known.
  [[nodiscard]] DeclaredState* Find(const FunctionNumber& function, const std::string& version) {
    if (states_.empty()) return nullptr;
    const auto it = states_.find({function, version});
    return it == states_.end() ? nullptr : it->second.get();
  }
  [[nodiscard]] DeclaredState* ByKey(const StateNumber& key) {
    const auto it = by_key_.find(key);
    return it == by_key_.end() ? nullptr : it->second;
  }
  // Of a function that is not there yet.
  DeclaredState& Add(const proto::FunctionRecord& record, FunctionNumber function, StateNumber key) {
    auto& entry = states_[{function, record.key().version()}];
    entry = std::make_unique<DeclaredState>();
    auto& state = *entry;
    state.key = std::move(key);
    state.function = std::move(function);
    state.version = record.key().version();
    state.name = "function '" + record.key().name() + "' version " + record.key().version();
    state.tensors = {record.state().begin(), record.state().end()};
    state.specs = cluster::StateSpecs(record);
    state.bytes = cluster::StateBytes(record);
    state.replicas = record.state_replicas();
    by_key_[state.key] = &state;
    return state;
  }
  void CountRun(const StateNumber& key) {
    if (auto* state = ByKey(key)) ++state->runs;
  }
  // A sequence of a function that is there; its state is to be loaded.
  DeclaredState& AddSequence(const DeclaredState& function, const std::string& id, StateNumber key) {
    auto& entry = sequences_[key];
    entry = std::make_unique<DeclaredState>(function);
    auto& state = *entry;
    state.key = std::move(key);
    state.owner = function.key;
    state.name = "sequence '" + id + "' of " + function.name;
    state.loading = true;
    state.recovering = 0;
    state.runs = 0;
    by_key_[state.key] = &state;
    return state;
  }
  void RemoveSequence(const StateNumber& key) {
    by_key_.erase(key);
    sequences_.erase(key);
  }
  // Of a function that is there; its key.
  StateNumber Remove(const FunctionNumber& function, const std::string& version) {
    auto key = std::move(states_.extract({function, version}).mapped()->key);
    by_key_.erase(key);
    return key;
  }
  // Sequences, by key.
  [[nodiscard]] std::vector<DeclaredState*> SequencesInOrder() {
    std::vector<DeclaredState*> states;
    for (const auto& [key, state] : sequences_) states.push_back(state.get());
    std::ranges::sort(states, {},
                      [](const DeclaredState* state) -> const std::string& { return state->key.text(); });
    return states;
  }
  // Functions, by name and version.
  [[nodiscard]] std::vector<DeclaredState*> InOrder() { return Sorted<DeclaredState>(); }
  [[nodiscard]] std::vector<const DeclaredState*> InOrder() const { return Sorted<const DeclaredState>(); }

 private:
  template <class State>
  [[nodiscard]] std::vector<State*> Sorted() const {
    std::vector<State*> states;
    states.reserve(states_.size());
    for (const auto& [function, state] : states_) states.push_back(state.get());
    std::ranges::sort(states, {},
                      [](const State* state) { return std::tie(state->function.text(), state->version); });
    return states;
  }

  absl::flat_hash_map<std::pair<FunctionNumber, std::string>, std::unique_ptr<DeclaredState>> states_;
  absl::flat_hash_map<StateNumber, std::unique_ptr<DeclaredState>> sequences_;
  absl::flat_hash_map<StateNumber, DeclaredState*> by_key_;  // of both
};

}  // namespace troupe::node
