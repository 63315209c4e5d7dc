// NCCL's broadcast as its manual defines it, over shared memory and in the order of its stream; for tests, as
// libnccl.so.2. Calls on a communicator go on behind their return, and a kernel whose partner is missing
// stays on its stream until the communicator is aborted.
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "gpu/cuda/fake/fake_driver.hpp"
#include "gpu/cuda/nccl.hpp"
#include "transport/local_broadcast.hpp"

namespace fake = troupe::gpu::cuda::fake;
using troupe::gpu::cuda::kNcclInProgress;
using troupe::gpu::cuda::kNcclMagic;
using troupe::gpu::cuda::kNcclSuccess;
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

// Ended by Abort or Destroy; kernels on streams keep it.
class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  void Join(const troupe::transport::BroadcastSlot& slot) {
    Go([this, slot] {
      auto joined = TheBroadcaster().Join(slot, kForEver);
      const std::lock_guard lock(mutex_);
      if (!joined.ok()) return kRemoteError;
      end_ = *std::move(joined);
      if (aborted_) end_->Abort();
      return kNcclSuccess + 0;
    });
  }
  void Finalize() {
    Go([this] { return end_->Finish().ok() ? kNcclSuccess + 0 : kRemoteError; });
  }
  int Broadcast(void* bytes, std::size_t size, CUstream stream) {
    if (state() != kNcclSuccess) return kInvalidArgument;
    fake::QueueOf(stream).Push([self = shared_from_this(), bytes, size] {
      if (!self->end_->Pass({static_cast<std::byte*>(bytes), size}).ok()) self->Hang();
    });
    return kNcclSuccess;
  }
  // What waits for others in here stops.
  void Abort() {
    {
      const std::lock_guard lock(mutex_);
      aborted_ = true;
      if (end_ != nullptr) end_->Abort();
    }
    changed_.notify_all();
  }
  [[nodiscard]] int state() {
    const std::lock_guard lock(mutex_);
    return state_;
  }

 private:
  // On a thread that may outlive the communicator's place in the table: joining cannot be broken off.
  void Go(std::function<int()> work) {
    {
      const std::lock_guard lock(mutex_);
      state_ = kNcclInProgress;
    }
    std::thread([self = shared_from_this(), work = std::move(work)] {
      const int result = work();
      const std::lock_guard lock(self->mutex_);
      self->state_ = result;
    }).detach();
  }
  void Hang() {
    std::unique_lock lock(mutex_);
    state_ = kRemoteError;
    changed_.wait(lock, [this] { return aborted_; });
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int state_ = kNcclSuccess;  // guarded by mutex_
  bool aborted_ = false;      // guarded by mutex_
  std::unique_ptr<troupe::transport::BroadcastEnd> end_;
};

std::mutex g_mutex;
std::map<NcclComm, std::shared_ptr<Communicator>> g_communicators;  // guarded by g_mutex

std::shared_ptr<Communicator> Of(NcclComm comm) {
  const std::lock_guard lock(g_mutex);
  const auto found = g_communicators.find(comm);
  return found == g_communicators.end() ? nullptr : found->second;
}

}  // namespace

extern "C" {

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
  if (config->magic != kNcclMagic || config->blocking != 0) return kInvalidArgument;
  troupe::transport::BroadcastSlot slot{id.internal, static_cast<std::uint32_t>(rank), {}};
  for (int i = 0; i < ranks; ++i) slot.members.push_back(static_cast<std::uint32_t>(i));
  auto made = std::make_shared<Communicator>();
  *comm = reinterpret_cast<NcclComm>(made.get());
  {
    const std::lock_guard lock(g_mutex);
    g_communicators[*comm] = made;
  }
  made->Join(slot);
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
  if (found == nullptr || send != receive || type != 1 || root != 0) return kInvalidArgument;
  return found->Broadcast(receive, count, stream);
}
int ncclCommFinalize(NcclComm comm) {
  const auto found = Of(comm);
  if (found == nullptr) return kInvalidArgument;
  found->Finalize();
  return kNcclInProgress;
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
int ncclCommDestroy(NcclComm comm) {
  const auto found = Of(comm);
  if (found == nullptr || found->state() != kNcclSuccess) return kInvalidArgument;
  const std::lock_guard lock(g_mutex);
  g_communicators.erase(comm);
  return kNcclSuccess;
}

}  // extern "C"
