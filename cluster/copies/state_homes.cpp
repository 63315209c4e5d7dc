#include "cluster/copies/state_homes.hpp"

namespace troupe::cluster {

void StateHomes::Leave(const FunctionTable& functions, const std::set<std::string>& digests) {
  for (const auto& digest : digests) LeaveOne(functions, digest);
}

void StateHomes::LeaveAll(const FunctionTable& functions) {
  for (const auto& [digest, node] : Homes(homes_)) LeaveOne(functions, digest);
}

void StateHomes::LeaveOne(const FunctionTable& functions, const std::string& digest) {
  const auto use = functions.models().find(digest);
  if (use != functions.models().end() && use->second.with_state > 0) return;
  const auto home = homes_.extract(digest);
  if (home.empty()) return;
  old_homes_.push_back(digest);
  left_[digest] = home.mapped();
}

Time StateHomes::AwaitLeases(const MembershipTable& members, Time now) {
  auto first = Time::max();
  for (const auto& [digest, node] : std::exchange(left_, {})) {
    const auto* member = members.Find(node);
    const bool there = member != nullptr && member->record.state() != proto::MEMBER_DEAD;
    const auto free = (member == nullptr ? now : member->last_heard) + lease_;
    if (there || free <= now) continue;
    free_at_[digest] = free;
    first = std::min(first, free);
  }
  return first;
}

Time StateHomes::AddDue(Time now, std::set<std::string>& due) {
  auto next = Time::max();
  std::erase_if(free_at_, [&](const auto& entry) {
    if (entry.second <= now) return due.insert(entry.first), true;
    next = std::min(next, entry.second);
    return false;
  });
  return next;
}

}  // namespace troupe::cluster
