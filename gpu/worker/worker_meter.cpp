#include "gpu/worker/worker_meter.hpp"

#include <algorithm>

namespace troupe::gpu {

WorkerMeter::Payer WorkerMeter::PayerOf(const proto::WorkerOrder& order, const ShareLadder& ladder) const {
  if (page_ == nullptr) return {};
  if (order.has_swap_in()) return {.key = order.swap_in().meter()};
  if (!order.has_run()) return {};
  Payer payer{.key = order.run().meter()};
  const SmShare share = ladder.For(std::min<std::uint32_t>(order.run().sm_partition(), 100));
  if (share.sms > 0 && share.of > 0) {
    payer.sms = share.sms;
    payer.of = share.of;
  }
  return payer;
}

void WorkerMeter::Count(const Payer& payer, const proto::WorkerOutcome& outcome) const {
  if (page_ == nullptr || payer.key.empty()) return;
  const auto computed = static_cast<std::uint64_t>(std::max<std::int64_t>(0, outcome.run().compute_ns()));
  // Whole units first, so that no product overflows.
  const auto weighted = computed / payer.of * payer.sms + computed % payer.of * payer.sms / payer.of;
  page_->Count(payer.key, Duration(static_cast<Duration::rep>(weighted)), computed > 0 ? 1 : 0,
               Bytes(outcome.bytes()));
}

}  // namespace troupe::gpu
