// A cluster under virtual time whose functions keep state on the device. The state of a fake function is the
// number of its runs, and its answer says how many there were.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "tests/actors/world.hpp"

namespace troupe::actors {

class StateWorld : public World {
 public:
  explicit StateWorld(std::size_t gpus = 2, node::StateWriteBack write_back = node::StateWriteBack::kRun,
                      Bytes memory = GiB(1), std::function<void(NodeOptions&)> adjust = {},
                      std::size_t nodes = 1)
      : World(nodes, gpus, Profile(memory), {}, GiB(2), [write_back, adjust](NodeOptions& options) {
          options.state_write_back = write_back;
          if (adjust) adjust(options);
        }) {}

  static FakeWorkerProfile Profile(Bytes memory) {
    FakeWorkerProfile profile;
    profile.memory = memory;
    return profile;
  }

  absl::Status DeployState(const std::string& name, Bytes weights = MiB(100), const DeployWish& wish = {}) {
    proto::StateTensor state;
    state.set_input("s");
    state.set_output("t");
    return Deploy(name, weights, std::chrono::milliseconds(100), {"x"}, {state}, wish);
  }
  // The number of runs that this call's answer tells; -1 when the call failed.
  int Count(const std::string& name) {
    const auto call = ++calls_;
    Infer(name, call);
    RunUntil([&] { return Find(call) != nullptr; }, std::chrono::seconds(20));
    return CountOf(call);
  }
  const proto::InferReply* Find(std::uint64_t call) {
    for (const auto& answer : answers)
      if (answer.call == call) return &answer.reply;
    return nullptr;
  }
  int CountOf(std::uint64_t call) {
    const auto* reply = Find(call);
    if (reply == nullptr || reply->code() != 0) return -1;
    for (const auto& output : reply->outputs())
      if (output.spec().name() == "runs") return std::stoi(output.data().inlined());
    return -2;
  }
  std::uint64_t NextCall() { return ++calls_; }
  std::shared_ptr<FakeWorkerControl> Holder(const std::string& node_name = "node-1") {
    for (auto& worker : node(node_name).workers)
      if (!worker->life.states.empty()) return worker;
    return nullptr;
  }
  std::string Told(const std::string& kind) {
    std::string all;
    for (const auto& [k, message] : events)
      if (k == kind) all += message + "\n";
    return all;
  }

  // What the manager's log has of this kind.
  std::string EventsOf(const std::string& kind) {
    proto::AdminRequest list;
    list.mutable_list_events()->set_limit(1000);
    const auto reply = Ask(list);
    std::string all;
    if (!reply.ok()) return all;
    for (const auto& event : reply->events())
      if (event.kind() == kind) all += event.message() + "\n";
    return all;
  }

 private:
  std::uint64_t calls_ = 0;
};

}  // namespace troupe::actors
