// DECLARED STATES: the functions of this node that keep state on the device, by what requests call them.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "cluster/function_state.hpp"
#include "proto/function.pb.h"
#include "proto/worker.pb.h"

namespace troupe::node {

struct DeclaredState {
  std::string key;   // cluster::StateKey
  std::string name;  // for people
  std::string model;
  std::vector<proto::StateTensor> tensors;
  std::vector<proto::TensorSpec> specs;
  bool loading = true;         // its file is being read
  std::size_t recovering = 0;  // living workers of an earlier daemon that are asked for it
  absl::Status failed;         // why the function cannot run here
  std::uint64_t runs = 0;      // that were answered well, as this daemon knows

  // What the first run finds: no data stands for zeros.
  [[nodiscard]] proto::StateImage Zeros() const {
    proto::StateImage image;
    image.set_function(key);
    for (const auto& spec : specs) *image.add_tensors()->mutable_spec() = spec;
    return image;
  }
};

class DeclaredStates {
 public:
  // Null: the function has none, or is not known.
  [[nodiscard]] DeclaredState* Find(const proto::FunctionKey& function) {
    const auto it = states_.find({function.name(), function.version()});
    return it == states_.end() ? nullptr : &it->second;
  }
  [[nodiscard]] DeclaredState* ByKey(const std::string& key) {
    for (auto& [function, state] : states_)
      if (state.key == key) return &state;
    return nullptr;
  }
  DeclaredState& Add(const proto::FunctionRecord& record) {
    auto& state = states_[{record.key().name(), record.key().version()}];
    state = {};
    state.key = cluster::StateKey(record);
    state.name = "function '" + record.key().name() + "' version " + record.key().version();
    state.model = record.model_digest();
    state.tensors = {record.state().begin(), record.state().end()};
    state.specs = cluster::StateSpecs(record);
    return state;
  }
  void CountRun(const std::string& key) {
    if (auto* state = ByKey(key)) ++state->runs;
  }
  // Of a function that is there; its key.
  std::string Remove(const proto::FunctionKey& function) {
    return std::move(states_.extract({function.name(), function.version()}).mapped().key);
  }
  // Calls `visit(state)` for each.
  template <class Visit>
  void ForEach(Visit visit) {
    for (auto& [function, state] : states_) visit(state);
  }
  template <class Visit>
  void ForEach(Visit visit) const {
    for (const auto& [function, state] : states_) visit(state);
  }

 private:
  std::map<std::pair<std::string, std::string>, DeclaredState> states_;  // by name and version
};

}  // namespace troupe::node
