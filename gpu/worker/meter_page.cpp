#include "gpu/worker/meter_page.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

namespace troupe::gpu {
namespace {

constexpr auto kLoose = std::memory_order_relaxed;

absl::StatusOr<MeterPage*> MapPage(int file, int protection, const std::string& path) {
  void* memory = mmap(nullptr, sizeof(MeterPage), protection, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) return transport::ErrnoStatus(errno, absl::StrCat("map the meter page ", path));
  return static_cast<MeterPage*>(memory);
}

bool MayBeKey(std::string_view key) {
  return std::all_of(key.begin(), key.end(), [](char c) { return c > ' ' && c <= '~'; });
}

}  // namespace

absl::StatusOr<std::unique_ptr<MeterWriter>> MeterWriter::Create(const std::string& path) {
  // The daemon takes a page without a lock for that of a worker that has ended, so the page gets its name last.
  const std::string unnamed = path + ".new";
  transport::UniqueFd file(open(unnamed.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.valid()) return transport::ErrnoStatus(errno, absl::StrCat("make the meter page ", path));
  absl::Cleanup remove = [&unnamed] { (void)unlink(unnamed.c_str()); };
  if (flock(file.get(), LOCK_EX | LOCK_NB) != 0)
    return transport::ErrnoStatus(errno, absl::StrCat("lock the meter page ", path));
  if (const int error = posix_fallocate(file.get(), 0, sizeof(MeterPage)); error != 0)
    return transport::ErrnoStatus(error, absl::StrCat("make room for the meter page ", path));
  auto page = MapPage(file.get(), PROT_READ | PROT_WRITE, path);
  if (!page.ok()) return page.status();
  auto* made = *page;  // zeros are what an empty page has
  made->used.store(1, kLoose);
  made->magic.store(MeterPage::kMagic, std::memory_order_release);
  if (rename(unnamed.c_str(), path.c_str()) != 0)
    return transport::ErrnoStatus(errno, absl::StrCat("name the meter page ", path));
  std::move(remove).Cancel();
  return std::unique_ptr<MeterWriter>(new MeterWriter(std::move(file), made));
}

MeterWriter::MeterWriter(transport::UniqueFd file, MeterPage* page) : file_(std::move(file)), page_(page) {}

MeterWriter::~MeterWriter() {
  (void)munmap(page_, sizeof(MeterPage));
}

MeterSlot& MeterWriter::SlotOf(std::string_view key) {
  if (const auto found = slots_.find(key); found != slots_.end()) return *found->second;
  const auto used = page_->used.load(kLoose);
  if (used >= MeterPage::kSlots || key.size() > MeterSlot::kLongestKey || !MayBeKey(key))
    return page_->slots[0];
  MeterSlot& slot = page_->slots[used];
  std::memcpy(slot.key, key.data(), key.size());
  slot.length.store(key.size(), kLoose);
  page_->used.store(used + 1, std::memory_order_release);
  slots_.emplace(std::string(key), &slot);
  return slot;
}

void MeterWriter::Count(std::string_view key, Duration gpu, std::uint64_t runs, Bytes moved) {
  if (key.empty()) return;
  MeterSlot& slot = SlotOf(key);
  // There is one writer, so that no count is lost between a load and its store.
  const auto add = [](std::atomic<std::uint64_t>& count, std::uint64_t more) {
    count.store(count.load(kLoose) + more, std::memory_order_release);
  };
  add(slot.gpu_ns, static_cast<std::uint64_t>(std::max<Duration::rep>(0, gpu.count())));
  add(slot.runs, runs);
  add(slot.bytes_moved, moved.count());
}

absl::StatusOr<proto::MeterReading> ReadMeterPage(const std::string& path) {
  const transport::UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file.valid()) return transport::ErrnoStatus(errno, absl::StrCat("open the meter page ", path));
  proto::MeterReading reading;
  // The lock is asked for first: what an ended worker has counted is then all there.
  reading.set_closed(flock(file.get(), LOCK_SH | LOCK_NB) == 0);
  struct stat about {};
  if (fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode) ||
      static_cast<std::size_t>(about.st_size) < sizeof(MeterPage))
    return reading;
  auto mapped = MapPage(file.get(), PROT_READ, path);
  if (!mapped.ok()) return mapped.status();
  const MeterPage& page = **mapped;
  const absl::Cleanup unmap = [&mapped] { (void)munmap(*mapped, sizeof(MeterPage)); };
  if (page.magic.load(std::memory_order_acquire) != MeterPage::kMagic) return reading;
  const auto used = std::min<std::uint64_t>(page.used.load(std::memory_order_acquire), MeterPage::kSlots);
  for (std::uint64_t i = 0; i < used; ++i) {
    const MeterSlot& slot = page.slots[i];
    proto::MeterCount count;
    const auto length = std::min<std::uint64_t>(slot.length.load(kLoose), MeterSlot::kLongestKey);
    count.set_key(slot.key, length);
    count.set_gpu_ns(slot.gpu_ns.load(std::memory_order_acquire));
    count.set_runs(slot.runs.load(std::memory_order_acquire));
    count.set_bytes_moved(slot.bytes_moved.load(std::memory_order_acquire));
    const bool any = count.gpu_ns() + count.runs() + count.bytes_moved() > 0;
    if (any && MayBeKey(count.key())) *reading.add_counts() = std::move(count);
  }
  return reading;
}

}  // namespace troupe::gpu
