// The node controller: what it adopted before it was started again. The manager says what is to be on a node;
// while it is away, a node that has lost everything but its disk serves what it served before.
//
//   started -(remember_after, no manager heard)-> adopts again -(joined)-> the manager's to say
//
// Functions with state are left out: only the manager knows whether their one owner is still this node.
#include "absl/strings/str_cat.h"
#include "actors/node/node_controller_actor.hpp"

namespace troupe::actors {

void NodeController::AdoptAgain() {
  if (epoch_ != 0) return;
  auto known = options_.remembered;
  known.set_snapshot(true);
  known.set_revision(0);  // whatever a manager says is newer
  static_cast<void>(view_.Apply(known));
  for (const auto& function : options_.remembered.functions()) {
    const auto copy = node::CopyName(function.model_digest(),
                                     node::IsolationKey(function, options_.isolation.mode, std::string()));
    if (models_.Find(copy) != nullptr || !remembered_.insert(copy).second) continue;
    models_.Hold(copy).function = function;
    if (const auto status = copies_.Want(copy, RegionBytesOf(function)); !status.ok())
      AdoptFailed(copy, status);
  }
  Note("manager-away", absl::StrCat("no manager was heard since the start: ", known.functions_size(),
                                    " functions that were adopted before are adopted again"));
  MoveCopies();
}

void NodeController::StopRemembering() {
  for (const auto& copy : std::exchange(remembered_, {})) {
    const auto* model = models_.Find(copy);
    const bool known = told_.contains(node::DigestOf(copy));
    if (model != nullptr && model->waiting.empty() && !known) DisownCopy(copy);
  }
}

void NodeController::ArmSaveAdopted() {
  // Before a manager was heard, the file knows more than this node does.
  if (!options_.save_adopted || epoch_ == 0 || std::exchange(save_adopted_armed_, true)) return;
  After(this, options_.save_adopted_after, MakeTick(kSaveAdopted));
}

void NodeController::SaveAdopted() {
  save_adopted_armed_ = false;
  proto::ClusterUpdate adopted;
  std::map<std::string, std::uint64_t> revisions;
  for (const auto& [name, versions] : view_.functions().functions()) {
    for (const auto& [number, record] : versions) {
      if (!record.loaded() || !record.state().empty() ||
          models_.AdoptedCopyOf(record.model_digest()) == nullptr)
        continue;
      revisions[absl::StrCat(name, "/", record.key().version())] = record.revision();
      *adopted.add_functions() = record;
    }
  }
  if (revisions == saved_adopted_) return;
  saved_adopted_ = std::move(revisions);
  options_.save_adopted(std::move(adopted));
}

}  // namespace troupe::actors
