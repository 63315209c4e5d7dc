#include "gpu/worker/model_table.hpp"

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "base/status.hpp"

namespace troupe::gpu {

ModelTable::State ModelTable::StateOf(const std::string& digest) const {
  const auto found = models_.find(digest);
  if (found == models_.end()) return State::kAbsent;
  if (found->second.loading) return State::kLoading;
  return found->second.users > 0 ? State::kRunning : State::kResident;
}

ModelTable::Model& ModelTable::At(const std::string& digest) {
  const auto found = models_.find(digest);
  TROUPE_CHECK(found != models_.end(), "a model that is not in the table was used");
  return found->second;
}

void ModelTable::BeginLoading(const std::string& digest, DeviceRange weights) {
  TROUPE_CHECK(models_.emplace(digest, Model{weights, ++loads_}).second, "a model is loaded once");
  ++loading_;
}

void ModelTable::Loaded(const std::string& digest) {
  Model& model = At(digest);
  TROUPE_CHECK(model.loading, "a model that was loaded was not loading");
  model.loading = false;
  --loading_;
  Tell(digest, model.weights);
}

std::optional<DeviceRange> ModelTable::LoadFailed(const std::string& digest) {
  const Model model = At(digest);
  TROUPE_CHECK(model.loading, "a model whose loading failed was not loading");
  Tell(digest, std::nullopt);
  models_.erase(digest);
  --loading_;
  if (model.users == 0) return model.weights;
  failed_.emplace(model.load, model);
  return std::nullopt;
}

ModelTable::Hold ModelTable::Acquire(const std::string& digest) {
  Model& model = At(digest);
  ++model.users;
  return {model.weights, model.load};
}

std::optional<DeviceRange> ModelTable::Release(const std::string& digest, const Hold& hold) {
  const auto failed = failed_.find(hold.load);
  Model& model = failed != failed_.end() ? failed->second : At(digest);
  TROUPE_CHECK(model.load == hold.load && model.users > 0, "a model was released more often than acquired");
  --model.users;
  if (failed == failed_.end() || model.users > 0) return std::nullopt;
  failed_.erase(failed);
  return hold.weights;
}

absl::Status ModelTable::MayEvict(const std::string& digest) const {
  const State state = StateOf(digest);
  if (state == State::kAbsent) {
    return absl::NotFoundError(absl::StrCat("model ", digest, " is not on this device"));
  }
  if (state == State::kLoading) {
    return absl::FailedPreconditionError(
        absl::StrCat("model ", digest, " is being swapped in: evict it afterwards"));
  }
  if (state == State::kRunning) {
    return absl::FailedPreconditionError(absl::StrCat(
        "model ", digest, " is used by ", models_.at(digest).users, " runs: evict it afterwards"));
  }
  return absl::OkStatus();
}

absl::StatusOr<DeviceRange> ModelTable::Evict(const std::string& digest) {
  TROUPE_RETURN_IF_ERROR(MayEvict(digest));
  const DeviceRange weights = At(digest).weights;
  Tell(digest, std::nullopt);
  models_.erase(digest);
  return weights;
}

std::optional<ModelTable::Place> ModelTable::IdleAt(const std::byte* weights) const {
  for (const auto& [digest, model] : models_) {
    if (model.weights.address != weights) continue;
    if (model.loading || model.users > 0) return std::nullopt;
    return Place{digest, model.load};
  }
  return std::nullopt;
}

bool ModelTable::Move(const Place& place, DeviceRange to) {
  const auto found = models_.find(place.digest);
  if (found == models_.end() || found->second.load != place.load) return false;
  if (found->second.loading || found->second.users > 0) return false;
  found->second.weights = to;
  found->second.load = ++loads_;  // a copy from its old place has come too late
  Tell(place.digest, to);
  return true;
}

Bytes ModelTable::SizeOf(const std::string& digest) const {
  const auto found = models_.find(digest);
  TROUPE_CHECK(found != models_.end(), "the size of an absent model was asked for");
  return found->second.weights.size;
}

std::vector<std::pair<std::string, Bytes>> ModelTable::Resident() const {
  std::vector<std::pair<std::string, Bytes>> resident;
  for (const auto& [digest, model] : models_) {
    if (!model.loading) resident.emplace_back(digest, model.weights.size);
  }
  return resident;
}

}  // namespace troupe::gpu
