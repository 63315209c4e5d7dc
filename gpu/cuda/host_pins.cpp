#include "gpu/cuda/host_pins.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "base/units.hpp"
#include "transport/memory_file.hpp"

namespace troupe::gpu::cuda {
namespace {

// Whether all of it is mapped, and none of it for writing.
bool IsForReadingAlone(std::span<const std::byte> memory) {
  std::ifstream maps("/proc/self/maps");
  auto next = reinterpret_cast<std::uintptr_t>(memory.data());
  const std::uintptr_t behind = next + memory.size();
  for (std::string line; next < behind && std::getline(maps, line);) {
    std::uintptr_t from = 0;
    std::uintptr_t to = 0;
    char access[5] = {};
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &from, &to, access) != 3 || to <= next) continue;
    if (from > next || access[0] != 'r' || access[1] != '-') return false;
    next = to;
  }
  return next >= behind;
}

// The pages of a range that is mapped for reading alone may be written for as long as this object lives. It
// holds nothing where the system refuses that, as for a file that was opened for reading.
class WritableMeanwhile {
 public:
  explicit WritableMeanwhile(std::span<const std::byte> memory) {
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    if (!Open(memory, page)) (void)Open(memory, MiB(2).count());  // in a file of huge pages
  }
  ~WritableMeanwhile() {
    if (holds_) (void)mprotect(reinterpret_cast<void*>(begin_), length_, PROT_READ);
  }
  WritableMeanwhile(const WritableMeanwhile&) = delete;
  WritableMeanwhile& operator=(const WritableMeanwhile&) = delete;
  [[nodiscard]] bool holds() const { return holds_; }

 private:
  bool Open(std::span<const std::byte> memory, std::uintptr_t page) {
    const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
    begin_ = begin / page * page;
    length_ = (begin + memory.size() + page - 1) / page * page - begin_;
    holds_ = mprotect(reinterpret_cast<void*>(begin_), length_, PROT_READ | PROT_WRITE) == 0;
    return holds_;
  }
  std::uintptr_t begin_ = 0;
  std::size_t length_ = 0;
  bool holds_ = false;
};

}  // namespace

CUresult HostPins::Pin(std::span<const std::byte> memory, Way& way) const {
  void* const address = const_cast<std::byte*>(memory.data());
  const auto pin = [&](unsigned flags) {
    return context_.driver().cuMemHostRegister(address, memory.size(), CU_MEMHOSTREGISTER_PORTABLE | flags);
  };
  way = Way::kAsItIs;
  const CUresult result = pin(0);
  if (result == CUDA_SUCCESS || result == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED) return result;
  if (context_.Attribute(CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED) != 0 &&
      pin(CU_MEMHOSTREGISTER_READ_ONLY) == CUDA_SUCCESS) {
    way = Way::kReadOnly;
    return CUDA_SUCCESS;
  }
  way = Way::kOpened;
  const std::lock_guard lock(protecting_);
  if (!IsForReadingAlone(memory)) return result;
  const WritableMeanwhile writable(memory);
  return writable.holds() ? pin(0) : result;
}

// The driver takes a tenth of a second and more for a GiB, and copies go on meanwhile. They know where the
// range begins and ends before the driver does.
absl::Status HostPins::Register(std::span<const std::byte> memory) {
  context_.Enter();
  {
    const std::lock_guard lock(mutex_);
    const auto [known, fresh] = ranges_.try_emplace(memory.data(), Pinned{memory.size(), 0});
    if (!fresh) {
      if (known->second.size != memory.size() || known->second.times == 0) {
        return absl::AlreadyExistsError(
            absl::StrCat("host memory that begins at the same place is registered already, with ",
                         FormatBytes(Bytes(known->second.size))));
      }
      ++known->second.times;
      return absl::OkStatus();
    }
  }
  Way way{};
  const absl::Status pinned = context_.Check(
      Pin(memory, way), absl::StrCat("registering ", FormatBytes(Bytes(memory.size())), " of host memory"));
  const std::lock_guard lock(mutex_);
  if (pinned.ok()) {
    ranges_[memory.data()].times = 1;
  } else {
    ranges_.erase(memory.data());
  }
  return pinned;
}

void HostPins::Unregister(std::span<const std::byte> memory) {
  context_.Enter();
  {
    const std::lock_guard lock(mutex_);
    const auto found = ranges_.find(memory.data());
    if (found == ranges_.end() || found->second.size != memory.size() || found->second.times == 0) return;
    if (--found->second.times > 0) return;
  }
  (void)context_.driver().cuMemHostUnregister(const_cast<std::byte*>(memory.data()));
  const std::lock_guard lock(mutex_);
  ranges_.erase(memory.data());
}

HostPins::Way HostPins::WayOfRegions(Context& context, std::string& why) {
  context.Enter();
  const auto file = transport::MemoryFile::Create("troupe-probe", KiB(64));
  absl::Status status = file.status();
  if (file.ok()) {
    auto view = transport::MemoryFile::Open(transport::UniqueFd(fcntl(file->fd(), F_DUPFD_CLOEXEC, 0)),
                                            transport::MemoryFile::Access::kReadOnly);
    status = view.status();
    if (view.ok()) {
      Way way{};
      HostPins pins(context);
      const CUresult result = pins.Pin(view->bytes(), way);
      if (result == CUDA_SUCCESS) {
        (void)context.driver().cuMemHostUnregister(view->data());
        return way;
      }
      status = context.Check(result, "registering memory that is mapped for reading");
    }
  }
  why = std::string(status.message());
  return Way::kNone;
}

const char* Describe(HostPins::Way way) {
  switch (way) {
    case HostPins::Way::kAsItIs:
      return "as they are mapped";
    case HostPins::Way::kReadOnly:
      return "as memory that the GPU only reads";
    case HostPins::Way::kOpened:
      return "by opening their mapping for the time of the call";
    case HostPins::Way::kNone:
      return "not at all";
  }
  return "";
}

bool HostPins::Has(std::span<const std::byte> host) const {
  if (host.empty()) return true;
  const std::shared_lock lock(mutex_);
  auto at = ranges_.upper_bound(host.data());
  const std::byte* reached = host.data();
  if (at != ranges_.begin()) --at;
  for (; at != ranges_.end() && reached < host.data() + host.size(); ++at) {
    if (at->first + at->second.size <= reached) continue;
    if (at->first > reached || at->second.times == 0) return false;
    reached = at->first + at->second.size;
  }
  return reached >= host.data() + host.size();
}

absl::Status HostPins::ForEachPart(std::span<const std::byte> host, const Copy& copy) const {
  const std::shared_lock lock(mutex_);
  auto next = ranges_.upper_bound(host.data());
  if (next != ranges_.begin()) --next;
  for (std::size_t at = 0; at < host.size();) {
    const std::byte* const here = host.data() + at;
    while (next != ranges_.end() && next->first + next->second.size <= here) ++next;
    std::size_t length = host.size() - at;
    if (next != ranges_.end()) {
      const std::byte* const end = next->first <= here ? next->first + next->second.size : next->first;
      length = std::min(length, static_cast<std::size_t>(end - here));
    }
    TROUPE_RETURN_IF_ERROR(copy(at, length));
    at += length;
  }
  return absl::OkStatus();
}

}  // namespace troupe::gpu::cuda
