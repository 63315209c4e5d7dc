// The simulator's world as the tests of the actors want it: one router, nodes of equal GPUs, and requests by
// number.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "actors/core/time.hpp"
#include "base/digest.hpp"
#include "sim/world.hpp"

namespace troupe::actors {

class World : public sim::World {
 public:
  // By name of the node: the channel to which it fetches inputs of other hosts.
  using Channels = std::map<std::string, transport::TensorChannel*>;

  explicit World(std::size_t nodes, std::size_t gpus_per_node = 2, FakeWorkerProfile profile = {},
                 Channels channels = {}, Bytes host_region = GiB(2),
                 const std::function<void(NodeOptions&)>& adjust = {}) {
    StartManager();
    StartGateway();
    for (std::size_t i = 1; i <= nodes; ++i) {
      NodePlan plan{.options = {}, .worker = profile, .host_region = host_region, .make_gpu = {}};
      plan.options.name = "node-" + std::to_string(i);
      if (const auto it = channels.find(plan.options.name); it != channels.end())
        plan.options.channel = it->second;
      plan.options.copies.region = host_region;
      plan.options.on_event = [this](const std::string& kind, const std::string& message) {
        events.emplace_back(kind, message);
      };
      for (std::size_t gpu = 0; gpu < gpus_per_node; ++gpu)
        plan.options.gpus.push_back({"fake:" + std::to_string(gpu), profile.memory});
      if (adjust) adjust(plan.options);  // the options with which the nodes are made
      StartNode(std::move(plan));
    }
    Run(std::chrono::seconds(1));
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World() override { ShutDown(); }

  // Sends a request; the answer is appended to `answers` with its time.
  void Infer(const std::string& function, std::uint64_t call, Duration timeout = std::chrono::seconds(10),
             const std::string& workflow = {}, const proto::Sequence& sequence = {}) {
    proto::InferRequest request;
    request.set_workflow(workflow);
    if (!sequence.id().empty()) *request.mutable_sequence() = sequence;
    request.mutable_function()->set_name(function);
    request.set_timeout_ns(timeout.count());
    request.set_call(call);
    *request.add_inputs() = InputX(1, std::to_string(call));
    clients_[call] = system().spawn([this, request, call](caf::event_based_actor* self) -> caf::behavior {
      const auto sent = actors::Now(self);
      self->request(router(), caf::infinite, request)
          .then([this, self, call, sent](proto::InferReply& reply) {
            answers.push_back({call, std::move(reply), actors::Now(self) - sent});
          });
      return {[this, self](const proto::CancelInfer& cancel) { self->send(router(), cancel); }};
    });
  }

  // Cancels the request: its caller no longer waits.
  void Cancel(std::uint64_t call) {
    proto::CancelInfer cancel;
    cancel.set_call(call);
    caf::anon_send(clients_.at(call), std::move(cancel));
  }

  // All requests that were sent are answered well within five seconds.
  void ExpectAnswers() {
    Run(std::chrono::seconds(5));
    EXPECT_EQ(answers.size(), clients_.size());
    for (const auto& answer : answers)
      EXPECT_EQ(answer.reply.code(), 0) << answer.call << ": " << answer.reply.message();
  }
  // The percents of the SMs that the runs of this worker of the first node had since they were taken last.
  std::set<std::uint32_t> TakeShares(std::size_t gpu = 0) {
    std::set<std::uint32_t> shares;
    for (const auto& [digest, precision, percent] : std::exchange(node("node-1").workers[gpu]->run_as, {}))
      shares.insert(percent);
    return shares;
  }

  struct Answered {
    std::uint64_t call;
    proto::InferReply reply;
    Duration took;
  };
  std::vector<Answered> answers;
  std::vector<std::pair<std::string, std::string>> events;  // events of the nodes: kind and message

  std::size_t asked = 0;  // the gateway that requests go to

  [[nodiscard]] RouterActor router() { return gateway(asked).router; }
  [[nodiscard]] const std::shared_ptr<RouterInbox>& router_inbox() { return gateway(0).inbox; }
  [[nodiscard]] const std::shared_ptr<ViewCell>& view() { return gateway(0).view; }

 private:
  std::map<std::uint64_t, caf::actor> clients_;
};

}  // namespace troupe::actors
