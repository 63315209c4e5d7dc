#include "actors/core/call.hpp"

#include <algorithm>
#include <caf/behavior.hpp>
#include <caf/exit_reason.hpp>
#include <caf/scheduled_actor.hpp>
#include <caf/sec.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace troupe::actors {

std::uint64_t PendingCalls::Add(const caf::actor_addr& target, Time now, Duration timeout, Fail fail) {
  const auto ticket = next_++;
  const auto due = timeout < Time::max() - now ? now + timeout : Time::max();
  dues_.emplace(due, ticket);
  calls_.emplace(ticket, Entry{target, due, timeout, std::move(fail)});
  return ticket;
}

bool PendingCalls::Finish(std::uint64_t ticket) {
  const auto it = calls_.find(ticket);
  if (it == calls_.end()) return false;
  dues_.erase({it->second.due, ticket});
  calls_.erase(it);
  return true;
}

void PendingCalls::PeerDown(const caf::actor_addr& target) {
  std::vector<Fail> failed;
  for (auto it = calls_.begin(); it != calls_.end();) {
    if (it->second.target == target) {
      dues_.erase({it->second.due, it->first});
      failed.push_back(std::move(it->second.fail));
      it = calls_.erase(it);
    } else {
      ++it;
    }
  }
  // After the table is consistent: a handler may well call again.
  for (auto& fail : failed) fail(absl::UnavailableError("the peer went down while it was asked"));
}

void PendingCalls::Clear() {
  dues_.clear();
  const auto dropped = std::exchange(calls_, {});  // whose end may look here
}

void PendingCalls::Arm(caf::scheduled_actor* self) {
  if (dues_.empty()) return;
  const auto due = dues_.begin()->first;
  if (!alarm_.Set(due)) return;
  // A request without a receiver: its timeout is the timer. The actor's behaviour needs no handler for it.
  const auto timer = self->new_request_id(caf::message_priority::normal);
  self->request_response_timeout(caf::duration(std::max(due - Now(self), Duration::zero())), timer);
  self->add_multiplexed_response_handler(timer.response_id(), caf::behavior([this, self](caf::error&) {
                                           alarm_.WentOff(Now(self));
                                           Expire(Now(self));
                                           Arm(self);
                                         }));
}

void PendingCalls::Expire(Time now) {
  while (!dues_.empty() && dues_.begin()->first <= now) {
    const auto it = calls_.find(dues_.begin()->second);
    auto entry = std::move(it->second);
    dues_.erase(dues_.begin());
    calls_.erase(it);
    entry.fail(absl::DeadlineExceededError(absl::StrCat("no answer within ", FormatDuration(entry.timeout))));
  }
}

absl::Status ToStatus(const caf::error& error, Duration timeout) {
  if (error == caf::sec::request_timeout)
    return absl::DeadlineExceededError(absl::StrCat("no answer within ", FormatDuration(timeout)));
  if (error == caf::sec::request_receiver_down || error == caf::sec::remote_linking_failed ||
      error.category() == caf::atom("exit"))
    return absl::UnavailableError(absl::StrCat("the peer is gone: ", caf::to_string(error)));
  if (error == caf::sec::unexpected_message)
    return absl::UnimplementedError(
        "the peer does not know this message: it is of another release; upgrade the older of the two");
  return absl::InternalError(caf::to_string(error));
}

}  // namespace troupe::actors
