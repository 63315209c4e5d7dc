#include "gpu/cuda/memory.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "base/status.hpp"

namespace troupe::gpu::cuda {
namespace {

// Making and mapping a unit is a call each: not more than this many of them, however large the GPU; more where
// models are mapped, since a model takes whole units.
constexpr std::uint64_t kMostUnits = 8192;
constexpr std::uint64_t kMostUnitsMapped = 131072;

CUmemAllocationProp PropertiesOn(const Context& context) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = context.device();
  if (context.Attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) != 0)
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return properties;
}

CUdeviceptr PointerOf(const std::byte* address) {
  return reinterpret_cast<CUdeviceptr>(address);
}

}  // namespace

Bytes UnitFor(Bytes granularity, Bytes size, bool maps) {
  Bytes unit = granularity;
  while (size.count() / unit.count() > (maps ? kMostUnitsMapped : kMostUnits)) unit = unit * 2;
  return unit;
}

absl::StatusOr<MappedUnits> MappedUnits::Map(const Context& context, std::uint64_t address, Bytes unit,
                                             std::span<const UnitHandle> units) {
  const Driver& driver = context.driver();
  const Bytes size = unit * units.size();
  CUdeviceptr reserved = 0;
  TROUPE_RETURN_IF_ERROR(
      context.Check(driver.cuMemAddressReserve(&reserved, size.count(), unit.count(), address, 0),
                    absl::StrCat("reserving ", FormatBytes(size), " of addresses")));
  MappedUnits mapped(context, reserved, size);
  if (address != 0 && reserved != address) {
    return absl::AlreadyExistsError(
        absl::StrCat("the driver gave 0x", absl::Hex(reserved), " instead of 0x", absl::Hex(address)));
  }
  for (const UnitHandle handle : units) {
    TROUPE_RETURN_IF_ERROR(context.Check(
        driver.cuMemMap(reserved + mapped.mapped_.count(), unit.count(), 0, handle, 0), "mapping memory"));
    mapped.mapped_ += unit;
  }
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = context.device();
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  TROUPE_RETURN_IF_ERROR(context.Check(driver.cuMemSetAccess(reserved, size.count(), &access, 1),
                                       "giving the GPU access to mapped memory"));
  return mapped;
}

MappedUnits::MappedUnits(MappedUnits&& other) noexcept
    : context_(std::exchange(other.context_, nullptr)),
      address_(other.address_),
      size_(other.size_),
      mapped_(other.mapped_) {}

// What cannot be unmapped any more (the GPU is lost) goes with the process.
MappedUnits::~MappedUnits() {
  if (context_ == nullptr) return;
  context_->Enter();
  if (mapped_ > Bytes(0)) (void)context_->driver().cuMemUnmap(address_, mapped_.count());
  (void)context_->driver().cuMemAddressFree(address_, size_.count());
}

absl::StatusOr<std::unique_ptr<Memory>> Memory::Make(const Context& context, Bytes size, bool maps) {
  const CUmemAllocationProp properties = PropertiesOn(context);
  std::size_t granularity = 0;
  TROUPE_RETURN_IF_ERROR(context.Check(context.driver().cuMemGetAllocationGranularity(
                                           &granularity, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
                                       "asking for the unit of device memory"));
  auto memory = std::unique_ptr<Memory>(new Memory(context, UnitFor(Bytes(granularity), size, maps)));
  TROUPE_RETURN_IF_ERROR(memory->Fill(size));
  return memory;
}

absl::Status Memory::Fill(Bytes size) {
  const CUmemAllocationProp properties = PropertiesOn(context_);
  const std::uint64_t count = size.count() / unit_.count();
  units_.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    UnitHandle handle = 0;
    const absl::Status made =
        context_.Check(context_.driver().cuMemCreate(&handle, unit_.count(), &properties, 0),
                       absl::StrCat("taking ", FormatBytes(size), " of device memory (",
                                    FormatBytes(unit_ * i), " were to be had)"));
    if (!made.ok()) return made;
    units_.push_back(handle);
  }
  TROUPE_ASSIGN_OR_RETURN(MappedUnits home, MappedUnits::Map(context_, 0, unit_, units_));
  home_.emplace(std::move(home));
  return absl::OkStatus();
}

Memory::~Memory() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  mappings_.clear();
  home_.reset();
  for (const UnitHandle handle : units_) (void)context_.driver().cuMemRelease(handle);
}

std::size_t Memory::UnitAt(const std::byte* address) const {
  const std::ptrdiff_t offset = address - home_->address();
  TROUPE_CHECK(offset >= 0 && static_cast<std::uint64_t>(offset) < home_->size().count(),
               "memory that is not of this device");
  return static_cast<std::uint64_t>(offset) / unit_.count();
}

absl::StatusOr<DeviceRange> Memory::Map(std::uint64_t address, std::span<const DeviceRange> pieces) {
  std::vector<UnitHandle> units;
  Bytes size;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const std::size_t first = UnitAt(pieces[i].address);
    TROUPE_CHECK(PointerOf(pieces[i].address) % unit_.count() == 0 &&
                     (i + 1 == pieces.size() || pieces[i].size.count() % unit_.count() == 0),
                 "memory is mapped in whole units");
    const std::uint64_t count = AlignUp(pieces[i].size, unit_).count() / unit_.count();
    TROUPE_CHECK(count <= units_.size() - first, "memory that is not of this device");
    units.insert(units.end(), units_.begin() + static_cast<std::ptrdiff_t>(first),
                 units_.begin() + static_cast<std::ptrdiff_t>(first + count));
    size += pieces[i].size;
  }
  if (address % unit_.count() != 0 || units.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(size.count(), " bytes cannot be mapped at 0x",
                                                   absl::Hex(address), ": its unit is ", FormatBytes(unit_)));
  }
  context_.Enter();
  if (address != 0) TROUPE_RETURN_IF_ERROR(AwaitRoom(address, unit_ * units.size()));
  // Without the lock: giving access waits for all that the GPU has to do. Should another caller be faster, the driver
  // gives another address, and that is an error.
  TROUPE_ASSIGN_OR_RETURN(MappedUnits mapped, MappedUnits::Map(context_, address, unit_, units));
  std::byte* const begin = mapped.address();
  const std::lock_guard lock(mutex_);
  mappings_.emplace(begin, Mapping{std::move(mapped), {pieces.begin(), pieces.end()}, false});
  return DeviceRange{begin, size};
}

bool Memory::Meets(const DeviceRange& range, std::uint64_t address, Bytes size) {
  const std::uint64_t begin = PointerOf(range.address);
  return begin < address + size.count() && address < begin + range.size.count();
}

// Until what is leaving from there has left.
absl::Status Memory::AwaitRoom(std::uint64_t address, Bytes size) {
  std::unique_lock lock(mutex_);
  const auto leaving_there = [&](const auto& entry) {
    return entry.second.leaving && Meets({entry.first, entry.second.units->size()}, address, size);
  };
  awaited_ = {reinterpret_cast<std::byte*>(address), size};
  changed_.wait(
      lock, [&] { return !Meets(going_, address, size) && std::ranges::none_of(mappings_, leaving_there); });
  awaited_ = {};
  for (const auto& [begin, mapping] : mappings_) {
    if (Meets({begin, mapping.units->size()}, address, size))
      return absl::AlreadyExistsError(absl::StrCat("another model lies at 0x", absl::Hex(PointerOf(begin))));
  }
  return absl::OkStatus();
}

void Memory::Unmap(const DeviceRange& mapped) {
  const std::lock_guard lock(mutex_);
  const auto found = mappings_.find(mapped.address);
  TROUPE_CHECK(found != mappings_.end() && !found->second.leaving, "a range was unmapped that is not mapped");
  found->second.leaving = true;
  if (!thread_.joinable()) thread_ = std::thread([this] { Serve(); });
  changed_.notify_all();
}

// What a caller waits for first. Without the lock: the driver unmaps when the GPU has done what it has to do.
void Memory::Serve() {
  context_.Enter();
  const auto leaving = [this] {
    const auto end = mappings_.end();
    const auto awaited = std::ranges::find_if(mappings_, [this](const auto& entry) {
      return entry.second.leaving &&
             Meets({entry.first, entry.second.units->size()}, PointerOf(awaited_.address), awaited_.size);
    });
    return awaited != end
               ? awaited
               : std::ranges::find_if(mappings_, [](const auto& entry) { return entry.second.leaving; });
  };
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || leaving() != mappings_.end(); });
    if (stopping_) return;
    auto mapping = mappings_.extract(leaving());
    going_ = {mapping.key(), mapping.mapped().units->size()};
    lock.unlock();
    mapping.mapped().units.reset();
    lock.lock();
    going_ = {};
    changed_.notify_all();
  }
}

// The parts of the home that make up a range of a mapping; the range itself if it is not mapped.
std::vector<DeviceRange> Memory::AtHome(const DeviceRange& range) const {
  const std::lock_guard lock(mutex_);
  auto at = mappings_.upper_bound(range.address);
  if (at == mappings_.begin()) return {range};
  const auto& [begin, mapping] = *--at;
  if (range.address >= begin + mapping.units->size().count()) return {range};
  std::vector<DeviceRange> parts;
  Bytes skip(static_cast<std::uint64_t>(range.address - begin));
  Bytes left = range.size;
  for (const DeviceRange& piece : mapping.pieces) {
    if (skip >= piece.size) {
      skip -= piece.size;
      continue;
    }
    parts.push_back(piece.Part(skip, std::min(left, piece.size - skip)));
    left -= parts.back().size;
    skip = Bytes(0);
    if (left == Bytes(0)) break;
  }
  TROUPE_CHECK(left == Bytes(0), "a range leaves its mapping");
  return parts;
}

std::vector<Memory::Lying> Memory::Under(const DeviceRange& range) const {
  std::vector<Lying> all;
  for (const DeviceRange& part : AtHome(range)) {
    const std::size_t first = UnitAt(part.address);
    const std::size_t last = part.size == Bytes(0) ? first : UnitAt(part.address + part.size.count() - 1);
    const Bytes offset((PointerOf(part.address) - PointerOf(home_->address())) % unit_.count());
    all.push_back({std::span(units_).subspan(first, last - first + 1), offset, part.size});
  }
  return all;
}

}  // namespace troupe::gpu::cuda
