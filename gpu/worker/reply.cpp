#include "gpu/worker/reply.hpp"

#include <string>
#include <utility>

#include "base/check.hpp"
#include "base/wire_status.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu {

void Reply::Done(proto::WorkerOutcome outcome) {
  TROUPE_CHECK(send_ != nullptr, "an order is answered once");
  outcome.set_sequence(sequence_);
  outcome.set_begin_ns(begin_.time_since_epoch().count());
  outcome.set_end_ns(transport::SteadyNow().time_since_epoch().count());
  std::exchange(send_, nullptr)(std::move(outcome));
}

void Reply::Fail(const absl::Status& status, proto::WorkerOutcome outcome) {
  TROUPE_CHECK(!status.ok(), "a failure has a reason");
  SetStatus(status, outcome);
  Done(std::move(outcome));
}

}  // namespace troupe::gpu
