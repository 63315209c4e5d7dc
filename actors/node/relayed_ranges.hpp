// RELAYED RANGES: what a node's cache answers other nodes that ask for ranges of objects which it is still fetching. A question
// for a range that has not come waits for it; node::RangeWaits says for how long. Owned by the cache, in whose thread
// everything happens.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "actors/interfaces/cache.hpp"
#include "actors/node/model_pulls.hpp"
#include "actors/seams/object_reads.hpp"
#include "node/models/range_waits.hpp"

namespace troupe::actors {

class RelayedRanges {
 public:
  // The owner's tick for GiveUp, with the number of a question.
  static constexpr std::uint32_t kGiveUpTick = 4;
  using Self = CacheSelf::base;

  // Questions that wait at the same time; a node that follows this one asks for three ranges of each of a model's objects.
  static constexpr node::RangeWaits::Limits kLimits = {.most = 64, .most_of_one = 32};

  // `reads` outlives it. `patience`: how long a question waits.
  RelayedRanges(ObjectReads& reads, Duration patience) : reads_(reads), patience_(patience) {}

  // A fetch of the object begins, and ends; `whole`: the repository has it.
  void Expect(const std::string& object) { waits_.Expect(object); }
  void Over(Self* self, const std::string& object, bool whole);
  // So much of the object lies in an upload of the repository.
  void Came(Self* self, const std::string& object, node::RangeWaits::Received received);
  // A question for a range of an object that the repository has not.
  FetchPromise Fetch(Self* self, const proto::FetchObject& part);
  void GiveUp(std::uint64_t question);
  void Clear() { asked_.clear(); }

 private:
  struct Asked {
    proto::FetchObject part;
    FetchPromise promise;
  };
  static void Refuse(FetchPromise promise, const absl::Status& status);
  void ReadReceived(Self* self, const Asked& asked);

  ObjectReads& reads_;
  const Duration patience_;
  node::RangeWaits waits_{kLimits};
  std::map<std::uint64_t, Asked> asked_;  // what waits, by its number
  std::uint64_t next_ = 1;
};

}  // namespace troupe::actors
