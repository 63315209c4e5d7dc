#include "gpu/cuda/peer_exports.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/cuda/peers.hpp"

namespace troupe::gpu::cuda {

using transport::SocketLimits;
using transport::UniqueFd;
using transport::UnixConnection;

PeerExports::~PeerExports() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    if (changed_.valid()) (void)eventfd_write(changed_.get(), 1);
  }
  if (thread_.joinable()) thread_.join();
}

absl::StatusOr<SharedRange> PeerExports::Export(const DeviceRange& range) {
  context_.Enter();
  SharedRange shared;
  Waiting waiting;
  for (const Memory::Lying& run : memory_.Under(range)) {
    shared.parts.push_back({memory_.unit() * waiting.units.size() + run.offset, run.size});
    waiting.units.insert(waiting.units.end(), run.units.begin(), run.units.end());
  }
  TROUPE_ASSIGN_OR_RETURN(auto ends, UnixConnection::Pair());
  waiting.destination = std::move(ends.first);
  const ExportHeader header{memory_.unit().count(), waiting.units.size()};
  TROUPE_RETURN_IF_ERROR(
      waiting.destination.Send({reinterpret_cast<const char*>(&header), sizeof(header)}, {}, Duration(0)));
  TROUPE_RETURN_IF_ERROR(SendRound(waiting));
  shared.descriptor = UniqueFd(fcntl(ends.second.fd(), F_DUPFD_CLOEXEC, 0));
  if (!shared.descriptor.valid()) return transport::ErrnoStatus(errno, "giving device memory away");
  if (waiting.sent < waiting.units.size()) TROUPE_RETURN_IF_ERROR(Wait(std::move(waiting)));
  return shared;
}

// What was sent is closed here: a destination that has it open reads the rest when it has closed it.
absl::Status PeerExports::SendRound(Waiting& waiting) const {
  const std::size_t end = std::min(waiting.units.size(), waiting.sent + kUnitsInRound);
  while (waiting.sent < end) {
    std::vector<UniqueFd> descriptors;
    std::vector<int> numbers;
    while (waiting.sent < end && numbers.size() < SocketLimits::kDescriptors) {
      int number = -1;
      TROUPE_RETURN_IF_ERROR(context_.Check(
          context_.driver().cuMemExportToShareableHandle(&number, waiting.units[waiting.sent],
                                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
          "exporting memory"));
      descriptors.emplace_back(number);
      numbers.push_back(number);
      ++waiting.sent;
    }
    TROUPE_RETURN_IF_ERROR(waiting.destination.Send("units", numbers, Duration(0)));
  }
  return absl::OkStatus();
}

absl::Status PeerExports::Wait(Waiting waiting) {
  const std::lock_guard lock(mutex_);
  if (waiting_ >= kMost) {
    return absl::ResourceExhaustedError(
        absl::StrCat(waiting_, " other ranges are being shared: take it from the host"));
  }
  if (!changed_.valid()) {
    changed_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!changed_.valid()) return transport::ErrnoStatus(errno, "making the wake-up of shared memory");
    thread_ = std::thread([this] { Serve(); });
  }
  ++waiting_;
  new_.push_back(std::move(waiting));
  (void)eventfd_write(changed_.get(), 1);
  return absl::OkStatus();
}

void PeerExports::Serve() {
  context_.Enter();
  std::vector<Waiting> all;
  for (;;) {
    std::vector<pollfd> entries{{changed_.get(), POLLIN, 0}};
    for (const Waiting& waiting : all) entries.push_back({waiting.destination.fd(), POLLIN, 0});
    if (poll(entries.data(), entries.size(), -1) < 0 && errno != EINTR) return;
    std::vector<Waiting> stay;
    for (std::size_t i = 0; i < all.size(); ++i)
      if (entries[i + 1].revents == 0 || Answer(all[i])) stay.push_back(std::move(all[i]));
    const std::lock_guard lock(mutex_);
    waiting_ -= all.size() - stay.size();
    all = std::move(stay);
    eventfd_t rings = 0;
    (void)eventfd_read(changed_.get(), &rings);
    if (stopping_) return;
    std::ranges::move(new_, std::back_inserter(all));
    new_.clear();
  }
}

// Whether there is more to send later. What the destination says is not to be trusted: anything else than that
// it wants the next round ends the export.
bool PeerExports::Answer(Waiting& waiting) const {
  const absl::StatusOr<transport::SocketMessage> said = waiting.destination.Receive(Duration(0));
  if (!said.ok() || said->bytes != kNextRound || !said->descriptors.empty()) return false;
  return SendRound(waiting).ok() && waiting.sent < waiting.units.size();
}

}  // namespace troupe::gpu::cuda
