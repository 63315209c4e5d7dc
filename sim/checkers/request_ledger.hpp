// REQUEST LEDGER: every request of every client and its answers, as the clients see them. What must hold:
// each has exactly one answer, in its time, and it is the answer to this question; no client is told of a
// function that it does not exist while it does; no request is served by a function whose removal had been
// acknowledged long enough before. Knows nothing of routers and nodes.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/units.hpp"
#include "sim/checkers/registry_history.hpp"

namespace troupe::sim {

struct RequestRecord {
  std::string gateway{};
  std::uint64_t life = 0;  // of the gateway, which remembers nothing of one before
  std::string function{};
  std::string version{};              // "": the newest
  std::string question{};             // what a right answer repeats
  std::string key{};                  // the client's Idempotency-Key; "": none
  std::string sequence{};             // whose request it is; "": none
  bool starts = false, ends = false;  // the sequence
  bool run = false;                   // of a workflow, which may fail: run_check judges that
  Time asked{};
  Duration timeout{};
  Duration slack{};  // beyond its timeout, after which its answer is too late
  std::uint32_t answers = 0;
  Time answered{};  // the first
  absl::StatusCode code = absl::StatusCode::kOk;
  std::string said{};       // the answer, or the error's message
  std::int64_t runs = -1;   // of a function with state: how many its answer counts
  bool again = false;       // it was given another one's answer, for their key
  std::string served_by{};  // the version that the answer names; "": none
};
// The state that its run goes on with: the function's, or that of its sequence.
[[nodiscard]] std::string StateOf(const RequestRecord& request);
// It was told that it does not count. A workflow's run may have failed behind the step that counts.
[[nodiscard]] bool WasRefused(const RequestRecord& request);
struct AnswerSeen {
  absl::StatusCode code = absl::StatusCode::kOk;
  std::string said{};
  std::int64_t runs = -1;
  bool again = false;
  std::string version{};
};

class RequestLedger {
 public:
  std::uint64_t Asked(RequestRecord record);
  void Answered(std::uint64_t request, Time now, const AnswerSeen& answer);
  [[nodiscard]] const std::vector<RequestRecord>& all() const { return requests_; }
  [[nodiscard]] std::size_t open() const { return open_; }

 private:
  std::vector<RequestRecord> requests_;  // by number, from 1
  std::size_t open_ = 0;
};

// A gateway that is told nothing by the manager goes on with what it knew: from when to when each was.
struct Silence {
  std::string gateway{};
  Time from{}, to{};
};

struct RequestRules {
  Duration propagation{};  // of an acknowledged change, to a gateway that is connected
  std::vector<Silence> silences{};
};

// Until when a gateway heard of every change, at least, when it answered: before whatever kept it from the
// manager, and before what had kept it from it then.
[[nodiscard]] Time KnownUntil(const RequestRules& rules, const RequestRecord& request);

// A line for each request that broke a rule. `registry`: what clients saw of deployments and removals.
[[nodiscard]] std::vector<std::string> CheckRequests(const RequestLedger& ledger,
                                                     const std::vector<RegistryOp>& registry,
                                                     const RequestRules& rules);

}  // namespace troupe::sim
