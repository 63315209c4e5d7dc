#include "gpu/worker/control_page.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "base/printable.hpp"
#include "base/status.hpp"

namespace troupe::gpu {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr std::size_t Index(Lane lane) {
  return static_cast<std::size_t>(lane);
}

bool Moved(const ControlSnapshot::LaneState& before, const ControlSnapshot::LaneState& now) {
  return !now.busy || !before.busy || before.progress != now.progress || before.order != now.order;
}

}  // namespace

const char* LaneName(Lane lane) {
  switch (lane) {
    case Lane::kCopyIn:
      return "copy in";
    case Lane::kCopyOut:
      return "copy out";
    case Lane::kCompute:
      return "compute";
    case Lane::kPrepare:
      return "prepare";
    case Lane::kCopyPeer:
      return "copy from another GPU";
  }
  return "?";
}

std::uint64_t ControlSnapshot::progress() const {
  // Copies that pass and runs that end beside a kernel that hangs are not progress. A run that waits for its
  // weights does make progress; whether they come is told by the lanes one by one (ProgressWatch).
  const LaneState& compute = lanes[Index(Lane::kCompute)];
  if (compute.busy) return (compute.order << 32) + compute.progress;
  std::uint64_t sum = orders + outcomes;
  bool engines_busy = false;
  for (std::size_t i = 0; i < kLanes; ++i) {
    sum += lanes[i].progress;
    engines_busy |= lanes[i].busy && i != Index(Lane::kPrepare);
  }
  return engines_busy ? sum : sum + heartbeat;
}

void ProgressWatch::Observe(const ControlSnapshot& snapshot, Time now) {
  if (!last_ || snapshot.heartbeat != last_->heartbeat) heartbeat_moved_ = now;
  for (std::size_t i = 0; i < kLanes; ++i) {
    if (!last_ || Moved(last_->lanes[i], snapshot.lanes[i])) moved_[i] = now;
  }
  last_ = snapshot;
}

std::optional<std::string> ProgressWatch::Hung(Time now) const {
  if (!last_) return std::nullopt;
  for (std::size_t i = 0; i < kLanes; ++i) {
    const Duration limit = i == Index(Lane::kPrepare) ? limits_.prepare : limits_.engines;
    if (last_->lanes[i].busy && now - moved_[i] > limit) {
      return absl::StrCat(LaneName(static_cast<Lane>(i)), " stands still at order ", last_->lanes[i].order,
                          " for ", FormatDuration(now - moved_[i]));
    }
  }
  if (now - heartbeat_moved_ > limits_.heartbeat) {
    return absl::StrCat("the main loop stands still for ", FormatDuration(now - heartbeat_moved_));
  }
  return std::nullopt;
}

absl::StatusOr<transport::MemoryFile> CreateControlPage(std::int64_t pid) {
  TROUPE_ASSIGN_OR_RETURN(transport::MemoryFile memory,
                          transport::MemoryFile::Create("troupe-control", Bytes(sizeof(ControlPage))));
  auto* page = new (memory.data()) ControlPage();
  page->pid.store(pid, kRelaxed);
  page->magic.store(ControlPage::kMagic, std::memory_order_release);
  return memory;
}

ControlPage& PageOf(const transport::MemoryFile& memory) {
  TROUPE_CHECK(memory.size().count() >= sizeof(ControlPage), "no control page");
  return *std::launder(reinterpret_cast<ControlPage*>(memory.data()));
}

void WriteLastWords(ControlPage& page, std::string_view words) {
  const std::size_t length = std::min(words.size(), ControlPage::kLastWords);
  page.last_words_length.store(0, std::memory_order_release);
  for (std::size_t i = 0; i < length; ++i) page.last_words[i] = words[i];
  page.last_words_length.store(static_cast<std::uint32_t>(length), std::memory_order_release);
}

absl::Status CheckControlPage(const transport::MemoryFile& memory) {
  if (memory.size().count() < sizeof(ControlPage)) {
    return absl::InvalidArgumentError(absl::StrCat("a control page has at least ", sizeof(ControlPage),
                                                   " bytes, this one ", memory.size().count()));
  }
  if (PageOf(memory).magic.load(std::memory_order_acquire) != ControlPage::kMagic) {
    return absl::InvalidArgumentError("the worker's control page has a wrong magic number");
  }
  return absl::OkStatus();
}

ControlSnapshot ReadControlPage(const transport::MemoryFile& memory) {
  const ControlPage& page = PageOf(memory);
  ControlSnapshot snapshot;
  snapshot.pid = page.pid.load(kRelaxed);
  snapshot.heartbeat = page.heartbeat.load(kRelaxed);
  snapshot.orders = page.orders.load(kRelaxed);
  snapshot.outcomes = page.outcomes.load(kRelaxed);
  snapshot.refused = page.refused.load(kRelaxed);
  for (std::size_t i = 0; i < kLanes; ++i) {
    snapshot.lanes[i].busy = page.lanes[i].busy.load(kRelaxed) != 0;
    snapshot.lanes[i].order = page.lanes[i].order.load(kRelaxed);
    snapshot.lanes[i].progress = page.lanes[i].progress.load(kRelaxed);
  }
  const std::size_t length = page.last_words_length.load(std::memory_order_acquire);
  snapshot.last_words.assign(page.last_words, std::min(length, ControlPage::kLastWords));
  snapshot.last_words =
      PrintableAscii(snapshot.last_words, ControlPage::kLastWords);  // it may have written anything
  return snapshot;
}

}  // namespace troupe::gpu
