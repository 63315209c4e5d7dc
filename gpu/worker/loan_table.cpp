#include "gpu/worker/loan_table.hpp"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"

namespace troupe::gpu {

void LoanTable::Lend(const std::shared_ptr<transport::LocalChannel>& channel, const std::string& digest,
                     Reply reply) {
  absl::StatusOr<proto::LendOutcome> lent = Make(channel, digest);
  if (!lent.ok()) return reply.Fail(lent.status());
  proto::WorkerOutcome outcome;
  *outcome.mutable_lend() = *std::move(lent);
  reply.Done(std::move(outcome));
}

absl::StatusOr<proto::LendOutcome> LoanTable::Make(const std::shared_ptr<transport::LocalChannel>& channel,
                                                   const std::string& digest) {
  ModelTable& table = residency_.table();
  switch (table.StateOf(digest)) {
    case ModelTable::State::kAbsent:
      return absl::NotFoundError(absl::StrCat("model ", digest, " is not on this device: it cannot be lent"));
    case ModelTable::State::kLoading:
      return absl::FailedPreconditionError(
          absl::StrCat("model ", digest, " is being swapped in: it can be lent when it is there"));
    case ModelTable::State::kResident:
    case ModelTable::State::kRunning:
      break;
  }
  Loan loan{digest, table.Acquire(digest), channel};
  proto::LendOutcome outcome;
  const absl::Status shown = Show(loan.hold.weights, *channel, *outcome.mutable_weights());
  if (!shown.ok()) {
    residency_.Release(digest, loan.hold);
    return shown;
  }
  outcome.set_loan(outcome.weights().memory().arena());
  loans_.emplace(outcome.loan(), std::move(loan));
  return outcome;
}

absl::Status LoanTable::Show(const DeviceRange& weights, transport::LocalChannel& channel,
                             proto::LentMemory& shown) {
  TROUPE_ASSIGN_OR_RETURN(SharedRange range, device_.Share(weights));
  if (range.parts.size() > limits_.lent_ranges) {
    return absl::FailedPreconditionError(absl::StrCat("the model lies in ", range.parts.size(),
                                                      " ranges, at most ", limits_.lent_ranges,
                                                      " are lent: swap it in from the host"));
  }
  for (const SharedRange::Part& part : range.parts) {
    proto::LentMemory::Range& added = *shown.add_ranges();
    added.set_offset(part.offset.count());
    added.set_length(part.size.count());
  }
  TROUPE_ASSIGN_OR_RETURN(*shown.mutable_memory(), channel.HandOut(std::move(range.descriptor)));
  return absl::OkStatus();
}

// Withdrawn first: from then on nobody who asks takes the memory for what was lent.
void LoanTable::Return(std::uint64_t id) {
  const auto found = loans_.find(id);
  if (found == loans_.end()) return;
  const Loan loan = std::move(found->second);
  loans_.erase(found);
  loan.channel->Withdraw(id);
  residency_.Release(loan.digest, loan.hold);
}

void LoanTable::ReturnAll() {
  while (!loans_.empty()) Return(loans_.begin()->first);
}

}  // namespace troupe::gpu
