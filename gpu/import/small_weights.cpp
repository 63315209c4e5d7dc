#include "gpu/import/small_weights.hpp"

#include <sys/mman.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/units.hpp"

namespace troupe::gpu {
namespace {

// A plan computes no shapes from larger tensors (gpu/engine/program_builder).
constexpr std::size_t kSmall = std::size_t{1} << 20;

}  // namespace

SmallWeights::~SmallWeights() {
  if (mapped_ != nullptr) munmap(mapped_, size_);
}

absl::Status SmallWeights::Append(std::span<const std::byte> bytes) {
  if (!bytes.empty() && bytes.size() <= kSmall)
    kept_.emplace_back(size_, std::vector<std::byte>(bytes.begin(), bytes.end()));
  size_ += bytes.size();
  return absl::OkStatus();
}

absl::StatusOr<std::span<const std::byte>> SmallWeights::Read() {
  if (size_ == 0) return std::span<const std::byte>();
  void* const memory =
      mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    return absl::ResourceExhaustedError(
        absl::StrCat("the model's weights of ", FormatBytes(Bytes(size_)), " do not fit the memory limit"));
  mapped_ = static_cast<std::byte*>(memory);
  for (const auto& [offset, bytes] : kept_) std::ranges::copy(bytes, mapped_ + offset);
  kept_.clear();
  return std::span<const std::byte>(mapped_, size_);
}

}  // namespace troupe::gpu
