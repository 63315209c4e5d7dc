#include "gpu/cuda/trouble_words.hpp"

#include "base/status.hpp"

namespace troupe::gpu::cuda {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kLine = 64;

}  // namespace

TroubleWords::~TroubleWords() {
  context_.Enter();
  for (void* const page : pages_) (void)context_.driver().cuMemFreeHost(page);
}

absl::Status TroubleWords::Grow() {
  context_.Enter();
  void* page = nullptr;
  TROUPE_RETURN_IF_ERROR(context_.Check(
      context_.driver().cuMemHostAlloc(&page, kPage, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
      "taking memory for plans' words of trouble"));
  pages_.push_back(page);
  for (std::size_t at = 0; at < kPage; at += kLine)
    free_.push_back(reinterpret_cast<std::int32_t*>(static_cast<char*>(page) + at));
  return absl::OkStatus();
}

absl::Status TroubleWords::Provide(std::size_t count) {
  const std::lock_guard lock(mutex_);
  while (free_.size() < count) TROUPE_RETURN_IF_ERROR(Grow());
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<std::int32_t>> TroubleWords::Take() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) TROUPE_RETURN_IF_ERROR(Grow());
  std::int32_t* const word = free_.back();
  free_.pop_back();
  *word = 0;
  return std::shared_ptr<std::int32_t>(word, [this](std::int32_t* used) {
    const std::lock_guard giving(mutex_);
    free_.push_back(used);
  });
}

}  // namespace troupe::gpu::cuda
