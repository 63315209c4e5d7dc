#include "gpu/sharing/gate_page.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "transport/memory_file.hpp"

namespace troupe::gpu {

namespace {

// A slot is one word, so that it is read and written whole: units below, then how many runs have none, then
// whether a run has the whole GPU.
struct GateSlots {
  std::array<std::atomic<std::uint64_t>, GatePage::kSlots> slots;
};

constexpr unsigned kRunsShift = SharesTaken::kMostUnits;
constexpr unsigned kWholeShift = 63;
constexpr std::uint64_t kUnits = (std::uint64_t{1} << kRunsShift) - 1;
constexpr std::uint64_t kRuns = (std::uint64_t{1} << (kWholeShift - kRunsShift)) - 1;

std::uint64_t WordOf(const SharesTaken& taken) {
  return (taken.units & kUnits) | (std::uint64_t{taken.without_share} & kRuns) << kRunsShift |
         std::uint64_t{taken.whole} << kWholeShift;
}

SharesTaken TakenOf(std::uint64_t word) {
  return {.units = word & kUnits,
          .without_share = static_cast<std::uint32_t>((word >> kRunsShift) & kRuns),
          .whole = (word >> kWholeShift) != 0};
}

struct flock LockOf(std::size_t slot) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(slot);
  lock.l_len = 1;
  return lock;
}

class GateFile final : public GatePage {
 public:
  GateFile(int file, GateSlots* page, std::size_t slot) : file_(file), page_(page), slot_(slot) {}
  ~GateFile() override;
  GateFile(const GateFile&) = delete;
  GateFile& operator=(const GateFile&) = delete;

  [[nodiscard]] SharesTaken Others() const override;
  [[nodiscard]] bool Set(const SharesTaken& mine, std::uint32_t concurrency) override;
  void Reduce(const SharesTaken& mine) override;
  bool ClearDead() override;

 private:
  const int file_;
  GateSlots* const page_;
  const std::size_t slot_;
};

GateFile::~GateFile() {
  page_->slots[slot_].store(0);
  (void)munmap(page_, sizeof(GateSlots));
  (void)close(file_);
}

SharesTaken GateFile::Others() const {
  SharesTaken others;
  for (std::size_t slot = 0; slot < kSlots; ++slot) {
    if (slot != slot_) others.Add(TakenOf(page_->slots[slot].load()));
  }
  return others;
}

// Each of two workers writes before it reads, in one order for all: so at least one sees what the other wrote.
bool GateFile::Set(const SharesTaken& mine, std::uint32_t concurrency) {
  const std::uint64_t before = page_->slots[slot_].exchange(WordOf(mine));
  const SharesTaken others = Others();
  const bool too_many = mine.without_share > 0 && mine.without_share + others.without_share > concurrency;
  if (!too_many && !others.Excludes(mine)) return true;
  page_->slots[slot_].store(before);
  return false;
}

void GateFile::Reduce(const SharesTaken& mine) {
  page_->slots[slot_].store(WordOf(mine));
}

bool GateFile::ClearDead() {
  bool cleared = false;
  for (std::size_t slot = 0; slot < kSlots; ++slot) {
    if (slot == slot_ || page_->slots[slot].load() == 0) continue;
    struct flock lock = LockOf(slot);
    if (fcntl(file_, F_OFD_SETLK, &lock) != 0) continue;  // its worker lives
    cleared |= page_->slots[slot].exchange(0) != 0;
    lock.l_type = F_UNLCK;
    (void)fcntl(file_, F_OFD_SETLK, &lock);
  }
  return cleared;
}

}  // namespace

absl::StatusOr<std::unique_ptr<GatePage>> GatePage::Open(const std::string& path, std::size_t slot) {
  if (slot >= kSlots) {
    return absl::InvalidArgumentError(
        absl::StrCat("the gate of a GPU has ", kSlots, " slots, and none of the number ", slot));
  }
  transport::UniqueFd file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file.valid()) return transport::ErrnoStatus(errno, absl::StrCat("open the gate ", path));
  if (const int error = posix_fallocate(file.get(), 0, sizeof(GateSlots)); error != 0)
    return transport::ErrnoStatus(error, absl::StrCat("make room for the gate ", path));
  struct flock lock = LockOf(slot);
  if (fcntl(file.get(), F_OFD_SETLK, &lock) != 0) {
    if (errno == EAGAIN || errno == EACCES) {
      return absl::AlreadyExistsError(
          absl::StrCat("slot ", slot, " of the gate ", path, " is that of a worker that lives"));
    }
    return transport::ErrnoStatus(errno, absl::StrCat("lock the gate ", path));
  }
  void* memory = mmap(nullptr, sizeof(GateSlots), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) return transport::ErrnoStatus(errno, absl::StrCat("map the gate ", path));
  auto* page = static_cast<GateSlots*>(memory);
  page->slots[slot].store(0);  // what the last worker of this slot had
  return std::make_unique<GateFile>(file.Release(), page, slot);
}

}  // namespace troupe::gpu
