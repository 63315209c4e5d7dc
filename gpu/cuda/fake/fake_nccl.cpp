// NCCL's broadcast and its reduction of bytes as the manual defines them, over shared memory and in the order of
// a stream; for tests, as libnccl.so.2. Joining goes on behind its return, and a kernel whose partner is missing
// stays on its stream until the communicator is aborted. TROUPE_FAKE_NCCL_MOST is how many communicators a
// process can make: one more is refused.
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpu/cuda/fake/fake_driver.hpp"
#include "gpu/cuda/nccl.hpp"
#include "transport/local_broadcast.hpp"

namespace fake = troupe::gpu::cuda::fake;
using troupe::gpu::cuda::kNcclInProgress;
using troupe::gpu::cuda::kNcclMagic;
using troupe::gpu::cuda::kNcclMax;
using troupe::gpu::cuda::kNcclSuccess;
using troupe::gpu::cuda::kNcclUint8;
using troupe::gpu::cuda::NcclComm;
using troupe::gpu::cuda::NcclConfig;
using troupe::gpu::cuda::NcclUniqueId;

namespace {

constexpr int kUnhandled = 1;
constexpr int kInvalidArgument = 4;
constexpr int kRemoteError = 6;
// A test that waits for longer than this is stuck.
constexpr troupe::Duration kForEver = std::chrono::minutes(5);

// Each process hands out its windows at a socket of its own among the temporary files: a worker's jail lets
// no other process look at its descriptors.
troupe::transport::LocalBroadcaster& TheBroadcaster() {
  static troupe::transport::LocalBroadcaster broadcaster(
      nullptr, (std::filesystem::temp_directory_path() / ("fake-nccl-" + std::to_string(getpid()))).string());
  return broadcaster;
}

// Rank `root` and then the others, as the broadcaster below wants its members: the sender first.
troupe::transport::BroadcastSlot SlotFor(std::string id, std::uint32_t root, std::uint32_t rank,
                                         std::uint32_t ranks) {
  troupe::transport::BroadcastSlot slot{std::move(id), 0, {root}};
  for (std::uint32_t i = 0; i < ranks; ++i) {
    if (i == rank) slot.rank = rank == root ? 0 : static_cast<std::uint32_t>(slot.members.size());
    if (i != root) slot.members.push_back(i);
  }
  return slot;
}

// Abort ends it; kernels that are still on streams keep it alive.
class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  Communicator(std::uint32_t rank, std::uint32_t ranks) : rank_(rank), ends_(ranks) {}

  // On a thread that may outlive the communicator's place in the table: joining cannot be broken off.
  void Join(const std::string& id) {
    {
      const std::lock_guard lock(mutex_);
      state_ = kNcclInProgress;
    }
    std::thread([self = shared_from_this(), id] {
      const int result = self->JoinAll(id) ? kNcclSuccess + 0 : kRemoteError;
      const std::lock_guard lock(self->mutex_);
      self->state_ = result;
    }).detach();
  }
  int Broadcast(void* bytes, std::size_t size, int root, CUstream stream) {
    if (state() != kNcclSuccess || root < 0 || static_cast<std::size_t>(root) >= ends_.size())
      return kInvalidArgument;
    fake::QueueOf(stream).Push([self = shared_from_this(), bytes, size, root] {
      if (!self->Pass(static_cast<std::size_t>(root), {static_cast<std::byte*>(bytes), size})) self->Hang();
    });
    return kNcclSuccess;
  }
  // Gives each rank the largest of all ranks' bytes.
  int Reduce(const void* send, void* receive, CUstream stream) {
    if (state() != kNcclSuccess) return kInvalidArgument;
    fake::QueueOf(stream).Push([self = shared_from_this(), send, receive] {
      const std::byte mine = *static_cast<const std::byte*>(send);
      std::byte largest{};
      for (std::size_t root = 0; root < self->ends_.size(); ++root) {
        std::byte next = mine;
        if (!self->Pass(root, {&next, 1})) return self->Hang();
        largest = std::max(largest, next);
      }
      *static_cast<std::byte*>(receive) = largest;
    });
    return kNcclSuccess;
  }
  // Kernels and joins that wait for other ranks stop waiting.
  void Abort() {
    {
      const std::lock_guard lock(mutex_);
      aborted_ = true;
      for (const auto& end : ends_)
        if (end != nullptr) end->Abort();
    }
    changed_.notify_all();
  }
  [[nodiscard]] int state() {
    const std::lock_guard lock(mutex_);
    return state_;
  }

 private:
  bool JoinOne(std::uint32_t root, const std::string& id) {
    auto joined =
        TheBroadcaster().Join(SlotFor(id, root, rank_, static_cast<std::uint32_t>(ends_.size())), kForEver);
    const std::lock_guard lock(mutex_);
    if (!joined.ok()) return false;
    ends_[root] = *std::move(joined);
    if (aborted_) ends_[root]->Abort();
    return true;
  }
  // Over the first window rank 0 tells of one more for each other rank, over which that one sends.
  bool JoinAll(const std::string& id) {
    if (!JoinOne(0, id)) return false;
    for (std::uint32_t root = 1; root < ends_.size(); ++root) {
      std::string next(sizeof(NcclUniqueId), '\0');
      if (rank_ == 0) {
        const auto made = TheBroadcaster().NewId();
        if (!made.ok() || made->size() >= next.size()) return false;
        std::copy(made->begin(), made->end(), next.begin());
      }
      if (!Pass(0, std::as_writable_bytes(std::span(next))) || !JoinOne(root, next.c_str())) return false;
    }
    return true;
  }
  bool Pass(std::size_t root, std::span<std::byte> bytes) { return ends_[root]->Pass(bytes).ok(); }
  void Hang() {
    std::unique_lock lock(mutex_);
    state_ = kRemoteError;
    changed_.wait(lock, [this] { return aborted_; });
  }

  const std::uint32_t rank_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int state_ = kNcclSuccess;  // guarded by mutex_, as the next
  bool aborted_ = false;
  std::vector<std::unique_ptr<troupe::transport::BroadcastEnd>> ends_;  // by the rank that sends
};

std::mutex g_mutex;
std::map<NcclComm, std::shared_ptr<Communicator>> g_communicators;  // guarded by g_mutex, as the next
std::uint64_t g_made = 0;

std::shared_ptr<Communicator> Of(NcclComm comm) {
  const std::lock_guard lock(g_mutex);
  const auto found = g_communicators.find(comm);
  return found == g_communicators.end() ? nullptr : found->second;
}

}  // namespace

extern "C" {

// Communicators that this process made so far, and those that are not aborted.
std::uint64_t FakeNcclMade() {
  const std::lock_guard lock(g_mutex);
  return g_made;
}
std::uint64_t FakeNcclAlive() {
  const std::lock_guard lock(g_mutex);
  return g_communicators.size();
}

int ncclGetVersion(int* version) {
  const char* const told = std::getenv("TROUPE_FAKE_NCCL_VERSION");
  *version = told == nullptr ? 22700 : std::atoi(told);
  return kNcclSuccess;
}
const char* ncclGetErrorString(int result) {
  return result == kRemoteError ? "remote process exited or there was a network error" : "invalid argument";
}
int ncclGetUniqueId(NcclUniqueId* id) {
  const auto made = TheBroadcaster().NewId();
  if (!made.ok() || made->size() >= sizeof(id->internal)) return kUnhandled;
  *id = {};
  std::memcpy(id->internal, made->data(), made->size());
  return kNcclSuccess;
}
int ncclCommInitRankConfig(NcclComm* comm, int ranks, NcclUniqueId id, int rank, NcclConfig* config) {
  if (config->magic != kNcclMagic || config->blocking != 0 || rank < 0 || rank >= ranks)
    return kInvalidArgument;
  const char* const most = std::getenv("TROUPE_FAKE_NCCL_MOST");
  auto made =
      std::make_shared<Communicator>(static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(ranks));
  *comm = reinterpret_cast<NcclComm>(made.get());
  {
    const std::lock_guard lock(g_mutex);
    if (most != nullptr && g_made >= std::strtoull(most, nullptr, 10)) return kUnhandled;
    ++g_made;
    g_communicators[*comm] = made;
  }
  made->Join(id.internal);
  return kNcclInProgress;
}
int ncclCommGetAsyncError(NcclComm comm, int* error) {
  const auto found = Of(comm);
  if (found == nullptr) return kInvalidArgument;
  *error = found->state();
  return kNcclSuccess;
}
int ncclBroadcast(const void* send, void* receive, std::size_t count, int type, int root, NcclComm comm,
                  CUstream stream) {
  const auto found = Of(comm);
  if (found == nullptr || send != receive || type != kNcclUint8) return kInvalidArgument;
  return found->Broadcast(receive, count, root, stream);
}
int ncclAllReduce(const void* send, void* receive, std::size_t count, int type, int operation, NcclComm comm,
                  CUstream stream) {
  const auto found = Of(comm);
  if (found == nullptr || count != 1 || type != kNcclUint8 || operation != kNcclMax) return kInvalidArgument;
  return found->Reduce(send, receive, stream);
}
int ncclCommAbort(NcclComm comm) {
  const auto found = Of(comm);
  if (found == nullptr) return kInvalidArgument;
  {
    const std::lock_guard lock(g_mutex);
    g_communicators.erase(comm);
  }
  found->Abort();
  return kNcclSuccess;
}

}  // extern "C"
