#include "node/scheduling/names.hpp"

#include "base/check.hpp"

namespace troupe::node {

NameId Names::Intern(const std::string& name) {
  const auto [it, is_new] = ids_.try_emplace(name, kNoName);
  if (!is_new) return it->second;
  if (free_.empty()) {
    free_.push_back(static_cast<NameId>(names_.size()));
    names_.push_back(nullptr);
  }
  it->second = free_.back();
  free_.pop_back();
  names_[it->second] = &it->first;
  return it->second;
}

NameId Names::Find(const std::string& name) const {
  const auto it = ids_.find(name);
  return it == ids_.end() ? kNoName : it->second;
}

void Names::Forget(NameId id) {
  TROUPE_CHECK(id < names_.size() && names_[id] != nullptr, "a number was given back that no name has");
  const auto it = ids_.find(*names_[id]);
  names_[id] = nullptr;
  free_.push_back(id);
  ids_.erase(it);
}

}  // namespace troupe::node
