// Random arrivals, replies, refusals, node deaths, timeouts and cancellations, by seed: requests and credits
// are conserved after every step, and no request is left when the nodes are well again.
#include <gtest/gtest.h>

#include <array>
#include <string_view>

#include <map>
#include <set>

#include "base/random.hpp"
#include "cluster/request_table.hpp"

namespace troupe::cluster::request_table_property_test {
namespace {

using std::chrono::milliseconds;

constexpr std::array<std::string_view, 6> kOrderings = {
    "edf", "fifo", "slo-aware", "slo-aware-released", "edf-late-last", "edf-error-budget"};

class BookWorld {
 public:
  explicit BookWorld(std::uint64_t seed)
      : random_(seed),
        table_({.max_requests = 40, .max_bytes = KiB(60), .max_bounces = 200},
               *FindRoutingPolicy(seed % 2 == 0 ? "locality" : "load-balance"),
               *FindOrderingPolicy(kOrderings[seed % kOrderings.size()])) {
    for (int i = 0; i < kNodes; ++i) GrantNode(i);
  }
  void Run(int steps) {
    for (int i = 0; i < steps; ++i) {
      now_ += Duration(random_.Below(3'000'000));
      Event();
      Settle();
    }
  }
  // Every node holds every model, and one of them takes requests: each is answered soon, long before the timeout of most.
  void Drain() {
    for (int i = 0; i < kNodes; ++i) GrantNode(i, true);
    for (int i = 0; i < 1000 && !open_.empty(); ++i) {
      now_ += milliseconds(1);
      Settle();
      if (!sent_.empty()) Reply(true);
    }
    EXPECT_TRUE(open_.empty()) << open_.size() << " requests wait for ever";
  }
  [[nodiscard]] const RequestTable& table() const { return table_; }
  std::uint64_t arrived = 0;

 private:
  static constexpr int kNodes = 4;
  static constexpr int kModels = 9;

  void Event() {
    switch (random_.Below(10)) {
      case 0:
      case 1:
      case 2:
        return Arrive();
      case 3:
      case 4:
      case 5:
        return Reply(false);
      case 6:
        return GrantNode(static_cast<int>(random_.Below(kNodes)));
      case 7:
        if (random_.Below(10) == 0) Lose(static_cast<int>(random_.Below(kNodes)));
        return;
      case 8:
        if (!open_.empty()) Finish(table_.CancelSequence(*open_.begin()));
        return;
      default:
        if (random_.Below(20) == 0) Finish(table_.FunctionGone("f1", "1", absl::NotFoundError("gone")));
        return;
    }
  }
  void Arrive() {
    RouterRequest request;
    request.sequence = ++next_;
    request.call = {.caller = random_.Below(2), .call = next_};
    const std::string model = std::to_string(random_.Below(kModels));
    request.function = "f" + model;
    request.version = "1";
    request.model = "m" + model;
    request.deadline = milliseconds(random_.Below(100));
    request.timeout = milliseconds(random_.Below(2) == 0 ? 10 + random_.Below(100) : 0);
    request.bytes = KiB(random_.Below(4));
    ++arrived;
    if (table_.Admit(request, now_).status.ok()) open_.insert(request.sequence);
  }
  void Reply(bool well) {
    if (sent_.empty()) return;
    auto it = sent_.begin();
    std::advance(it, random_.Below(sent_.size()));
    const std::uint64_t ticket = it->first;
    sent_.erase(it);
    switch (well ? 9 : random_.Below(11)) {
      case 0:
        return Finish(table_.Bounced(ticket, proto::BOUNCE_NO_CREDIT, "full", now_));
      case 1:
        return Finish(table_.Bounced(ticket, proto::BOUNCE_NOT_ADOPTED, "not here", now_));
      case 2:
        return Finish(table_.CallFailed(ticket, "no answer", now_));
      case 3:
        return Finish(table_.Served(ticket, absl::InternalError("bad"), now_));
      case 4:  // a request that has ended is not sent after all
        Finish(table_.CancelSequence(sequences_.at(ticket)));
        return Finish(table_.NeverSent(ticket, now_));
      default:
        return Finish(table_.Served(ticket, absl::OkStatus(), now_));
    }
  }
  void GrantNode(int node, bool all = false) {
    proto::CreditGrant grant;
    grant.set_node("n" + std::to_string(node));
    if (random_.Below(8) == 0) ++epochs_[node];
    grant.set_node_epoch(1 + epochs_[node]);
    grant.set_limit(all ? (node == 0 ? 3 : 0) : random_.Below(4));
    grant.set_draining(!all && random_.Below(10) == 0);
    auto& adopted = *grant.mutable_adopted();
    auto& resident = *grant.mutable_resident();
    if (!all && random_.Below(2) == 0) {  // what came and what went
      adopted.set_added(true);
      for (int model = 0; model < kModels; ++model)
        if (const auto drawn = random_.Below(4); drawn < 2)
          (drawn == 0 ? *adopted.add_digests() : *adopted.add_removed()) = "m" + std::to_string(model);
      table_.Apply(grant);
      return;
    }
    for (int model = 0; model < kModels; ++model) {
      if (!all && random_.Below(2) == 0) continue;
      adopted.add_digests("m" + std::to_string(model));
      if (random_.Below(2) == 0) resident.add_digests("m" + std::to_string(model));
    }
    table_.Apply(grant);
  }
  void Lose(int node) { Finish(table_.NodeLost("n" + std::to_string(node), "killed")); }
  void Settle() {
    Finish(table_.Expire(now_));
    for (const Send& send : table_.Decide(now_)) {
      EXPECT_TRUE(open_.contains(send.sequence));
      EXPECT_GT(send.timeout_in, Duration::zero());
      EXPECT_LE(send.attempt, 3u);
      const NodeCredit* credit = table_.credits().Find(send.node);
      EXPECT_LE(credit->in_flight, credit->limit);
      EXPECT_EQ(credit->epoch, send.node_epoch);
      EXPECT_TRUE(sent_.emplace(send.ticket, send.node).second);
      sequences_[send.ticket] = send.sequence;
    }
    table_.Check();
  }
  void Finish(const std::vector<RequestFinished>& finished) {
    for (const RequestFinished& f : finished)
      EXPECT_EQ(open_.erase(f.sequence), 1u) << "a request ended twice, or never began";
  }

  Random random_;
  RequestTable table_;
  std::set<std::uint64_t> open_;
  std::map<std::uint64_t, std::string> sent_;         // by ticket; replies of lost nodes still come
  std::map<std::uint64_t, std::uint64_t> sequences_;  // of all requests that were ever sent, by ticket
  std::map<int, std::uint64_t> epochs_;
  std::uint64_t next_ = 0;
  Time now_{};
};

TEST(RequestTableProperty, ArrivedIsServedRejectedExpiredCancelledOrFailed) {
  std::uint64_t served = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    BookWorld world(seed);
    world.Run(1500);
    world.Drain();
    const RequestCounts& counts = world.table().counts();
    EXPECT_EQ(world.arrived,
              counts.rejected + counts.served + counts.failed + counts.expired + counts.cancelled);
    served += counts.served;
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(served, 5000u);
}

}  // namespace
}  // namespace troupe::cluster::request_table_property_test
