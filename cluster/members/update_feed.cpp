#include "cluster/members/update_feed.hpp"

#include <algorithm>
#include <utility>

namespace troupe::cluster {

namespace {

proto::ClusterUpdate FunctionsSince(std::uint64_t known, const Catalogue& catalogue) {
  const auto& functions = catalogue.functions();
  // Revisions are the catalogue's: most of those behind the functions' last one changed something else.
  auto update =
      functions.ChangesSince(known > catalogue.revision() ? 0 : std::min(known, functions.revision()));
  update.set_revision(catalogue.revision());
  return update;
}

void AddMembers(const MembershipTable& members, proto::ClusterUpdate& update) {
  for (auto& record : members.Records()) *update.add_members() = std::move(record);
}

void AddWorkflows(const Catalogue& catalogue, proto::ClusterUpdate& update) {
  update.set_workflows_listed(true);
  for (const auto& [name, versions] : catalogue.workflows().workflows())
    for (const auto& [version, record] : versions) *update.add_workflows() = record;
}

void AddProfiles(std::uint64_t known, const Catalogue& catalogue, proto::ClusterUpdate& update) {
  for (const auto& [name, profile] : catalogue.profiles().profiles())
    if (update.snapshot() || profile.revision() > known) *update.add_profiles() = profile;
  if (update.snapshot()) return;
  for (const auto& [name, profile] : catalogue.profiles().gone())
    if (profile.revision() > known) *update.add_profiles() = profile;
}

void AddKeys(const Catalogue& catalogue, proto::ClusterUpdate& update) {
  update.set_keys_listed(true);
  for (const auto& [name, key] : catalogue.keys().keys()) *update.add_keys() = key;
}

}  // namespace

UpdateFeed::UpdateFeed(const Catalogue& catalogue)
    : told_(catalogue.revision()),
      told_workflows_(catalogue.workflows_revision()),
      told_keys_(catalogue.keys_revision()) {}

proto::ClusterUpdate UpdateFeed::Next(const Catalogue& catalogue, const MembershipTable& members) {
  auto update = FunctionsSince(told_, catalogue);
  if (!update.more_after().empty()) {
    // A snapshot that does not fit into one message is not told: each member finds the gap, and asks for it part by part.
    update = {};
    update.set_revision(catalogue.revision());
    update.set_since(catalogue.revision());
  } else if (!update.snapshot()) {
    // Members and workflows that were told of before are not in it: it follows on nothing older.
    update.set_since(told_);
  }
  AddProfiles(told_, catalogue, update);
  told_ = catalogue.revision();
  if (std::exchange(told_members_, members.version()) != members.version() || update.snapshot())
    AddMembers(members, update);
  if (std::exchange(told_workflows_, catalogue.workflows_revision()) != catalogue.workflows_revision() ||
      update.snapshot())
    AddWorkflows(catalogue, update);
  if (std::exchange(told_keys_, catalogue.keys_revision()) != catalogue.keys_revision() || update.snapshot())
    AddKeys(catalogue, update);
  return update;
}

proto::ClusterUpdate UpdateFeed::Since(std::uint64_t known, const Catalogue& catalogue,
                                       const MembershipTable& members) {
  auto update = FunctionsSince(known, catalogue);
  AddMembers(members, update);
  AddWorkflows(catalogue, update);
  AddKeys(catalogue, update);
  AddProfiles(known, catalogue, update);
  return update;
}

proto::ClusterUpdate UpdateFeed::SnapshotAfter(const std::string& function, const Catalogue& catalogue) {
  return catalogue.functions().SnapshotAfter(function);
}

}  // namespace troupe::cluster
