// Routing by GPU against a plain model: Algorithms 1 and 2 of LALB (003) as they are printed, scanning one queue, one list of
// GPUs and their caches. Over random arrivals, ends of runs and grants, both send the same requests to the same GPUs.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "cluster/request_table.hpp"
#include "tests/draws.hpp"

namespace troupe::cluster::gpu_turns_property_test {
namespace {

using std::chrono::milliseconds;

constexpr Duration kRun = milliseconds(1300);

std::string ModelName(int model) {
  return "m" + std::to_string(model);
}
Duration LoadOf(int model) {
  return milliseconds(1000 + 700 * (model % 5));
}
Bytes BytesOf(int model) {
  return MiB(200 + 150 * static_cast<std::uint64_t>(model % 4));
}

// A request went to a GPU.
using Sent = std::pair<std::uint64_t, std::size_t>;

class PlainModel {
 public:
  PlainModel(std::size_t gpus, std::uint32_t limit) : limit_(limit), gpus_(gpus) {}

  void Ask(std::uint64_t request, int model) { queue_.push_back({request, model}); }
  // The request at the head of the GPU's queue has run; its number.
  std::uint64_t End(std::size_t gpu, Time now) {
    const auto request = gpus_[gpu].queue.front().request;
    gpus_[gpu].queue.pop_front();
    gpus_[gpu].since = now;
    return request;
  }
  [[nodiscard]] bool Busy(std::size_t gpu) const { return !gpus_[gpu].queue.empty(); }
  [[nodiscard]] const std::vector<int>& Cached(std::size_t gpu) const { return gpus_[gpu].cached; }

  std::vector<Sent> Decide(Time now) {
    sent_.clear();
    std::vector<std::size_t> idle;
    for (std::size_t gpu = 0; gpu < gpus_.size(); ++gpu)
      if (!Busy(gpu)) idle.push_back(gpu);
    std::ranges::stable_sort(idle, [&](auto a, auto b) { return gpus_[a].frequency > gpus_[b].frequency; });
    for (const std::size_t gpu : idle)
      if (!Busy(gpu)) Turn(gpu, now);  // else it was given something for another one's turn
    return sent_;
  }

 private:
  struct Waiting {
    std::uint64_t request = 0;
    int model = 0;
    std::uint32_t visits = 0;
  };
  struct Given {
    std::uint64_t request = 0;
    Duration work{};
  };
  struct Gpu {
    std::deque<Given> queue{};  // the first one runs
    std::vector<int> cached{};  // the least recently used first
    Time since{};               // the first one has run since then
    std::uint64_t frequency = 0;
  };
  [[nodiscard]] bool Has(std::size_t gpu, int model) const {
    return std::ranges::find(gpus_[gpu].cached, model) != gpus_[gpu].cached.end();
  }

  // Algorithm 1, for one idle GPU.
  void Turn(std::size_t gpu, Time now) {
    for (std::size_t i = 0; i < queue_.size();) {
      if (Has(gpu, queue_[i].model)) return Dispatch(i, gpu, now);
      if (queue_[i].visits > limit_) {
        if (LocalityLoadBalance(gpu, i, now)) return;
        continue;  // it left the queue
      }
      ++queue_[i].visits;
      ++i;
    }
    while (!queue_.empty())
      if (LocalityLoadBalance(gpu, 0, now)) return;
  }

  // Algorithm 2. Of the busy GPUs it takes the one that is done first.
  bool LocalityLoadBalance(std::size_t gpu, std::size_t at, Time now) {
    const int model = queue_[at].model;
    for (std::size_t other = 0; other < gpus_.size(); ++other)
      if (other != gpu && Has(other, model) && !Busy(other)) return Dispatch(at, other, now), false;
    std::size_t best = gpus_.size();
    for (std::size_t other = 0; other < gpus_.size(); ++other)
      if (other != gpu && Has(other, model) &&
          (best == gpus_.size() || Finish(other, now) < Finish(best, now)))
        best = other;
    if (best != gpus_.size() && Finish(best, now) < LoadOf(model)) return Dispatch(at, best, now), false;
    Dispatch(at, gpu, now);
    return true;
  }

  [[nodiscard]] Duration Finish(std::size_t gpu, Time now) const {
    Duration left{};
    for (const Given& given : gpus_[gpu].queue) left += given.work;
    return left - std::min<Duration>(now - gpus_[gpu].since, gpus_[gpu].queue.front().work);
  }

  void Dispatch(std::size_t at, std::size_t index, Time now) {
    const Waiting request = queue_[at];
    queue_.erase(queue_.begin() + static_cast<std::ptrdiff_t>(at));
    Gpu& gpu = gpus_[index];
    Duration work = kRun;
    if (std::erase(gpu.cached, request.model) == 0) {
      work += LoadOf(request.model);
      const auto taken = [&] {
        Bytes sum;
        for (const int model : gpu.cached) sum += BytesOf(model);
        return sum;
      };
      while (taken() + BytesOf(request.model) > GiB(1)) gpu.cached.erase(gpu.cached.begin());
    }
    gpu.cached.push_back(request.model);
    if (gpu.queue.empty()) gpu.since = now;
    gpu.queue.push_back({request.request, work});
    ++gpu.frequency;
    sent_.emplace_back(request.request, index);
  }

  const std::uint32_t limit_;
  std::vector<Waiting> queue_;
  std::vector<Gpu> gpus_;
  std::vector<Sent> sent_;
};

// Nodes of so many GPUs each; GPU i of the model is GPU i % per_node of node i / per_node.
class Both {
 public:
  Both(std::size_t nodes, std::size_t per_node, std::uint32_t limit)
      : nodes_(nodes),
        per_node_(per_node),
        plain_(nodes * per_node, limit),
        table_({}, *FindRoutingPolicy("lalb-o3=" + std::to_string(limit)), *FindOrderingPolicy("fifo")) {
    for (std::size_t node = 0; node < nodes; ++node) Tell(node);
  }

  void Ask(int model) {
    RouterRequest request;
    request.sequence = ++asked;
    request.function = "f";
    request.version = "1";
    request.model = ModelName(model);
    request.timeout = std::chrono::hours(1);
    ASSERT_TRUE(table_.Admit(request, now_).status.ok());
    plain_.Ask(asked, model);
    waiting_ += 1;
  }
  void EndOn(std::size_t gpu) {
    if (!plain_.Busy(gpu)) return;
    const auto request = plain_.End(gpu, now_);
    ASSERT_EQ(table_.Served(tickets_.at(request), absl::OkStatus(), now_).size(), 1u);
  }
  // What is true of the node's GPUs, as it tells now and then.
  void Tell(std::size_t node) {
    proto::CreditGrant grant;
    grant.set_node("n" + std::to_string(100 + node));
    grant.set_node_epoch(1);
    grant.set_limit(1000);
    for (int model = 0; model < kModels; ++model) {
      grant.mutable_adopted()->add_digests(ModelName(model));
      auto& cost = *grant.add_costs();
      cost.set_digest(ModelName(model));
      cost.set_load_ns(LoadOf(model).count());
      cost.set_run_ns(kRun.count());
      cost.set_bytes(BytesOf(model).count());
    }
    for (std::size_t gpu = 0; gpu < per_node_; ++gpu) {
      auto& standing = *grant.add_gpus();
      standing.set_gpu(static_cast<std::uint32_t>(gpu));
      standing.set_ready(true);
      standing.set_memory_bytes(GiB(1).count());
      for (const int model : plain_.Cached(node * per_node_ + gpu)) standing.add_resident(ModelName(model));
    }
    table_.Apply(grant);
  }
  void Decide() {
    std::vector<Sent> sent;
    for (const Send& send : table_.Decide(now_)) {
      tickets_[send.sequence] = send.ticket;
      sent.emplace_back(send.sequence, (std::stoul(send.node.substr(1)) - 100) * per_node_ + *send.gpu);
    }
    table_.Check();
    ASSERT_EQ(sent, plain_.Decide(now_));
    waiting_ -= sent.size();
    decided += sent.size();
  }
  void Pass(Duration time) { now_ += time; }
  [[nodiscard]] std::size_t gpus() const { return nodes_ * per_node_; }
  [[nodiscard]] std::size_t waiting() const { return waiting_; }

  static constexpr int kModels = 12;
  std::uint64_t asked = 0;
  std::size_t decided = 0;

 private:
  const std::size_t nodes_, per_node_;
  PlainModel plain_;
  RequestTable table_;
  std::map<std::uint64_t, std::uint64_t> tickets_;
  std::size_t waiting_ = 0;
  Time now_{};
};

void Drive(std::uint64_t seed, std::size_t nodes, std::size_t per_node, std::uint32_t limit) {
  Random random(seed);
  Both both(nodes, per_node, limit);
  for (int step = 0; step < 400 && !testing::Test::HasFatalFailure(); ++step) {
    both.Pass(milliseconds(random.Below(400)));
    switch (random.Below(6)) {
      case 0:
      case 1:
      case 2:
        if (both.waiting() < 60) both.Ask(static_cast<int>(std::min(random.Below(12), random.Below(12))));
        break;
      case 3:
      case 4:
        both.EndOn(random.Below(both.gpus()));
        break;
      default:
        both.Tell(random.Below(nodes));
    }
    both.Decide();
  }
  EXPECT_GT(both.decided, 60u);
}

TEST(GpuTurnsProperty, DecidesAsThePaperPrintsOnOneNodeAndOnMany) {
  for (std::uint64_t seed = 1; seed <= test::Draws(40u); ++seed) {
    const std::uint32_t limit = seed % 4 == 0 ? 25 : static_cast<std::uint32_t>(seed % 4);
    for (const auto& [nodes, per_node] : {std::pair<std::size_t, std::size_t>{1, 6}, {6, 1}, {3, 2}}) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", " + std::to_string(nodes) + " nodes");
      Drive(seed, nodes, per_node, limit);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace troupe::cluster::gpu_turns_property_test
