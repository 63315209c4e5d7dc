#include "actors/node/profile_file.hpp"

#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/digest.hpp"
#include "base/status.hpp"
#include "storage/durable_file.hpp"

namespace troupe::actors {

namespace {

constexpr std::size_t kLargest = 64 << 20;
constexpr std::size_t kDigest = 64;  // hexadecimal digits

}  // namespace

struct ProfileFile::State {
  std::string path;
  std::function<void(const absl::Status&)> on_error;
  std::mutex mutex;
  std::optional<proto::NodeProfiles> newest;  // guarded by mutex: waits to be written
  bool saving = false;                        // guarded by mutex

  void WriteAll() {
    while (true) {
      std::optional<proto::NodeProfiles> next;
      {
        const std::lock_guard lock(mutex);
        next = std::exchange(newest, std::nullopt);
        saving = next.has_value();
      }
      if (!next) return;
      const std::string bytes = next->SerializeAsString();
      const auto status = storage::ReplaceFile(path, absl::StrCat(Sha256Hex(bytes), "\n", bytes));
      if (!status.ok() && on_error) on_error(status);
    }
  }
};

ProfileFile::ProfileFile(std::string path, WorkPool& pool, std::function<void(const absl::Status&)> on_error)
    : state_(std::make_shared<State>()), pool_(pool) {
  state_->path = std::move(path);
  state_->on_error = std::move(on_error);
}

absl::StatusOr<proto::NodeProfiles> ProfileFile::Load() const {
  TROUPE_ASSIGN_OR_RETURN(const std::string text, storage::ReadSmallFile(state_->path, kLargest));
  proto::NodeProfiles profiles;
  const bool whole = text.size() > kDigest && text[kDigest] == '\n' &&
                     Sha256Hex(text.substr(kDigest + 1)) == text.substr(0, kDigest);
  if (!whole || !profiles.ParseFromString(text.substr(kDigest + 1))) {
    return absl::DataLossError(
        absl::StrCat("'", state_->path, "' is damaged; what it knew of the models will be learned anew"));
  }
  return profiles;
}

void ProfileFile::Save(proto::NodeProfiles profiles) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->newest = std::move(profiles);
    if (std::exchange(state_->saving, true)) return;
  }
  const auto posted = pool_.Post([state = state_] { state->WriteAll(); });
  if (posted.ok()) return;
  {
    const std::lock_guard lock(state_->mutex);
    state_->saving = false;
  }
  if (state_->on_error) state_->on_error(posted);
}

}  // namespace troupe::actors
