#include "actors/node/relayed_ranges.hpp"

#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/core/time.hpp"
#include "base/wire_status.hpp"

namespace troupe::actors {

using Answer = node::RangeWaits::Answer;

void RelayedRanges::Refuse(FetchPromise promise, const absl::Status& status) {
  proto::FetchReply reply;
  SetStatus(status, reply);
  promise.deliver(std::move(reply));
}

FetchPromise RelayedRanges::Fetch(Self* self, const proto::FetchObject& part) {
  // A promise takes the sender away.
  const auto sender = self->current_sender();
  const auto asker = sender == nullptr ? std::string() : caf::to_string(sender->node());
  Asked asked{part, self->make_response_promise<proto::FetchReply>()};
  const auto promise = asked.promise;
  const auto question = next_++;
  switch (waits_.Ask(question, asker, part.digest(), part.offset(), part.length())) {
    case Answer::kHere:
      ReadReceived(self, asked);
      break;
    case Answer::kWaits:
      asked_.emplace(question, std::move(asked));
      After(self, patience_, MakeTick(kGiveUpTick, question));
      break;
    case Answer::kAbsent:
      reads_.Read(self, part, promise);  // says that it is not there
      break;
    case Answer::kBeyond:
      Refuse(promise, absl::OutOfRangeError(absl::StrCat("object ", part.digest(), " has no ", part.length(),
                                                         " bytes from byte ", part.offset(), " on")));
      break;
    case Answer::kTooMany:
      Refuse(promise, absl::ResourceExhaustedError(absl::StrCat(
                          waits_.waiting(),
                          " questions wait for ranges that this node is fetching: ask for this range ",
                          "later or elsewhere")));
      break;
  }
  return promise;
}

void RelayedRanges::ReadReceived(Self* self, const Asked& asked) {
  const auto* received = waits_.Of(asked.part.digest());
  reads_.ReadReceived(self, received->upload, received->total, asked.part, asked.promise);
}

void RelayedRanges::Came(Self* self, const std::string& object, node::RangeWaits::Received received) {
  for (const auto question : waits_.Came(object, std::move(received)))
    ReadReceived(self, asked_.extract(question).mapped());
}

void RelayedRanges::Over(Self* self, const std::string& object, bool whole) {
  for (const auto question : waits_.Over(object, whole)) {
    const auto asked = asked_.extract(question);
    reads_.Read(self, asked.mapped().part, asked.mapped().promise);
  }
}

void RelayedRanges::GiveUp(std::uint64_t question) {
  if (!waits_.GiveUp(question)) return;
  const auto asked = asked_.extract(question);
  Refuse(asked.mapped().promise,
         absl::AbortedError(
             absl::StrCat("byte ", asked.mapped().part.offset(), " of object ", asked.mapped().part.digest(),
                          " has not come to this node yet: ask for it later, or another node")));
}

}  // namespace troupe::actors
