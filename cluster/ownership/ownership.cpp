#include "cluster/ownership/ownership.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cluster/parts.hpp"
#include "proto/gpu_place.hpp"

namespace troupe::cluster {

Ownership::Seen Ownership::Look() const {
  return {.functions = parts_.catalogue.functions().revision(),
          .members = parts_.members.table().version(),
          .copies = parts_.copies.table().copies().changes(),
          .after_start = IsAfterStart()};
}

void Ownership::Start() {
  not_before_ = parts_.out.now() + parts_.settings.run_grace;
}

bool Ownership::IsAfterStart() const {
  return parts_.out.now() < not_before_;
}

// Some function owns a part of a GPU of a node that has not been heard of since the start.
bool Ownership::AwaitsNodes() const {
  if (!IsAfterStart()) return false;
  const auto& functions = parts_.catalogue.functions().table();
  return std::ranges::any_of(functions.owners(), [&](const FunctionVersion& version) {
    return std::ranges::any_of(functions.At(version).places(), [&](const proto::GpuPlace& place) {
      return parts_.members.table().Find(place.node()) == nullptr;
    });
  });
}

OwnershipPlan Ownership::MakePlan(bool rescale, bool tidy) {
  ScaledPlanning scaled;
  scaled.tidy = tidy;
  scaled.moves = planned_ != Look();
  scaled.after_start = IsAfterStart();
  if (rescale) {
    scaled.asked = parts_.scaling.Asked();
    scaled.rescale = [&](RectangleTable& table, InstanceId& last_id, ScaledOwners& owners) {
      parts_.scaling.Rescale(table, last_id, owners);
    };
  }
  if (parts_.settings.scaling.effect == ScalingEffect::kShown) scaled.advised = &advice_;
  return PlanOwnership(parts_.catalogue.functions().table(), parts_.members.table(),
                       parts_.copies.table().copies(), scaled);
}

void Ownership::Pulse() {
  const bool rescale = parts_.scaling.Due();
  const bool tidy = parts_.out.now() >= tidy_at_;
  if (placing_ || (planned_ == Look() && !rescale && !tidy) || parts_.out.now() < retry_at_ || AwaitsNodes())
    return;
  if (!rescale && parts_.catalogue.functions().table().owners().empty() && advice_.empty()) {
    problems_.clear();
    planned_ = Look();
    return;
  }
  auto plan = MakePlan(rescale, tidy);
  if (tidy) tidy_at_ = Time::max();
  TellProblems(plan);
  problems_ = std::move(plan.problems);
  advice_ = std::move(plan.advice);
  planned_ = Look();
  if (plan.commands.empty()) return;
  tidy_at_ = std::min(tidy_at_, parts_.out.now() + kTidyAfter);
  placing_ = true;
  parts_.mutations.Add(Placing{.commands = std::move(plan.commands), .revisions = std::move(plan.revisions)});
}

absl::Status Ownership::Validate(Placing& change) {
  const auto& functions = parts_.catalogue.functions().table();
  bool same = true;
  for (std::size_t i = 0; i < change.commands.size(); ++i) {
    const auto* record = functions.Find(change.commands[i].key());
    same = same && record != nullptr && record->revision() == change.revisions[i];
  }
  // The plan has not seen a change of another function that came before it.
  if (planned_ && planned_->functions != parts_.catalogue.functions().revision()) planned_.reset();
  if (same) return absl::OkStatus();
  // A change before this one was of the same functions, and the plan belongs together: the next pulse makes another one.
  change.commands.clear();
  planned_.reset();
  return absl::OkStatus();
}

void Ownership::TellProblems(const OwnershipPlan& plan) {
  for (const auto& [version, why] : plan.problems) {
    const auto before = problems_.find(version);
    if (absl::IsUnavailable(why) || (before != problems_.end() && before->second == why)) continue;
    const auto function = absl::StrCat("function '", version.first, "' version ", version.second);
    parts_.out.Tell("manager", "instance-unplaced", absl::StrCat(function, ": ", why.message()));
  }
}

void Ownership::Answer(const Placing& change, const absl::Status& status) {
  placing_ = false;
  if (!status.ok()) {
    planned_.reset();
    retry_at_ = parts_.out.now() + kRetry;
    return;
  }
  for (const auto& command : change.commands) {
    const auto owned = absl::StrJoin(
        command.places(), ", ",
        [](std::string* out, const proto::GpuPlace& place) { absl::StrAppend(out, proto::Describe(place)); });
    const auto now = owned.empty() ? std::string(" owns no part of a GPU") : absl::StrCat(" owns ", owned);
    parts_.out.Tell("manager", "instances-placed", absl::StrCat(Describe(command.key()), now));
  }
  // These commands are changes of functions themselves: they ask for no other plan.
  if (planned_) planned_->functions = parts_.catalogue.functions().revision();
}

const GpuPlaces* Ownership::AdviceFor(const proto::FunctionKey& key) const {
  const auto found = advice_.find(VersionOf(key));
  return found == advice_.end() ? nullptr : &found->second;
}

std::string Ownership::ProblemOf(const proto::FunctionKey& key) const {
  const auto found = problems_.find(VersionOf(key));
  return found == problems_.end() ? std::string() : std::string(found->second.message());
}

}  // namespace troupe::cluster
