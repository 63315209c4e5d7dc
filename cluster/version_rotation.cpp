#include "cluster/version_rotation.hpp"

#include <algorithm>
#include <utility>

namespace troupe::cluster {

absl::StatusOr<const proto::FunctionRecord*> VersionRotation::Choose(const FunctionTable& functions,
                                                                     const proto::FunctionKey& key) {
  if (key.version().empty())
    if (const auto* next = Next(functions, key.name())) return next;
  return functions.FindServed(key);
}

const proto::FunctionRecord* VersionRotation::Next(const FunctionTable& functions, const std::string& name) {
  if (!functions.AreShared(name)) {
    if (!functions_.empty()) functions_.erase(name);
    return nullptr;
  }
  const auto* versions = functions.VersionsOf(name);
  Turns wanted;
  for (const auto& [number, record] : *versions)
    if (record.loaded() && record.share_percent() > 0) wanted[number].share = record.share_percent();
  if (wanted.size() < 2) {
    functions_.erase(name);
    return nullptr;
  }
  auto& turns = functions_[name];
  // After a change of the shares the rotation begins anew.
  const bool same = turns.size() == wanted.size() &&
                    std::equal(turns.begin(), turns.end(), wanted.begin(), [](const auto& a, const auto& b) {
                      return a.first == b.first && a.second.share == b.second.share;
                    });
  if (!same) turns = std::move(wanted);
  std::int64_t sum = 0;
  for (auto& [number, turn] : turns) {
    turn.credit += turn.share;
    sum += turn.share;
  }
  // Of equal credits the oldest version's is first.
  const auto next = std::max_element(turns.begin(), turns.end(), [](const auto& a, const auto& b) {
    return a.second.credit < b.second.credit;
  });
  next->second.credit -= sum;
  return &versions->at(next->first);
}

}  // namespace troupe::cluster
