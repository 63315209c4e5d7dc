// The clients that come again: with the Idempotency-Key of a request whose answer they did not get, or do not
// wait for, at the same gateway or at another one; and runs of a workflow.
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/workloads/clients.hpp"

namespace troupe::sim {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kRunTimeout = seconds(4);
constexpr Duration kTimeout = seconds(1);
constexpr std::uint32_t kReturningTries = 3;
constexpr std::uint32_t kTriesWithKey = 8;

}  // namespace

// One to three at a time, so that some are under way whatever dies.
void Clients::WorkflowLoop() {
  cluster_.agenda().In(Pause(milliseconds(200)), [this] {
    if (Over()) return;
    for (auto left = 1 + random_.Below(3); left > 0; --left) {
      RequestRecord record;
      record.function = kWorkflow;
      record.timeout = kRunTimeout;
      record.run = true;
      if (plan_.keys && random_.Below(3) > 0) {
        AskWithKey(std::move(record));
      } else {
        record.gateway = cluster_.shape().GatewayNames()[random_.Below(cluster_.shape().gateways)];
        Send(std::move(record), kReturningTries);
      }
    }
    WorkflowLoop();
  });
}

void Clients::KeyLoop() {
  cluster_.agenda().In(Pause(milliseconds(150)), [this] {
    if (Over()) return;
    RequestRecord record;
    record.function = AnyStateful();
    record.timeout = kTimeout;
    AskWithKey(std::move(record));
    KeyLoop();
  });
}

// Half of them are asked again at once: by a client that has no patience, mostly elsewhere. Some go away
// and come back.
void Clients::AskWithKey(RequestRecord record) {
  const auto gateways = cluster_.shape().GatewayNames();
  record.key = absl::StrCat("key-", ++keys_);
  record.question = absl::StrFormat("key %12d", keys_);
  record.gateway = gateways[random_.Below(gateways.size())];
  const auto request = Send(record, kTriesWithKey);
  if (random_.Below(2) == 0) {
    record.gateway = gateways[random_.Below(gateways.size())];
    cluster_.agenda().In(Pause(milliseconds(30)), [this, record] { Send(record, kTriesWithKey); });
  }
  if (!record.run || random_.Below(6) > 0) return;
  cluster_.agenda().In(Pause(milliseconds(20)), [this, request] {
    for (std::size_t i = 0; i < cluster_.shape().gateways; ++i) cluster_.Cancel(i, request);
  });
}

}  // namespace troupe::sim
