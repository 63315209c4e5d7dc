#include "gpu/cuda/peers.hpp"

#include <fcntl.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "transport/unix_socket.hpp"

namespace troupe::gpu::cuda {
namespace {

using transport::SocketLimits;
using transport::UniqueFd;
using transport::UnixConnection;

constexpr auto kHandleType = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
// Comes before the descriptors.
struct Header {
  std::uint64_t unit = 0;
  std::uint64_t count = 0;
};
constexpr std::uint64_t kMostUnits = 1 << 16;

absl::Status ExportUnits(const Context& context, std::span<const UnitHandle> units,
                         std::vector<UniqueFd>& descriptors) {
  for (const UnitHandle unit : units) {
    int fd = -1;
    TROUPE_RETURN_IF_ERROR(context.Check(
        context.driver().cuMemExportToShareableHandle(&fd, unit, kHandleType, 0), "exporting memory"));
    descriptors.emplace_back(fd);
  }
  return absl::OkStatus();
}

absl::Status SendAll(UnixConnection& to, const Header& header, const std::vector<UniqueFd>& descriptors) {
  TROUPE_RETURN_IF_ERROR(to.Send({reinterpret_cast<const char*>(&header), sizeof(header)}, {}, Duration(0)));
  std::vector<int> some;
  for (std::size_t i = 0; i < descriptors.size(); ++i) {
    some.push_back(descriptors[i].get());
    if (some.size() < SocketLimits::kDescriptors && i + 1 < descriptors.size()) continue;
    TROUPE_RETURN_IF_ERROR(to.Send("units", some, Duration(0)));
    some.clear();
  }
  return absl::OkStatus();
}

absl::StatusOr<Header> ReceiveHeader(UnixConnection& from, Bytes granularity) {
  TROUPE_ASSIGN_OR_RETURN(const transport::SocketMessage message, from.Receive(Duration(0)));
  Header header;
  if (message.bytes.size() != sizeof(header))
    return absl::InvalidArgumentError("this descriptor carries no device memory");
  std::memcpy(&header, message.bytes.data(), sizeof(header));
  if (!std::has_single_bit(header.unit) || header.unit % granularity.count() != 0 ||
      header.unit > GiB(4).count() || header.count == 0 || header.count > kMostUnits) {
    return absl::InvalidArgumentError(
        absl::StrCat(header.count, " units of ", header.unit, " bytes are no device memory"));
  }
  return header;
}

absl::StatusOr<std::vector<UniqueFd>> ReceiveUnits(UnixConnection& from, std::uint64_t count) {
  std::vector<UniqueFd> descriptors;
  while (descriptors.size() < count) {
    TROUPE_ASSIGN_OR_RETURN(transport::SocketMessage message, from.Receive(Duration(0)));
    if (message.descriptors.empty()) return absl::InvalidArgumentError("units of device memory are missing");
    for (UniqueFd& descriptor : message.descriptors) descriptors.push_back(std::move(descriptor));
  }
  if (descriptors.size() != count) return absl::InvalidArgumentError("more units than were announced");
  return descriptors;
}

// Releases what was imported, unless it is taken over.
struct Imported {
  const Context& context;
  std::vector<UnitHandle> handles;
  ~Imported() {
    for (const UnitHandle handle : handles) (void)context.driver().cuMemRelease(handle);
  }
};

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

absl::StatusOr<SharedRange> ExportRange(const Context& context, const Memory& memory,
                                        const DeviceRange& range) {
  context.Enter();
  SharedRange shared;
  std::vector<UniqueFd> descriptors;
  for (const Memory::Lying& run : memory.Under(range)) {
    shared.parts.push_back({memory.unit() * descriptors.size() + run.offset, run.size});
    TROUPE_RETURN_IF_ERROR(ExportUnits(context, run.units, descriptors));
  }
  TROUPE_ASSIGN_OR_RETURN(auto ends, UnixConnection::Pair());
  TROUPE_RETURN_IF_ERROR(SendAll(ends.first, {memory.unit().count(), descriptors.size()}, descriptors));
  shared.descriptor = UniqueFd(fcntl(ends.second.fd(), F_DUPFD_CLOEXEC, 0));
  if (!shared.descriptor.valid()) return transport::ErrnoStatus(errno, "giving device memory away");
  return shared;
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
  TROUPE_ASSIGN_OR_RETURN(const Header header, ReceiveHeader(connection, Bytes(granularity)));
  const Bytes there = Bytes(header.unit) * header.count;
  for (const SharedRange::Part& part : range.parts) {
    if (part.offset <= there && part.size <= there - part.offset) continue;
    return absl::OutOfRangeError(absl::StrCat(part.size.count(), " bytes at ", part.offset.count(),
                                              " leave the ", FormatBytes(there), " that GPU ", from,
                                              " shares"));
  }
  TROUPE_ASSIGN_OR_RETURN(const std::vector<UniqueFd> descriptors, ReceiveUnits(connection, header.count));
  Imported imported{context, {}};
  for (const UniqueFd& descriptor : descriptors) {
    UnitHandle handle = 0;
    // The interface takes the descriptor in a pointer's clothes.
    void* const fd = reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor.get()));
    TROUPE_RETURN_IF_ERROR(context.Check(
        context.driver().cuMemImportFromShareableHandle(&handle, fd, kHandleType), "importing memory"));
    imported.handles.push_back(handle);
  }
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
