#include "node/models/kept_profiles.hpp"

#include <string>

#include "node/models/profiles.hpp"
#include "node/parts.hpp"

namespace troupe::node {

void KeptProfiles::On(const Started&) {
  if (parts_.settings.profiles.format_version() != 0) {  // 0: nothing was learned yet
    const auto imported = ImportProfiles(parts_.settings.profiles, parts_.kinds, parts_.scheduler);
    if (!imported.ok()) parts_.out.Note("profiles-refused", std::string(imported.message()));
    saved_ = parts_.scheduler.costs().revision();
  }
  if (parts_.settings.keeps_profiles)
    parts_.out.WakeAfter(Timer::kSaveProfiles, parts_.settings.save_profiles_every);
}

void KeptProfiles::On(const Stopping&) {
  Save();
}

void KeptProfiles::On(const ProfilesSaved& event) {
  if (!event.status.ok()) saved_.reset();
}

void KeptProfiles::OnTimer() {
  Save();
  parts_.out.WakeAfter(Timer::kSaveProfiles, parts_.settings.save_profiles_every);
}

void KeptProfiles::Save() {
  if (!parts_.settings.keeps_profiles || parts_.scheduler.costs().revision() == saved_) return;
  saved_ = parts_.scheduler.costs().revision();
  parts_.out.Add(SaveProfiles{ExportProfiles(parts_.scheduler, parts_.kinds)});
}

}  // namespace troupe::node
