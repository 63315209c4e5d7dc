#include "cluster/cluster_view.hpp"

namespace troupe::cluster {

ViewChange ClusterView::Apply(const proto::ClusterUpdate& update) {
  ViewChange change;
  if (!update.snapshot()) {
    if (update.since() > revision_) return change;  // what lies between is missing
    change.applied = true;
    if (update.revision() < revision_) return change;
  }
  change.applied = true;
  FunctionTable before;
  if (update.snapshot()) {
    before = functions_;
    functions_.Clear();
  }
  for (const proto::FunctionRecord& record : update.functions()) {
    functions_.Put(record);
    (record.loaded() ? change.deployed : change.removed).push_back(record.key());
  }
  for (const proto::FunctionKey& key : update.removed()) {
    if (functions_.Remove(key)) change.removed.push_back(key);
  }
  for (const auto& [name, versions] : before.functions()) {
    for (const auto& [number, record] : versions) {
      if (functions_.Find(record.key()) == nullptr) change.removed.push_back(record.key());
    }
  }
  // Members always come whole.
  if (update.members_size() > 0 || update.snapshot()) {
    members_.clear();
    for (const proto::MemberRecord& record : update.members()) members_[record.name()] = record;
    change.members_changed = true;
  }
  if (update.workflows_listed()) {
    workflows_.clear();
    for (const proto::WorkflowRecord& record : update.workflows())
      workflows_[record.spec().name()][VersionNumber(record.spec().version())] = record;
  }
  revision_ = update.revision();
  return change;
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
