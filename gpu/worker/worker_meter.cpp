#include "gpu/worker/worker_meter.hpp"

#include <algorithm>

namespace troupe::gpu {

WorkerMeter::Payer WorkerMeter::PayerOf(const proto::WorkerOrder& order, const ShareLadder& ladder) const {
  if (page_ == nullptr) return {};
  if (order.has_swap_in()) return {.key = order.swap_in().meter()};
  if (order.has_export_tensor()) return {.key = order.export_tensor().meter()};
  if (order.has_pull()) return {.key = order.pull().meter()};
  if (!order.has_run() || order.run().meter().empty()) return {};
  return {.key = order.run().meter(),
          .share = ladder.For(order.run().sharing().sm_partition()),
          .runs = static_cast<std::uint32_t>(order.run().members_size()) + 1};
}

void WorkerMeter::CountMoved(const std::string& key, Bytes moved) const {
  if (page_ != nullptr && !key.empty()) page_->Count(key, Duration::zero(), 0, moved);
}

void WorkerMeter::Count(const Payer& payer, const proto::WorkerOutcome& outcome) const {
  if (page_ == nullptr || payer.key.empty()) return;
  const auto& run = outcome.run();
  const auto computed =
      static_cast<std::uint64_t>(std::max<std::int64_t>(0, run.compute_ns() - run.others_ns()));
  const auto weighted = payer.share.sms == 0 ? computed : computed * payer.share.sms / payer.share.of;
  page_->Count(payer.key, Duration(static_cast<Duration::rep>(weighted)),
               run.compute_ns() > 0 ? payer.runs : 0, Bytes(outcome.bytes()));
}

}  // namespace troupe::gpu
