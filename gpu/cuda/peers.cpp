#include "gpu/cuda/peers.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "transport/unix_socket.hpp"

namespace troupe::gpu::cuda {
namespace {

using transport::UniqueFd;
using transport::UnixConnection;

constexpr auto kHandleType = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
constexpr std::uint64_t kMostUnitsOfAPeer = 1 << 16;
// For the other worker to send the next round. Its thread for this does nothing else.
constexpr Duration kPatience = std::chrono::seconds(5);

absl::StatusOr<ExportHeader> ReceiveHeader(UnixConnection& from, Bytes granularity) {
  TROUPE_ASSIGN_OR_RETURN(const transport::SocketMessage message, from.Receive(Duration(0)));
  ExportHeader header;
  if (message.bytes.size() != sizeof(header))
    return absl::InvalidArgumentError("this descriptor carries no device memory");
  std::memcpy(&header, message.bytes.data(), sizeof(header));
  if (!std::has_single_bit(header.unit) || header.unit % granularity.count() != 0 ||
      header.unit > GiB(4).count() || header.count == 0 || header.count > kMostUnitsOfAPeer) {
    return absl::InvalidArgumentError(
        absl::StrCat(header.count, " units of ", header.unit, " bytes are no device memory"));
  }
  return header;
}

// Releases what was imported, unless it is taken over.
struct Imported {
  const Context& context;
  std::vector<UnitHandle> handles;
  ~Imported() {
    for (const UnitHandle handle : handles) (void)context.driver().cuMemRelease(handle);
  }
};

// The descriptors of one round, which close before the next one is asked for.
absl::Status ImportRound(UnixConnection& from, std::size_t count, Duration patience, Imported& imported) {
  std::size_t got = 0;
  while (got < count) {
    TROUPE_ASSIGN_OR_RETURN(const transport::SocketMessage message, from.Receive(patience));
    if (message.descriptors.empty()) return absl::InvalidArgumentError("units of device memory are missing");
    got += message.descriptors.size();
    if (got > count) return absl::InvalidArgumentError("more units than were announced");
    for (const UniqueFd& descriptor : message.descriptors) {
      UnitHandle handle = 0;
      // The interface takes the descriptor in a pointer's clothes.
      void* const fd = reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor.get()));
      TROUPE_RETURN_IF_ERROR(imported.context.Check(
          imported.context.driver().cuMemImportFromShareableHandle(&handle, fd, kHandleType),
          "importing memory"));
      imported.handles.push_back(handle);
    }
  }
  return absl::OkStatus();
}

absl::Status ImportUnits(UnixConnection& from, std::size_t count, Imported& imported) {
  // The first round is there.
  TROUPE_RETURN_IF_ERROR(ImportRound(from, std::min(count, kUnitsInRound), Duration(0), imported));
  while (imported.handles.size() < count) {
    TROUPE_RETURN_IF_ERROR(from.Send(kNextRound, {}, kPatience));
    const std::size_t next = std::min(count - imported.handles.size(), kUnitsInRound);
    TROUPE_RETURN_IF_ERROR(ImportRound(from, next, kPatience, imported));
  }
  return absl::OkStatus();
}

absl::Status CheckWay(const Context& context, int from) {
  CUdevice peer = 0;
  int can = 0;
  const Driver& driver = context.driver();
  if (driver.cuDeviceGet(&peer, from) != CUDA_SUCCESS ||
      driver.cuDeviceCanAccessPeer(&can, context.device(), peer) != CUDA_SUCCESS || can == 0) {
    return absl::NotFoundError(absl::StrCat("this GPU cannot read the memory of GPU ", from));
  }
  return absl::OkStatus();
}

}  // namespace

CudaPeerMemory::CudaPeerMemory(const Context& context, std::vector<UnitHandle> handles, MappedUnits mapped,
                               std::vector<SharedRange::Part> parts)
    : context_(context), handles_(std::move(handles)), mapped_(std::move(mapped)), parts_(std::move(parts)) {
  for (const SharedRange::Part& part : parts_) size_ += part.size;
}

CudaPeerMemory::~CudaPeerMemory() {
  mapped_.reset();
  for (const UnitHandle handle : handles_) (void)context_.driver().cuMemRelease(handle);
}

std::vector<std::span<const std::byte>> CudaPeerMemory::At(Bytes offset, Bytes size) const {
  std::vector<std::span<const std::byte>> found;
  for (const SharedRange::Part& part : parts_) {
    if (size == Bytes(0)) break;
    if (offset >= part.size) {
      offset -= part.size;
      continue;
    }
    const Bytes length = std::min(size, part.size - offset);
    found.emplace_back(mapped_->address() + (part.offset + offset).count(), length.count());
    size -= length;
    offset = Bytes(0);
  }
  return found;
}

absl::StatusOr<std::shared_ptr<const PeerMemory>> ImportRange(const Context& context, int from,
                                                              SharedRange range) {
  if (!range.descriptor.valid())
    return absl::InvalidArgumentError("no descriptor of device memory was given");
  TROUPE_RETURN_IF_ERROR(CheckWay(context, from));
  TROUPE_ASSIGN_OR_RETURN(UnixConnection connection, UnixConnection::Adopt(std::move(range.descriptor)));
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = context.device();
  context.Enter();
  std::size_t granularity = 0;
  TROUPE_RETURN_IF_ERROR(context.Check(context.driver().cuMemGetAllocationGranularity(
                                           &granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                                       "asking for the unit of device memory"));
  TROUPE_ASSIGN_OR_RETURN(const ExportHeader header, ReceiveHeader(connection, Bytes(granularity)));
  const Bytes there = Bytes(header.unit) * header.count;
  for (const SharedRange::Part& part : range.parts) {
    if (part.offset <= there && part.size <= there - part.offset) continue;
    return absl::OutOfRangeError(absl::StrCat(part.size.count(), " bytes at ", part.offset.count(),
                                              " leave the ", FormatBytes(there), " that GPU ", from,
                                              " shares"));
  }
  Imported imported{context, {}};
  TROUPE_RETURN_IF_ERROR(ImportUnits(connection, header.count, imported));
  TROUPE_ASSIGN_OR_RETURN(MappedUnits mapped,
                          MappedUnits::Map(context, 0, Bytes(header.unit), imported.handles));
  return std::make_shared<const CudaPeerMemory>(context, std::exchange(imported.handles, {}),
                                                std::move(mapped), std::move(range.parts));
}

bool HasPeers(const Context& context) {
  int count = 0;
  if (context.driver().cuDeviceGetCount(&count) != CUDA_SUCCESS) return false;
  for (int other = 0; other < count; ++other) {
    CUdevice peer = 0;
    if (context.driver().cuDeviceGet(&peer, other) == CUDA_SUCCESS && peer != context.device() &&
        CheckWay(context, other).ok())
      return true;
  }
  return false;
}

}  // namespace troupe::gpu::cuda
