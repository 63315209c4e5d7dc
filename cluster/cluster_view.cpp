#include "cluster/cluster_view.hpp"

#include <utility>

#include "cluster/membership_table.hpp"

namespace troupe::cluster {

ViewChange ClusterView::Apply(const proto::ClusterUpdate& update) {
  ViewChange change;
  change.applied = Follows(update);
  if (!change.applied || (!update.snapshot() && update.revision() < revision_)) return change;
  FunctionTable before;
  if (update.snapshot()) before = std::exchange(functions_, FunctionTable());
  for (const proto::FunctionRecord& record : update.functions()) {
    const auto* known = (update.snapshot() ? before : functions_).Find(record.key());
    if (known != nullptr && known->deployed_unix_ns() != record.deployed_unix_ns() && record.loaded())
      change.removed.push_back(record.key());
    functions_.Put(record);
    (record.loaded() ? change.deployed : change.removed).push_back(record.key());
  }
  for (const proto::FunctionKey& key : update.removed()) {
    if (functions_.Remove(key)) change.removed.push_back(key);
  }
  before.ForEach([&](const proto::FunctionRecord& record) {
    if (functions_.Find(record.key()) == nullptr) change.removed.push_back(record.key());
  });
  // Members come whole, when anything has changed in them.
  if (update.members_size() > 0 || update.snapshot()) {
    members_.clear();
    gpu_kinds_.clear();
    take_input_parts_ = true;
    for (const proto::MemberRecord& record : update.members()) {
      members_[record.name()] = record;
      AddGpuKinds(record, gpu_kinds_);
      take_input_parts_ &= TakesInputParts(record);
    }
    change.members_changed = true;
  }
  if (update.workflows_listed()) {
    workflows_.clear();
    for (const proto::WorkflowRecord& record : update.workflows())
      workflows_[record.spec().name()][VersionNumber(record.spec().version())] = record;
  }
  profiles_.Apply(update);
  revision_ = update.revision();
  return change;
}

std::map<std::string, GpuKinds> ClusterView::KindsOfNodes() const {
  std::map<std::string, GpuKinds> kinds;
  for (const auto& [name, record] : members_) AddGpuKinds(record, kinds[name]);
  std::erase_if(kinds, [](const auto& node) { return node.second.empty(); });
  return kinds;
}

const proto::WorkflowRecord* ClusterView::FindWorkflow(const std::string& name,
                                                       const std::string& version) const {
  const auto it = workflows_.find(name);
  if (it == workflows_.end() || it->second.empty()) return nullptr;
  if (version.empty()) return &it->second.rbegin()->second;
  const auto found = it->second.find(VersionNumber(version));
  return found == it->second.end() ? nullptr : &found->second;
}

}  // namespace troupe::cluster
