#include "cluster/membership_table.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "base/status.hpp"
#include "cluster/function_registry.hpp"

namespace troupe::cluster {

namespace {

bool TakesPart(proto::MemberState state) {
  return state != proto::MEMBER_DEAD && state != proto::MEMBER_LEFT;
}

const char* StateName(proto::MemberState state) {
  switch (state) {
    case proto::MEMBER_ALIVE:
      return "alive";
    case proto::MEMBER_SUSPECT:
      return "suspect";
    case proto::MEMBER_DEAD:
      return "dead";
    case proto::MEMBER_DRAINING:
      return "draining";
    case proto::MEMBER_LEFT:
      return "left";
    default:
      return "unknown";
  }
}

absl::Status ValidateJoin(const proto::MemberRecord& record) {
  TROUPE_RETURN_IF_ERROR(ValidateName("member", record.name()));
  if (record.kind() != proto::MEMBER_NODE && record.kind() != proto::MEMBER_GATEWAY) {
    return absl::InvalidArgumentError(
        absl::StrCat("member '", record.name(), "' is of no known kind; it joins as a node or as a gateway"));
  }
  return absl::OkStatus();
}

}  // namespace

bool TakesInputParts(const proto::MemberRecord& member) {
  if (member.kind() != proto::MEMBER_NODE || !TakesPart(member.state())) return true;
  return std::ranges::all_of(member.gpus(), [](const proto::GpuRecord& gpu) { return gpu.input_parts(); });
}

void MembershipTable::SetEpochFloor(std::uint64_t epoch) {
  last_epoch_ = std::max(last_epoch_, epoch);
}

void MembershipTable::Move(Member& member, proto::MemberState to, Duration silent) {
  const proto::MemberState from = member.record.state();
  if (from == to) return;
  member.record.set_state(to);
  transitions_.push_back({.name = member.record.name(),
                          .kind = member.record.kind(),
                          .epoch = member.record.epoch(),
                          .from = from,
                          .to = to,
                          .silent = silent});
  ++version_;
}

absl::Status MembershipTable::CheckOneDaemon(const Member& known, const proto::MemberRecord& wish,
                                             const std::string& daemon, Time now) const {
  const proto::MemberRecord& record = known.record;
  // A member does not get another's address while that one listens there.
  const bool same_place = record.address() == wish.address() && record.host() == wish.host();
  if (known.daemon == daemon || same_place || now - known.last_heard >= limits_.suspect_after)
    return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat("another daemon at ", record.address(), " is already called '",
                                               record.name(), "'; give one of them another --name"));
}

absl::StatusOr<std::uint64_t> MembershipTable::Join(const proto::JoinRequest& request, Time now,
                                                    const std::string& daemon) {
  const proto::MemberRecord& wish = request.member();
  TROUPE_RETURN_IF_ERROR(ValidateJoin(wish));
  const auto it = members_.find(wish.name());
  if (it == members_.end() && members_.size() >= limits_.max_members) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the cluster has ", members_.size(), " members, its limit"));
  }
  // A living one of this name ends here: it is the same member after a restart, noticed before its silence
  // was, or one that lost its manager.
  if (it != members_.end() && TakesPart(it->second.record.state())) {
    TROUPE_RETURN_IF_ERROR(CheckOneDaemon(it->second, wish, daemon, now));
    Move(it->second, proto::MEMBER_DEAD, now - it->second.last_heard);
  }
  Member member;
  member.record = wish;
  member.record.set_epoch(++last_epoch_);
  member.record.set_state(proto::MEMBER_ALIVE);
  member.last_heard = now;
  member.daemon = daemon;
  transitions_.push_back({.name = wish.name(),
                          .kind = wish.kind(),
                          .epoch = last_epoch_,
                          .from = it == members_.end() ? proto::MEMBER_LEFT : it->second.record.state(),
                          .to = proto::MEMBER_ALIVE});
  ++version_;
  members_[wish.name()] = std::move(member);
  return last_epoch_;
}

absl::StatusOr<Member*> MembershipTable::Current(const std::string& name, std::uint64_t epoch) {
  TROUPE_RETURN_IF_ERROR(CheckEpoch(name, epoch));
  return &members_.at(name);
}

absl::Status MembershipTable::CheckEpoch(const std::string& name, std::uint64_t epoch) const {
  const auto it = members_.find(name);
  if (it == members_.end()) {
    return absl::FailedPreconditionError(
        absl::StrCat("'", name, "' is not a member of this cluster; join first"));
  }
  const proto::MemberRecord& record = it->second.record;
  if (record.epoch() != epoch) {
    return absl::FailedPreconditionError(absl::StrCat("'", name, "' speaks with epoch ", epoch,
                                                      ", and the current one is ", record.epoch(),
                                                      "; join again"));
  }
  if (!TakesPart(record.state())) {
    return absl::FailedPreconditionError(
        absl::StrCat("'", name, "' is ", StateName(record.state()), "; join again"));
  }
  return absl::OkStatus();
}

absl::Status MembershipTable::HearOf(const std::string& name, std::uint64_t epoch, Time now) {
  TROUPE_ASSIGN_OR_RETURN(Member * member, Current(name, epoch));
  member->last_heard = std::max(member->last_heard, now);
  if (member->record.state() == proto::MEMBER_SUSPECT) Move(*member, proto::MEMBER_ALIVE, {});
  return absl::OkStatus();
}

absl::Status MembershipTable::Hear(const proto::Heartbeat& heartbeat, Time now) {
  TROUPE_ASSIGN_OR_RETURN(Member * member, Current(heartbeat.name(), heartbeat.epoch()));
  member->last_heard = std::max(member->last_heard, now);
  if (heartbeat.sequence() < member->last_sequence)
    return absl::OkStatus();  // overtaken: it lives, its news is old
  member->last_sequence = heartbeat.sequence();
  member->load = heartbeat.load();
  const auto states = [](const auto& gpus) {
    std::string text;
    for (const proto::GpuRecord& gpu : gpus) {
      absl::StrAppend(&text, gpu.index(), ":", gpu.state(), ":", gpu.memory_bytes(), ":", gpu.input_parts(),
                      ";");
    }
    return text;
  };
  if (heartbeat.gpus_size() > 0 && states(heartbeat.gpus()) != states(member->record.gpus())) {
    *member->record.mutable_gpus() = heartbeat.gpus();
    ++version_;
  }
  if (member->record.state() == proto::MEMBER_SUSPECT) Move(*member, proto::MEMBER_ALIVE, {});
  return absl::OkStatus();
}

std::vector<proto::Event> MembershipTable::TakeEvents(const proto::Heartbeat& heartbeat) {
  std::vector<proto::Event> events;
  const auto member = Current(heartbeat.name(), heartbeat.epoch());
  if (!member.ok()) return events;
  for (const proto::Event& event : heartbeat.events()) {
    if (event.sequence() <= (*member)->last_event) continue;
    (*member)->last_event = event.sequence();
    events.push_back(event);
    events.back().set_member(heartbeat.name());
  }
  return events;
}

absl::Status MembershipTable::Leave(const proto::LeaveRequest& request, Time now) {
  TROUPE_ASSIGN_OR_RETURN(Member * member, Current(request.name(), request.epoch()));
  Move(*member, proto::MEMBER_LEFT, now - member->last_heard);
  return absl::OkStatus();
}

void MembershipTable::ConnectionLost(const std::string& name, std::uint64_t epoch, Time now) {
  const auto member = Current(name, epoch);
  if (member.ok()) Move(**member, proto::MEMBER_DEAD, now - (*member)->last_heard);
}

absl::Status MembershipTable::SetDraining(const std::string& name, bool drain) {
  const auto it = members_.find(name);
  if (it == members_.end()) {
    return absl::NotFoundError(absl::StrCat("there is no node '", name, "'; `troupe node list` shows them"));
  }
  Member& member = it->second;
  if (member.record.kind() != proto::MEMBER_NODE) {
    return absl::InvalidArgumentError(absl::StrCat("'", name, "' is a gateway, and only nodes are drained"));
  }
  if (!TakesPart(member.record.state())) {
    return absl::FailedPreconditionError(
        absl::StrCat("node '", name, "' is ", StateName(member.record.state())));
  }
  if (drain) {
    Move(member, proto::MEMBER_DRAINING, {});
  } else if (member.record.state() == proto::MEMBER_DRAINING) {
    Move(member, proto::MEMBER_ALIVE, {});
  }
  return absl::OkStatus();
}

void MembershipTable::Excuse(Duration stood, Time now) {
  for (auto& [name, member] : members_) member.last_heard = std::min(now, member.last_heard + stood);
}

Time MembershipTable::Forgotten(const Member& member) const {
  const bool left = member.record.state() == proto::MEMBER_LEFT;
  return member.last_heard + (left ? limits_.left_kept : limits_.dead_kept);
}

std::vector<Transition> MembershipTable::Tick(Time now) {
  for (auto& [name, member] : members_) {
    if (!TakesPart(member.record.state())) continue;
    const Duration silent = now - member.last_heard;
    if (silent >= limits_.dead_after) {
      Move(member, proto::MEMBER_DEAD, silent);
    } else if (silent >= limits_.suspect_after && member.record.state() == proto::MEMBER_ALIVE) {
      Move(member, proto::MEMBER_SUSPECT, silent);
    }
  }
  version_ += std::erase_if(members_, [&](const auto& entry) {
    return !TakesPart(entry.second.record.state()) && Forgotten(entry.second) <= now;
  });
  return std::exchange(transitions_, {});
}

Time MembershipTable::NextDue() const {
  Time due = Time::max();
  for (const auto& [name, member] : members_) {
    if (!TakesPart(member.record.state())) {
      due = std::min(due, Forgotten(member));
      continue;
    }
    const bool alive = member.record.state() == proto::MEMBER_ALIVE;
    due = std::min(due, member.last_heard + (alive ? limits_.suspect_after : limits_.dead_after));
  }
  return due;
}

const Member* MembershipTable::Find(const std::string& name) const {
  const auto it = members_.find(name);
  return it == members_.end() ? nullptr : &it->second;
}

std::vector<proto::MemberRecord> MembershipTable::Records() const {
  std::vector<proto::MemberRecord> records;
  for (const auto& [name, member] : members_) records.push_back(member.record);
  return records;
}

}  // namespace troupe::cluster
