#include "node/models/remembered.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "node/parts.hpp"

namespace troupe::node {

void Remembered::On(const Started&) {
  if (parts_.settings.remembered.functions_size() > 0)
    parts_.out.WakeAfter(Timer::kRemember, parts_.settings.remember_after);
}

void Remembered::On(const Stopping&) {
  if (armed_) Save();
}

void Remembered::OnTimer() {
  if (parts_.membership.epoch() != 0) return;
  const auto& remembered = parts_.settings.remembered;
  parts_.membership.Assume(remembered);
  for (const auto& function : remembered.functions()) {
    const auto copy = parts_.models.CopyOf(function);
    if (parts_.models.Find(copy) != nullptr || !remembered_.insert(copy).second) continue;
    parts_.models.held().Hold(copy).function = function;
    if (const auto status = parts_.copies.Want(copy, function); !status.ok())
      parts_.models.AdoptFailed(copy, status);
  }
  parts_.out.Note("manager-away",
                  absl::StrCat("no manager was heard since the start: ", remembered.functions_size(),
                               " functions that were adopted before are adopted again"));
  parts_.copies.Move();
}

void Remembered::On(const Joined&) {
  const auto remembered = std::exchange(remembered_, {});
  std::vector<ModelNumber> copies(remembered.begin(), remembered.end());
  std::ranges::sort(copies, {}, &ModelNumber::text);
  for (const auto& copy : copies) {
    const auto* model = parts_.models.Find(copy);
    const bool known = parts_.membership.Told(copy->digest.text());
    if (model != nullptr && model->waiting.empty() && !known) parts_.models.Disown(copy);
  }
}

void Remembered::On(const AdoptedSaved& event) {
  if (event.status.ok()) return;
  saved_.reset();
  if (!std::exchange(armed_, true))
    parts_.out.WakeAfter(Timer::kSaveAdopted, parts_.settings.save_again_after);
}

void Remembered::SaveSoon() {
  // Before a manager was heard, the file knows more than this node does.
  if (!parts_.settings.keeps_adopted || parts_.membership.epoch() == 0 || std::exchange(armed_, true)) return;
  parts_.out.WakeAfter(Timer::kSaveAdopted, parts_.settings.save_adopted_after);
}

void Remembered::OnSaveTimer() {
  Save();
}

void Remembered::Save() {
  armed_ = false;
  proto::ClusterUpdate adopted;
  std::map<std::string, std::uint64_t> revisions;
  parts_.membership.view().functions().ForEach([&](const proto::FunctionRecord& record) {
    if (!record.loaded() || !record.state().empty() ||
        parts_.models.held().AdoptedCopyOf(parts_.names.FindDigest(record.model_digest())) == nullptr)
      return;
    revisions[absl::StrCat(record.key().name(), "/", record.key().version())] = record.revision();
    *adopted.add_functions() = record;
  });
  if (revisions == saved_) return;
  saved_ = std::move(revisions);
  parts_.out.Add(SaveAdopted{std::move(adopted)});
}

}  // namespace troupe::node
