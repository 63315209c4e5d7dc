#include "actors/node/message_file.hpp"

#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/digest.hpp"
#include "storage/durable_file.hpp"

namespace troupe::actors {

namespace {

constexpr std::size_t kLargest = 64 << 20;
constexpr std::size_t kDigest = 64;  // hexadecimal digits

}  // namespace

absl::StatusOr<std::string> WithoutDigest(const std::string& text) {
  std::string bytes = text.size() > kDigest ? text.substr(kDigest + 1) : "";
  const bool whole =
      text.size() > kDigest && text[kDigest] == '\n' && Sha256Hex(bytes) == text.substr(0, kDigest);
  if (!whole) return absl::DataLossError("the text does not match its digest");
  return bytes;
}

absl::StatusOr<std::string> ReadDigested(const std::string& path) {
  TROUPE_ASSIGN_OR_RETURN(const std::string text, storage::ReadSmallFile(path, kLargest));
  return WithoutDigest(text);
}

std::string Digested(const std::string& bytes) {
  return absl::StrCat(Sha256Hex(bytes), "\n", bytes);
}

absl::Status WriteDigested(const std::string& path, const std::string& bytes) {
  return storage::ReplaceFile(path, Digested(bytes));
}

struct DigestedFile::State {
  std::string path;
  std::string loss;
  std::function<void(const absl::Status&)> on_error;
  std::mutex mutex;
  std::function<std::string()> newest;  // guarded by mutex: waits to be written; may be empty
  std::vector<Saved> waiting;           // guarded by mutex: for that
  bool saving = false;                  // guarded by mutex

  void WriteAll() {
    while (true) {
      std::function<std::string()> next;
      std::vector<Saved> told;
      {
        const std::lock_guard lock(mutex);
        next = std::exchange(newest, nullptr);
        told = std::exchange(waiting, {});
        saving = next != nullptr;
      }
      if (!next) return;
      Tell(told, WriteDigested(path, next()));
    }
  }
  void Tell(const std::vector<Saved>& told, const absl::Status& status) const {
    if (!status.ok() && on_error) on_error(status);
    for (const auto& saved : told) saved(status);
  }
};

DigestedFile::DigestedFile(std::string path, WorkPool& pool,
                           std::function<void(const absl::Status&)> on_error, std::string loss)
    : state_(std::make_shared<State>()), pool_(pool) {
  state_->path = std::move(path);
  state_->on_error = std::move(on_error);
  state_->loss = std::move(loss);
}

absl::StatusOr<std::string> DigestedFile::Load() const {
  TROUPE_ASSIGN_OR_RETURN(const std::string text, storage::ReadSmallFile(state_->path, kLargest));
  const auto bytes = WithoutDigest(text);
  return bytes.ok() ? bytes : Damaged();
}

absl::Status DigestedFile::Damaged() const {
  return absl::DataLossError(absl::StrCat("'", state_->path, "' is damaged; ", state_->loss));
}

void DigestedFile::Save(std::function<std::string()> bytes, Saved saved) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->newest = std::move(bytes);
    state_->waiting.push_back(std::move(saved));
    if (std::exchange(state_->saving, true)) return;
  }
  const auto posted = pool_.Post([state = state_] { state->WriteAll(); });
  if (posted.ok()) return;
  std::vector<Saved> told;
  {
    const std::lock_guard lock(state_->mutex);
    state_->saving = false;
    state_->newest = nullptr;
    told = std::exchange(state_->waiting, {});
  }
  state_->Tell(told, posted);
}

}  // namespace troupe::actors
