#include "actors/core/call.hpp"

#include <caf/exit_reason.hpp>
#include <caf/sec.hpp>
#include <vector>

#include "absl/strings/str_cat.h"

namespace troupe::actors {

std::uint64_t PendingCalls::Add(const caf::actor_addr& target, Fail fail) {
  const auto ticket = next_++;
  calls_.emplace(ticket, Entry{target, std::move(fail)});
  return ticket;
}

bool PendingCalls::Finish(std::uint64_t ticket) {
  return calls_.erase(ticket) == 1;
}

void PendingCalls::PeerDown(const caf::actor_addr& target) {
  std::vector<Fail> failed;
  for (auto it = calls_.begin(); it != calls_.end();) {
    if (it->second.target == target) {
      failed.push_back(std::move(it->second.fail));
      it = calls_.erase(it);
    } else {
      ++it;
    }
  }
  // After the table is consistent: a handler may well call again.
  for (auto& fail : failed) fail(absl::UnavailableError("the peer went down while it was asked"));
}

absl::Status ToStatus(const caf::error& error, Duration timeout) {
  if (error == caf::sec::request_timeout)
    return absl::DeadlineExceededError(absl::StrCat("no answer within ", FormatDuration(timeout)));
  if (error == caf::sec::request_receiver_down || error == caf::sec::remote_linking_failed ||
      error.category() == caf::atom("exit"))
    return absl::UnavailableError(absl::StrCat("the peer is gone: ", caf::to_string(error)));
  return absl::InternalError(caf::to_string(error));
}

}  // namespace troupe::actors
