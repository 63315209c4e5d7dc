// One model that several nodes fetch at the same time, of which one node and the manager have a copy: the time until all have
// it, over the time of one transfer. The manager's chains (cluster/copies/model_relays), the nodes' questions
// (node/models/object_pull) and what a node lets wait (node/models/range_waits) are those of the daemon; links are simulated.
// Each node and the manager has one, as fast in both directions, which its transfers share alike; messages, digests and disks
// take no time.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "base/units.hpp"
#include "cluster/copies/fetch_policy.hpp"
#include "cluster/copies/model_relays.hpp"
#include "node/models/object_pull.hpp"
#include "node/models/range_waits.hpp"
#include "sim/experiments/experiment.hpp"

namespace troupe::sim {

namespace {

constexpr Bytes kModel = MiB(512);
constexpr double kLink = 10e9 / 8;         // bytes a second, each way
constexpr std::size_t kServedByANode = 8;  // actors/node/cache.hpp
constexpr std::size_t kServedByManager = 1024;
constexpr std::uint32_t kNodes[] = {1, 2, 4, 8, 16, 32};

// The members by number: the manager, the node that has the model, and from 2 on the nodes that fetch it.
constexpr std::size_t kManager = 0;
constexpr std::size_t kHolder = 1;

class FanOut {
 public:
  FanOut(std::uint32_t fetching, cluster::FetchPolicy policy) : members_(fetching + 2) {
    cluster::ModelRelays relays;
    for (std::size_t member = kHolder + 1; member < members_.size(); ++member)
      Begin(member,
            policy == cluster::FetchPolicy::kRelay ? relays.Begin("model", NameOf(member), 1) : std::nullopt);
  }

  // Seconds until every node has the model; InternalError when that never comes.
  absl::StatusOr<double> Go() {
    for (std::size_t member = kHolder + 1; member < members_.size(); ++member) AskMore(member);
    while (!transfers_.empty()) Advance();
    for (std::size_t member = kHolder + 1; member < members_.size(); ++member)
      if (!members_[member].pull->done())
        return absl::InternalError(absl::StrCat("model-fanout: node ", member, " never has the model"));
    return now_;
  }
  [[nodiscard]] double copies_sent(std::size_t member) const {
    return static_cast<double>(members_[member].sent) / static_cast<double>(kModel.count());
  }

 private:
  struct Transfer {
    std::size_t from = 0, to = 0;
    node::ObjectPull::Question question;
    double left = 0;  // bytes
  };
  struct Member {
    std::optional<node::ObjectPull> pull;  // of a node that fetches
    std::vector<std::size_t> sources;      // the member behind each source of the pull
    node::RangeWaits waits{node::RangeWaits::Limits{}};
    std::uint64_t received = 0, sent = 0;  // bytes
    std::size_t up = 0, down = 0;          // transfers
  };

  static std::string NameOf(std::size_t member) { return absl::StrCat(member); }

  void Begin(std::size_t at, const std::optional<std::string>& follows) {
    auto& member = members_[at];
    member.sources = {kManager};
    for (std::size_t other = kHolder + 1; follows && other < members_.size(); ++other)
      if (NameOf(other) == *follows) member.sources.push_back(other);
    member.sources.push_back(kHolder);
    const auto nodes = member.sources.size() - 1;
    member.pull.emplace(kModel.count(), nodes, node::ObjectPull::Limits(), nodes - 1);
    for (std::size_t source = 1; source <= nodes; ++source) member.pull->Reached(source);
    member.waits.Expect("model");
  }

  void AskMore(std::size_t to) {
    auto& pull = *members_[to].pull;
    while (const auto question = pull.Next()) {
      const auto from = members_[to].sources[question->source];
      const auto most = from == kManager ? kServedByManager : kServedByANode;
      if (members_[from].up >= most) {
        static_cast<void>(pull.Failed(question->ticket, node::ObjectPull::Failure::kBusy));
      } else if (from <= kHolder) {
        Send({from, to, *question, static_cast<double>(question->length)});
      } else {
        AskOfARelay(from, to, *question);
      }
    }
  }
  void AskOfARelay(std::size_t from, std::size_t to, const node::ObjectPull::Question& question) {
    const Transfer wanted{from, to, question, static_cast<double>(question.length)};
    const auto ticket = next_ticket_++;
    const auto answer =
        members_[from].waits.Ask(ticket, NameOf(to), "model", question.offset, question.length);
    if (answer == node::RangeWaits::Answer::kWaits) {
      waiting_.emplace(ticket, wanted);
    } else if (answer == node::RangeWaits::Answer::kHere) {
      Send(wanted);
    } else {
      static_cast<void>(members_[to].pull->Failed(question.ticket, node::ObjectPull::Failure::kBusy));
    }
  }
  void Send(const Transfer& transfer) {
    ++members_[transfer.from].up;
    ++members_[transfer.to].down;
    transfers_.push_back(transfer);
  }
  [[nodiscard]] double RateOf(const Transfer& transfer) const {
    return kLink / static_cast<double>(std::max(members_[transfer.from].up, members_[transfer.to].down));
  }

  // Until the next transfer has ended.
  void Advance() {
    double soonest = std::numeric_limits<double>::max();
    for (const auto& transfer : transfers_) soonest = std::min(soonest, transfer.left / RateOf(transfer));
    now_ += soonest;
    for (auto& transfer : transfers_) transfer.left -= soonest * RateOf(transfer);
    std::vector<Transfer> ended;
    std::erase_if(transfers_, [&](const Transfer& transfer) {
      if (transfer.left > 1) return false;
      ended.push_back(transfer);
      return true;
    });
    for (const auto& transfer : ended) End(transfer);
  }
  void End(const Transfer& transfer) {
    auto& to = members_[transfer.to];
    --members_[transfer.from].up;
    --to.down;
    members_[transfer.from].sent += transfer.question.length;
    static_cast<void>(to.pull->Arrived(transfer.question.ticket));
    while (const auto offset = to.pull->FirstHere()) {
      to.received = std::min(kModel.count(), *offset + node::ObjectPull::Limits().range_bytes);
      to.pull->Kept();
    }
    for (const auto ticket : to.waits.Came("model", {"upload", kModel.count(), to.received}))
      Send(waiting_.extract(ticket).mapped());
    AskMore(transfer.to);
  }

  double now_ = 0;  // seconds
  std::vector<Member> members_;
  std::vector<Transfer> transfers_;
  std::map<std::uint64_t, Transfer> waiting_;  // at relays, by ticket
  std::uint64_t next_ticket_ = 1;
};

}  // namespace

absl::StatusOr<std::vector<Figure>> ModelFanout(const ExperimentOptions& options) {
  std::vector<Figure> figures;
  for (const auto nodes : kNodes) {
    for (const auto& policy : cluster::FetchPolicies()) {
      const std::string name(policy.name);
      const auto prefix = absl::StrCat("model-fanout/", nodes, "/", name, "/");
      if (options.go_on && !options.go_on(prefix)) return figures;
      FanOut fan_out(nodes, policy.policy);
      TROUPE_ASSIGN_OR_RETURN(const double took, fan_out.Go());
      const double one = static_cast<double>(kModel.count()) / kLink;
      figures.push_back({.name = prefix + "time_over_one_transfer", .unit = "", .values = {took / one}});
      figures.push_back(
          {.name = prefix + "copies_sent_by_holder", .unit = "", .values = {fan_out.copies_sent(kHolder)}});
      figures.push_back(
          {.name = prefix + "copies_sent_by_manager", .unit = "", .values = {fan_out.copies_sent(kManager)}});
    }
  }
  return figures;
}

}  // namespace troupe::sim
