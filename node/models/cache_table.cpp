#include "node/models/cache_table.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"

namespace troupe::node {

namespace {

// Ranks of copies that may leave.
enum : int { kIdle, kRead, kWaitedFor };

bool TakesRoom(CacheState state) {
  return state == CacheState::kLoading || state == CacheState::kHeld || state == CacheState::kLeaving;
}

}  // namespace

const char* Name(CacheState state) {
  switch (state) {
    case CacheState::kAbsent:
      return "absent";
    case CacheState::kFetching:
      return "fetching";
    case CacheState::kOnDisk:
      return "on disk";
    case CacheState::kLoading:
      return "loading";
    case CacheState::kHeld:
      return "held";
    case CacheState::kLeaving:
      return "leaving";
  }
  return "unknown";
}

const CacheEntry* CacheTable::Find(const ModelNumber& model) const {
  const auto it = entries_.find(model);
  return it == entries_.end() ? nullptr : &it->second;
}

std::vector<std::pair<ModelNumber, const CacheEntry*>> CacheTable::InOrder() const {
  std::vector<std::pair<ModelNumber, const CacheEntry*>> entries;
  entries.reserve(entries_.size());
  for (const auto& [model, entry] : entries_) entries.emplace_back(model, &entry);
  std::ranges::sort(
      entries, {}, [](const auto& entry) -> const auto& { return entry.first.text(); });
  return entries;
}

CacheEntry& CacheTable::At(const ModelNumber& model) {
  const auto it = entries_.find(model);
  TROUPE_CHECK(it != entries_.end(), "a host copy is named that was never adopted");
  return it->second;
}

bool CacheTable::Usable(const ModelNumber& model) const {
  const CacheEntry* entry = Find(model);
  return entry != nullptr && entry->state == CacheState::kHeld;
}

Bytes CacheTable::Room() const {
  return limits_.region > used_ ? limits_.region - used_ : Bytes();
}

void CacheTable::JoinLine(const ModelNumber& model, CacheEntry& entry) {
  if (entry.place != 0 || entry.state == CacheState::kHeld || entry.state == CacheState::kLoading) return;
  entry.place = next_place_++;
  line_.emplace(entry.place, model);
}

void CacheTable::LeaveLine(CacheEntry& entry) {
  if (entry.place == 0) return;
  line_.erase(entry.place);
  entry.place = 0;
}

void CacheTable::Forget(const ModelNumber& model) {
  const auto it = entries_.find(model);
  LeaveLine(it->second);
  entries_.erase(it);
}

absl::Status CacheTable::Want(const ModelNumber& model, Bytes bytes) {
  if (bytes > limits_.region) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a host copy takes ", FormatBytes(bytes), ", and the host region of this node has ",
                     FormatBytes(limits_.region), "; make the region larger"));
  }
  CacheEntry& entry = entries_[model];
  if (entry.wanted) return absl::OkStatus();
  entry.wanted = true;
  if (!TakesRoom(entry.state)) entry.bytes = bytes;
  if (entry.state == CacheState::kHeld) return absl::OkStatus();
  entry.adopting = true;
  CountArriving(entry);
  entry.failures = 0;
  entry.retry_at = Time();
  JoinLine(model, entry);
  return absl::OkStatus();
}

void CacheTable::Unwant(const ModelNumber& model) {
  const auto it = entries_.find(model);
  if (it == entries_.end()) return;
  CacheEntry& entry = it->second;
  entry.wanted = entry.adopting = false;
  CountArriving(entry);
  LeaveLine(entry);
  switch (entry.state) {
    case CacheState::kAbsent:
    case CacheState::kOnDisk:
      return Forget(model);
    case CacheState::kHeld:
      entry.state = CacheState::kLeaving;
      leaving_.insert(model);
      return;
    default:
      return;  // what is on its way comes to its end first
  }
}

void CacheTable::Adopted(const ModelNumber& model) {
  const auto it = entries_.find(model);
  if (it == entries_.end()) return;
  it->second.adopting = false;
  CountArriving(it->second);
}

void CacheTable::Need(const ModelNumber& model) {
  const auto it = entries_.find(model);
  if (it != entries_.end() && it->second.wanted) JoinLine(model, it->second);
}

void CacheTable::Drop(const ModelNumber& model, std::vector<CacheAction>& actions) {
  CacheEntry& entry = entries_.at(model);
  TROUPE_CHECK(entry.readers == 0, "a host copy leaves that is being read");
  used_ -= entry.bytes;
  ++counts_.drops;
  leaving_.erase(model);
  entry.state = CacheState::kOnDisk;
  CountArriving(entry);
  actions.push_back({CacheActionKind::kDrop, model});
  if (!entry.wanted) Forget(model);
}

// The copies that may go, in their order. Notes when a turn ends that keeps another one.
std::vector<CacheTable::Victim> CacheTable::Victims(Time now, const Waited& waited) {
  std::vector<Victim> victims;
  for (const auto& [model, entry] : entries_) {
    if (entry.state != CacheState::kHeld || entry.adopting) continue;
    if (!waited(model)) {
      victims.push_back({entry.readers == 0 ? kIdle : kRead, entry.last_use, model});
    } else if (const Time end = entry.held_since + (entry.read ? limits_.turn : limits_.unread_turn);
               end > now) {
      turn_ends_ = std::min(turn_ends_, end);
    } else {
      victims.push_back({kWaitedFor, entry.held_since, model});
    }
  }
  // Of those that are alike, the first by name.
  std::ranges::sort(victims, {}, [](const Victim& victim) {
    return std::tuple<int, Time, const std::string&>(victim.rank, victim.since, victim.model.text());
  });
  return victims;
}

// Drops copies without readers, and lets the others go with their last reader. It moves nothing when all of
// that would not make enough room yet.
void CacheTable::MakeRoom(Bytes need, Time now, const Waited& waited, std::vector<CacheAction>& actions) {
  Bytes coming = Room();
  for (const ModelNumber& model : leaving_) coming += entries_.at(model).bytes;
  if (coming >= need) return;
  std::vector<Victim> chosen;
  for (Victim& victim : Victims(now, waited)) {
    coming += entries_.at(victim.model).bytes;
    chosen.push_back(std::move(victim));
    if (coming >= need) break;
  }
  if (coming < need) return;
  for (const Victim& victim : chosen) {
    CacheEntry& entry = entries_.at(victim.model);
    if (coming >= need + entry.bytes) {
      coming -= entry.bytes;  // a later, larger one made it needless
      continue;
    }
    if (entry.readers == 0) {
      Drop(victim.model, actions);
    } else {
      entry.state = CacheState::kLeaving;
      leaving_.insert(victim.model);
      actions.push_back({CacheActionKind::kLeave, victim.model});
    }
    if (victim.rank == kWaitedFor) JoinLine(victim.model, entry);  // it comes back in its turn
  }
}

bool CacheTable::Arrives(const CacheEntry& entry) {
  return entry.adopting && (entry.state == CacheState::kLoading || entry.state == CacheState::kHeld);
}

void CacheTable::CountArriving(CacheEntry& entry) {
  if (entry.arrives == Arrives(entry)) return;
  entry.arrives = !entry.arrives;
  arriving_ += entry.arrives ? 1 : -1;
}

// One step for one model in the queue.
CacheTable::Step CacheTable::Advance(const ModelNumber& model, CacheEntry& entry, Time now,
                                     const Waited& waited, bool full, std::vector<CacheAction>& actions) {
  if (!entry.adopting && !waited(model)) return Step::kGone;
  if (entry.retry_at > now) return Step::kStay;
  if (entry.state == CacheState::kAbsent && fetching_ < limits_.parallel_fetches) {
    entry.state = CacheState::kFetching;
    ++fetching_;
    actions.push_back({CacheActionKind::kFetch, model});
  }
  if (full || entry.state != CacheState::kOnDisk || loading_ >= limits_.parallel_loads) return Step::kStay;
  if (entry.adopting && arriving_ >= limits_.parallel_adoptions) return Step::kStay;
  const Bytes need = std::min(entry.bytes + entry.slack, limits_.region);
  if (Room() < need) MakeRoom(need, now, waited, actions);
  if (Room() < need) return Step::kFull;
  entry.state = CacheState::kLoading;
  CountArriving(entry);
  used_ += entry.bytes;
  ++loading_;
  actions.push_back({CacheActionKind::kLoad, model});
  return Step::kGone;
}

std::vector<CacheAction> CacheTable::Decide(Time now, const Waited& waited) {
  std::vector<CacheAction> actions;
  turn_ends_ = Time::max();
  decided_ = now;
  std::vector<ModelNumber> unread;
  for (const ModelNumber& model : leaving_)
    if (entries_.at(model).readers == 0) unread.push_back(model);
  std::ranges::sort(unread, {}, &ModelNumber::text);
  for (const ModelNumber& model : unread) Drop(model, actions);
  bool full = false;  // one finds no room: those behind it are fetched at most
  for (auto it = line_.begin(); it != line_.end();) {
    CacheEntry& entry = entries_.at(it->second);
    const Step step = Advance(it->second, entry, now, waited, full, actions);
    full = full || step == Step::kFull;
    ++it;
    if (step == Step::kGone) LeaveLine(entry);
  }
  return actions;
}

void CacheTable::Failed(CacheEntry& entry, const absl::Status& status, Time now) {
  entry.last_error = status;
  const std::uint32_t doublings = std::min<std::uint32_t>(entry.failures++, 16);
  entry.retry_at =
      now + std::min(limits_.first_retry * (std::int64_t{1} << doublings), limits_.longest_retry);
}

void CacheTable::FetchDone(const ModelNumber& model, const absl::Status& status, Time now) {
  CacheEntry& entry = At(model);
  TROUPE_CHECK(entry.state == CacheState::kFetching, "a fetch ended that did not begin");
  --fetching_;
  entry.state = status.ok() ? CacheState::kOnDisk : CacheState::kAbsent;
  if (!status.ok()) Failed(entry, status, now);
  if (!entry.wanted) Forget(model);
}

void CacheTable::LoadDone(const ModelNumber& model, const absl::Status& status, Bytes actual, Time now) {
  CacheEntry& entry = At(model);
  TROUPE_CHECK(entry.state == CacheState::kLoading, "a load ended that did not begin");
  --loading_;
  used_ -= entry.bytes;
  if (status.ok()) {
    if (actual != Bytes()) entry.bytes = actual;
    used_ += entry.bytes;
    ++counts_.loads;
    entry.state = CacheState::kHeld;
    CountArriving(entry);
    entry.last_use = entry.held_since = now;
    entry.read = false;
    entry.failures = 0;
    entry.slack = Bytes();
    entry.last_error = absl::OkStatus();
    if (!entry.wanted) Unwant(model);
    return;
  }
  const bool damaged = absl::IsDataLoss(status) || absl::IsNotFound(status);
  counts_.damaged += damaged ? 1 : 0;
  entry.state = damaged ? CacheState::kAbsent : CacheState::kOnDisk;
  CountArriving(entry);
  entry.last_error = status;
  if (absl::IsResourceExhausted(status) && entry.slack < limits_.region) {
    entry.slack = std::max(entry.slack * 2, entry.bytes);
  } else if (!damaged || entry.failures > 0) {
    Failed(entry, status, now);
  } else {
    ++entry.failures;  // fetched anew at once; a second time with back-off
  }
  if (!entry.wanted) return Forget(model);
  // A request that waits for it waits on; Decide takes the model out of the queue when none waits.
  JoinLine(model, entry);
}

void CacheTable::Read(const ModelNumber& model, Time now) {
  CacheEntry& entry = At(model);
  // A copy that is to leave stays until its readers are done, and one of them may begin another read.
  TROUPE_CHECK(entry.state == CacheState::kHeld || (entry.state == CacheState::kLeaving && entry.readers > 0),
               "only a usable host copy is read");
  ++entry.readers;
  entry.read = true;
  entry.last_use = now;
}

bool CacheTable::Unread(const ModelNumber& model, Time now) {
  CacheEntry& entry = At(model);
  TROUPE_CHECK(entry.readers > 0, "a host copy without readers was released");
  entry.last_use = now;
  return --entry.readers == 0 && entry.state == CacheState::kLeaving;
}

Time CacheTable::NextDue() const {
  Time due = turn_ends_;
  for (const auto& [place, model] : line_) {
    // A time that has passed needs no timer: an event brings the model on, room or a free slot.
    if (const Time retry = entries_.at(model).retry_at; retry > decided_) due = std::min(due, retry);
  }
  return due;
}

void CacheTable::Check() const {
  Bytes used;
  std::uint32_t fetching = 0;
  std::uint32_t loading = 0;
  std::uint32_t arriving = 0;
  for (const auto& [model, entry] : entries_) {
    arriving += Arrives(entry) ? 1 : 0;
    if (TakesRoom(entry.state)) used += entry.bytes;
    fetching += entry.state == CacheState::kFetching ? 1 : 0;
    loading += entry.state == CacheState::kLoading ? 1 : 0;
    TROUPE_CHECK(
        entry.readers == 0 || entry.state == CacheState::kHeld || entry.state == CacheState::kLeaving,
        "a host copy is read that is not there");
    TROUPE_CHECK((entry.state == CacheState::kLeaving) == leaving_.contains(model),
                 "the list of leaving copies is wrong");
    TROUPE_CHECK(entry.place == 0 || line_.at(entry.place) == model, "the line of the models is wrong");
  }
  TROUPE_CHECK(used == used_, "the host region is counted wrongly");
  TROUPE_CHECK(arriving == arriving_, "models on their way into use are counted wrongly");
  TROUPE_CHECK(fetching == fetching_ && fetching_ <= limits_.parallel_fetches, "too many fetches at once");
  TROUPE_CHECK(loading == loading_ && loading_ <= limits_.parallel_loads, "too many loads at once");
}

}  // namespace troupe::node
