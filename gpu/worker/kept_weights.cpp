#include "gpu/worker/kept_weights.hpp"

#include "absl/strings/str_cat.h"

namespace troupe::gpu {
namespace {

// Of the sentences about what was dropped; beyond, they are only counted.
constexpr int kSentences = 8;

MemoryUser WeightsOf(const std::string& digest) {
  return {MemoryUser::Kind::kWeights, digest};
}

}  // namespace

KeptWeights::KeptWeights(DeviceMemory& memory, std::shared_ptr<WeightRecord> record)
    : memory_(memory), record_(std::move(record)) {
  if (record_ == nullptr) return;
  std::vector<std::string> dropped;
  const std::vector<RecordedWeights> recorded = record_->Read(dropped);
  for (const std::string& why : dropped) Dropped(why);
  for (const RecordedWeights& weights : recorded) TakeOver(weights);
  if (!memory_.Keeps()) record_.reset();
}

void KeptWeights::TakeOver(const RecordedWeights& recorded) {
  if (kept_.size() == kMost) {
    record_->Remove(recorded.digest);
    return Dropped(absl::StrCat("model ", recorded.digest, ": ", kMost, " models are kept at most"));
  }
  const auto range = memory_.AllocateAt(WeightsOf(recorded.digest), recorded.offset, recorded.size);
  if (range) {
    kept_.emplace(recorded.digest, *range);
    report_.set_models(report_.models() + 1);
    report_.set_bytes(report_.bytes() + recorded.size.count());
    return;
  }
  record_->Remove(recorded.digest);
  if (!memory_.Keeps()) {
    return Dropped(absl::StrCat("model ", recorded.digest, ": weights are not kept under the memory policy ",
                                memory_.policy(), " or with mapped addresses"));
  }
  Dropped(absl::StrCat("model ", recorded.digest, ": ", recorded.size.count(), " bytes at ", recorded.offset,
                       " overlap another model, or leave the device's memory"));
}

void KeptWeights::Dropped(const std::string& why) {
  report_.set_dropped(report_.dropped() + 1);
  if (report_.reasons_size() < kSentences) report_.add_reasons(why);
}

std::vector<std::pair<std::string, Bytes>> KeptWeights::All() const {
  std::vector<std::pair<std::string, Bytes>> all;
  for (const auto& [digest, range] : kept_) all.emplace_back(digest, range.size);
  return all;
}

std::optional<DeviceRange> KeptWeights::Take(const std::string& digest, Bytes size) {
  const auto found = kept_.find(digest);
  if (found == kept_.end()) return std::nullopt;
  if (found->second.size != size) {
    Drop(digest);
    return std::nullopt;
  }
  const DeviceRange range = found->second;
  kept_.erase(found);
  return range;
}

void KeptWeights::Drop(const std::string& digest) {
  const auto found = kept_.find(digest);
  if (found == kept_.end()) return;
  if (record_ != nullptr) record_->Remove(digest);
  memory_.Free(found->second);
  kept_.erase(found);
}

void KeptWeights::Note(const std::string& digest, const std::optional<DeviceRange>& whole) {
  if (record_ == nullptr) return;
  if (!whole) return record_->Remove(digest);
  record_->Set({digest, memory_.OffsetOf(whole->address), whole->size});
}

}  // namespace troupe::gpu
