#include "gpu/worker/reply.hpp"

#include <string>
#include <utility>

#include "base/check.hpp"
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
  outcome.set_code(static_cast<int>(status.code()));
  outcome.set_message(std::string(status.message()));
  Done(std::move(outcome));
}

}  // namespace troupe::gpu
