// One request of a router, from its arrival to its answer.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>

#include "base/units.hpp"
#include "cluster/profiled_runs.hpp"
#include "scheduling/slo_order.hpp"

namespace troupe::cluster {

// Who asked, so that a cancellation finds its request. `call` 0 cannot be cancelled.
struct CallId {
  std::uint64_t caller = 0;
  std::uint64_t call = 0;
  auto operator<=>(const CallId&) const = default;
};

// A request as the table sees it; the tensors stay with the router.
struct RouterRequest {
  std::uint64_t sequence = 0;  // the router's number, never used twice
  CallId call{};
  std::string function{};  // name and version as resolved
  std::string version{};
  std::string model{};
  std::uint32_t priority = 0;
  Duration deadline{};     // the function's SLO, from arrival; zero: none
  double percentile = 0;   // of the SLO; 0: the default
  Duration timeout{};      // the client's expiry, from arrival; zero: the router's default
  Bytes bytes{};           // inline input bytes
  std::string holder{};    // the node that keeps inputs of it; "": none
  ProfiledRun profiled{};  // where no profile says, what was learned counts
};

enum class RequestPlace { kQueued, kPaused, kSent };
struct RequestEntry {
  RouterRequest request;
  OrderingKey key;
  Time arrival{};
  Time deadline = Time::max();
  Time latest = Time::max();  // when it has to begin to be in time, where late ones yield
  Time expiry{};
  Time resume{};  // while paused
  RequestPlace place = RequestPlace::kQueued;
  std::uint32_t attempts = 0;
  std::uint32_t bounces = 0;
  std::uint32_t passed =
      0;  // times that a GPU which could have taken it has taken a later request; by_gpu routing only
  std::string node{};  // of the last attempt
  std::string last_refusal{};
  // The nodes that have refused it, and until when it is not offered to them again. Empty once it was paused.
  std::map<std::string, Time> refused_by{};

  [[nodiscard]] bool RefusedBy(const std::string& node, Time now) const {
    const auto refusal = refused_by.find(node);
    return refusal != refused_by.end() && now < refusal->second;
  }
};

}  // namespace troupe::cluster
