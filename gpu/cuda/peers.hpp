// Memory of one GPU as the worker of another one reads it: units imported from the descriptors that the other
// worker exports (peer_exports).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "gpu/cuda/memory.hpp"
#include "gpu/device/device.hpp"

namespace troupe::gpu::cuda {

// Another GPU's units, mapped here, and the parts of them that are the range. What was imported stays
// readable when its owner is gone.
class CudaPeerMemory final : public PeerMemory {
 public:
  CudaPeerMemory(const Context& context, std::vector<UnitHandle> handles, MappedUnits mapped,
                 std::vector<SharedRange::Part> parts);
  ~CudaPeerMemory() override;
  [[nodiscard]] Bytes size() const override { return size_; }
  // Where these bytes lie, one after the other.
  [[nodiscard]] std::vector<std::span<const std::byte>> At(Bytes offset, Bytes size) const;

 private:
  const Context& context_;
  const std::vector<UnitHandle> handles_;
  std::optional<MappedUnits> mapped_;
  const std::vector<SharedRange::Part> parts_;
  Bytes size_;
};

// The first bytes that a destination reads from the socket of an export. At most kUnitsInRound descriptors follow. For each
// further round the destination sends kNextRound, when it has closed the descriptors of the round before.
struct ExportHeader {
  std::uint64_t unit = 0;   // bytes of each unit
  std::uint64_t count = 0;  // units
};
inline constexpr std::size_t kUnitsInRound = 64;
inline constexpr std::string_view kNextRound = "next";

// NotFound without a way from GPU `from` to this one, OutOfRange for what leaves the units, InvalidArgument
// for a descriptor that carries none, Unavailable when the other worker stops in the middle.
absl::StatusOr<std::shared_ptr<const PeerMemory>> ImportRange(const Context& context, int from,
                                                              SharedRange range);
// Whether any other GPU of this host can be read from here.
[[nodiscard]] bool HasPeers(const Context& context);

}  // namespace troupe::gpu::cuda
