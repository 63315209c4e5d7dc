// SLO TRACKER: how the requests of one gateway ended, measured against their functions' SLOs: counts of each function since
// its first request and of the last hour, which outlive the gateway on its disk, why late ones were late, and timelines of the
// slowest and of the newest with an id.
// The gateway owns it; no locks. Every table is bounded: when there are too many functions, the tracker forgets the function
// that was idle longest.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/units.hpp"
#include "proto/request.pb.h"
#include "proto/slo.pb.h"

namespace troupe::cluster {

// A request that was answered.
struct EndedRequest {
  const proto::InferReply& reply;
  Duration took{};        // at the gateway, from arrival to answer
  Duration deadline{};    // of its function's SLO; zero: none
  double percentile = 0;  // of the SLO; 0: the default
  double alpha = 0;       // of the gateway's order by SLO; 0: it has none
  std::string_view id{};  // that the client gave it; empty: none
  std::int64_t unix_ns = 0;
};

// What a late request spent most of its time on.
enum class LateCause { kQueue, kSwap, kRun, kNetwork };
// The time that no other part accounts for is the network's. A request that no node answered waited in a queue.
[[nodiscard]] LateCause CauseOf(const proto::InferReply& reply, Duration took);

// It was answered well, and within its deadline if it has one.
[[nodiscard]] bool InTime(const EndedRequest& request);
// It was answered late, or ran out of time, and would have been in time without its wait for a swap.
[[nodiscard]] bool LateForSwap(const EndedRequest& request);

// Whether the request counts at all: its client neither gave it up nor asked for what cannot be.
[[nodiscard]] bool CountsForSlo(int code);

// Orders of requests: a heap by Slower has the fastest request first.
[[nodiscard]] bool Slower(const proto::RequestTimeline& a, const proto::RequestTimeline& b);
[[nodiscard]] bool BeganBefore(const proto::RequestTimeline& a, const proto::RequestTimeline& b);

class SloTracker {
 public:
  static constexpr std::size_t kMostFunctions = 4096;
  static constexpr std::size_t kSlowest = 16;     // of each minute
  static constexpr std::size_t kWithId = 1024;    // newest requests that have an id
  static constexpr std::size_t kOfOneId = 128;    // that are told of one id: the steps of a run, most often
  static constexpr std::size_t kLongestId = 256;  // bytes of an id that are kept

  explicit SloTracker(std::string gateway) : gateway_(std::move(gateway)) {}

  void Ended(const EndedRequest& request, Time now);

  [[nodiscard]] proto::GatewayDescription Describe(const proto::DescribeGateway& ask, Time now) const;
  [[nodiscard]] std::size_t functions() const { return functions_.size(); }
  // The counts, and their return in another life: the clock began anew, and unix time tells how long the gateway was away.
  // What was kept is not trusted: it fills no more functions and slots than there are.
  [[nodiscard]] proto::KeptSlos Keep(Time now, std::int64_t unix_ns) const;
  void Restore(const proto::KeptSlos& kept, Time now, std::int64_t unix_ns);

 private:
  static constexpr std::int64_t kSlots = 12;  // of five minutes each
  static constexpr std::int64_t kNoSlot = std::numeric_limits<std::int64_t>::min();
  struct Slot {
    std::int64_t number = kNoSlot;  // since the clock's zero; below 0: of a life before
    proto::SloCounts counts;
  };
  struct Function {
    Duration deadline{};
    double percentile = 0;
    proto::SloCounts total;
    std::array<Slot, kSlots> slots;
    std::uint64_t last = 0;  // counts ends

    // The slot of that number, empty if it was of another one.
    Slot& SlotOf(std::int64_t number);
  };
  struct Minute {
    std::int64_t number = -1;
    std::vector<proto::RequestTimeline> slowest;  // a heap whose first is the fastest
  };
  using Key = std::pair<std::string, std::string>;  // name, version
  struct ByKey {
    using is_transparent = void;
    template <class A, class B>
    bool operator()(const A& a, const B& b) const {
      const int names = std::string_view(a.first).compare(b.first);
      return names != 0 ? names < 0 : std::string_view(a.second) < std::string_view(b.second);
    }
  };

  Function& FunctionOf(const proto::FunctionKey& key);
  void KeepIfSlow(const EndedRequest& request, Time now);
  [[nodiscard]] proto::RequestTimeline TimelineOf(const EndedRequest& request) const;
  [[nodiscard]] proto::FunctionSlo SloOf(const Key& key, const Function& function, Time now) const;

  const std::string gateway_;
  std::map<Key, Function, ByKey> functions_;
  std::array<Minute, 2> minutes_;  // the current minute and the one before it
  std::deque<proto::RequestTimeline> with_id_;
  std::uint64_t ends_ = 0;
  double alpha_ = 0;  // at the last end
};

}  // namespace troupe::cluster
