#include "sim/workloads/returning_clients.hpp"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

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
void ReturningClients::WorkflowLoop() {
  cluster().agenda().In(load_.Pause(milliseconds(200)), [this] {
    if (load_.Over()) return;
    for (auto left = 1 + load_.Below(3); left > 0; --left) {
      RequestRecord record;
      record.function = ClientLoad::kWorkflow;
      record.timeout = kRunTimeout;
      record.run = true;
      if (load_.plan().keys && load_.Below(3) > 0) {
        AskWithKey(std::move(record));
      } else {
        record.gateway = load_.AnyGateway();
        requests_.Send(std::move(record), kReturningTries);
      }
    }
    WorkflowLoop();
  });
}

void ReturningClients::KeyLoop() {
  cluster().agenda().In(load_.Pause(milliseconds(150)), [this] {
    if (load_.Over()) return;
    RequestRecord record;
    record.function = load_.AnyStateful();
    record.timeout = kTimeout;
    AskWithKey(std::move(record));
    KeyLoop();
  });
}

// Half of them are asked again at once: by a client that has no patience, mostly elsewhere. Some go away
// and come back.
void ReturningClients::AskWithKey(RequestRecord record) {
  record.key = absl::StrCat("key-", ++keys_);
  record.question = absl::StrFormat("key %12d", keys_);
  record.gateway = load_.AnyGateway();
  const auto request = requests_.Send(record, kTriesWithKey);
  if (load_.Below(2) == 0) {
    record.gateway = load_.AnyGateway();
    cluster().agenda().In(load_.Pause(milliseconds(30)),
                          [this, record] { requests_.Send(record, kTriesWithKey); });
  }
  if (!record.run || load_.Below(6) > 0) return;
  cluster().agenda().In(load_.Pause(milliseconds(20)),
                        [this, request] { cluster().fronts().CancelAtAll(request); });
}

}  // namespace troupe::sim
