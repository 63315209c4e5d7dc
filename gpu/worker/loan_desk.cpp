#include "gpu/worker/loan_desk.hpp"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"

namespace troupe::gpu {

void LoanDesk::Lend(const std::shared_ptr<transport::LocalChannel>& channel, const std::string& digest,
                    Reply reply) {
  absl::StatusOr<proto::LendOutcome> lent = Make(channel, digest);
  if (!lent.ok()) return reply.Fail(lent.status());
  proto::WorkerOutcome outcome;
  *outcome.mutable_lend() = *std::move(lent);
  reply.Done(std::move(outcome));
}

absl::StatusOr<proto::LendOutcome> LoanDesk::Make(const std::shared_ptr<transport::LocalChannel>& channel,
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
  const auto show = [&]() -> absl::Status {
    TROUPE_ASSIGN_OR_RETURN(SharedRange range, device_.Share(loan.hold.weights));
    TROUPE_ASSIGN_OR_RETURN(*outcome.mutable_weights(), channel->HandOut(std::move(range.descriptor)));
    outcome.mutable_weights()->set_offset(range.offset.count());
    outcome.mutable_weights()->set_length(range.size.count());
    return absl::OkStatus();
  };
  if (const absl::Status shown = show(); !shown.ok()) {
    residency_.Release(digest, loan.hold);
    return shown;
  }
  outcome.set_loan(outcome.weights().arena());
  loans_.emplace(outcome.loan(), std::move(loan));
  return outcome;
}

// Withdrawn first: from then on nobody who asks takes the memory for what was lent.
void LoanDesk::Return(std::uint64_t id) {
  const auto found = loans_.find(id);
  if (found == loans_.end()) return;
  const Loan loan = std::move(found->second);
  loans_.erase(found);
  loan.channel->Withdraw(id);
  residency_.Release(loan.digest, loan.hold);
}

void LoanDesk::ReturnAll() {
  while (!loans_.empty()) Return(loans_.begin()->first);
}

}  // namespace troupe::gpu
