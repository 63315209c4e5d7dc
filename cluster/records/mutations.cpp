#include "cluster/records/mutations.hpp"

#include <utility>
#include <variant>

#include "base/status.hpp"
#include "cluster/parts.hpp"

namespace troupe::cluster {

namespace {

// The part that a change belongs to.
struct Owner {
  Parts& parts;

  Deployments& operator()(const Deploying&) const { return parts.deployments; }
  StagedModels& operator()(const DeployingStages&) const { return parts.staged; }
  Deployments& operator()(const TakingBack&) const { return parts.deployments; }
  Deployments& operator()(const Removing&) const { return parts.deployments; }
  Deployments& operator()(const Loading&) const { return parts.deployments; }
  VersionChanges& operator()(const Splitting&) const { return parts.versions; }
  SharingChanges& operator()(const Updating&) const { return parts.sharing; }
  Ownership& operator()(const Placing&) const { return parts.ownership; }
  SharingChanges& operator()(const FollowingProfiles&) const { return parts.sharing; }
  WorkflowChanges& operator()(const SubmittingWorkflow&) const { return parts.workflows; }
  WorkflowChanges& operator()(const RemovingWorkflow&) const { return parts.workflows; }
  KeyChanges& operator()(const CreatingKey&) const { return parts.keys; }
  KeyChanges& operator()(const RevokingKey&) const { return parts.keys; }
  Profiling& operator()(const KeepingProfile&) const { return parts.profiling; }
  ProfileRemovals& operator()(const DroppingProfiles&) const { return parts.profile_removals; }
};

template <class Command, class Use>
void UseCommand(const Command& command, const Use& use) {
  use(command);
}
template <class Use>
void UseCommand(const CatalogueCommand& command, const Use& use) {
  std::visit(use, command);
}

// `use` is called with each command of a change.
template <class OneMutation, class Use>
void ForEachCommand(const OneMutation& mutation, const Use& use) {
  use(mutation.command);
}
template <class OneMutation, class Use>
requires requires(const OneMutation& mutation) {
  mutation.commands;
}
void ForEachCommand(const OneMutation& mutation, const Use& use) {
  for (const auto& command : mutation.commands) UseCommand(command, use);
}

// The parts of the requests that the function's versions have.
void AddParts(const Catalogue& catalogue, const std::string& name, Changes& changes) {
  const auto* versions = catalogue.functions().table().VersionsOf(name);
  if (versions == nullptr) return;
  for (const auto& [number, record] : *versions) {
    proto::SetVersionShare same;
    *same.mutable_key() = record.key();
    same.set_share_percent(record.share_percent());
    same.set_role(record.role());
    changes.Add(ChangesFor(catalogue, same));
  }
}

}  // namespace

void Mutations::Add(Mutation mutation) {
  if (queue_.size() >= limit_)
    return Answer(mutation,
                  absl::ResourceExhaustedError("too many changes are waiting to be stored; try again"));
  queue_.push_back(std::move(mutation));
  if (!busy_) Begin();
}

void Mutations::Begin() {
  busy_ = true;
  auto changes = Prepare(queue_.front());
  if (!changes.ok()) return End(changes.status());
  parts_.commits.Add(*std::move(changes), MutationStored());
}

void Mutations::On(const MutationStored&, const absl::Status& status) {
  const auto* split = std::get_if<Splitting>(&queue_.front());
  if (status.ok()) {
    unsure_.clear();
    Apply(queue_.front());
  } else if (split != nullptr) {
    unsure_.insert(split->wish.name());
  }
  End(status);
}

void Mutations::End(const absl::Status& status) {
  auto mutation = std::move(queue_.front());
  queue_.pop_front();
  Answer(mutation, status);  // may add a mutation: it waits, since this one still counts as busy
  busy_ = false;
  if (!queue_.empty()) Begin();
}

absl::StatusOr<Changes> Mutations::Prepare(Mutation& mutation) {
  return std::visit(
      [this](auto& one) -> absl::StatusOr<Changes> {
        TROUPE_RETURN_IF_ERROR(Owner{parts_}(one).Validate(one));
        Changes changes;
        // Else the disk would have some versions' parts of before it and some of after it.
        for (const auto& name : unsure_) AddParts(parts_.catalogue, name, changes);
        ForEachCommand(one, [&](const auto& command) { changes.Add(ChangesFor(parts_.catalogue, command)); });
        return changes;
      },
      mutation);
}

void Mutations::Apply(const Mutation& mutation) {
  std::visit(
      [this](const auto& one) {
        ForEachCommand(one, [&](const auto& command) {
          parts_.copies.UsersChanged(parts_.catalogue.ModelOf(command));
          parts_.catalogue.Apply(command);
        });
      },
      mutation);
  parts_.members.Changed();
}

void Mutations::Answer(Mutation& mutation, const absl::Status& status) {
  std::visit([&](auto& one) { Owner{parts_}(one).Answer(one, status); }, mutation);
}

}  // namespace troupe::cluster
