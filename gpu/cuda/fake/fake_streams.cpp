// The fake driver's streams, events and copies.
#include <chrono>
#include <cstring>
#include <vector>

#include "gpu/cuda/fake/fake_driver.hpp"

namespace troupe::gpu::cuda::fake {

void Record::Reach() {
  const std::lock_guard lock(mutex);
  reached = true;
  at_ns = std::chrono::steady_clock::now().time_since_epoch().count();
  changed.notify_all();
}
void Record::Wait() {
  std::unique_lock lock(mutex);
  changed.wait(lock, [this] { return reached; });
}

namespace {

struct Queues {
  std::mutex mutex;
  std::uint64_t made = 0;
  // Each queue has a number, since a new queue may lie at the address of a destroyed one.
  std::map<Queue*, std::uint64_t> all;
};
Queues& TheQueues() {
  static Queues& queues = *new Queues;
  return queues;
}

}  // namespace

Queue::Queue(CUcontext context) : context_(context), thread_([this] { Serve(); }) {
  const std::lock_guard lock(TheQueues().mutex);
  TheQueues().all[this] = ++TheQueues().made;
}
Queue::~Queue() {
  {
    const std::lock_guard lock(TheQueues().mutex);
    TheQueues().all.erase(this);
  }
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}
void Queue::Drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return work_.empty() && !busy_; });
}
void Queue::Serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !work_.empty(); });
    if (work_.empty()) return;
    const std::function<void()> work = std::move(work_.front());
    work_.pop_front();
    busy_ = true;
    lock.unlock();
    work();
    lock.lock();
    busy_ = false;
    ++done_;
    changed_.notify_all();
  }
}

std::uint64_t Queue::pushed() {
  const std::lock_guard lock(mutex_);
  return pushed_;
}
std::uint64_t Queue::done() {
  const std::lock_guard lock(mutex_);
  return done_;
}

// Streams may be made and destroyed meanwhile.
CUresult Synchronise() {
  CountSynchronising();
  if (const CUresult free = NotWhileCapturing(); free != CUDA_SUCCESS) return free;
  struct Until {
    Queue* queue;
    std::uint64_t number, pushed;
  };
  std::vector<Until> until;
  {
    const std::lock_guard lock(TheQueues().mutex);
    for (const auto& [queue, number] : TheQueues().all) until.push_back({queue, number, queue->pushed()});
  }
  while (!until.empty()) {
    {
      const std::lock_guard lock(TheQueues().mutex);
      std::erase_if(until, [](const Until& one) {
        const auto found = TheQueues().all.find(one.queue);
        return found == TheQueues().all.end() || found->second != one.number ||
               one.queue->done() >= one.pushed;
      });
    }
    if (!until.empty()) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  return CUDA_SUCCESS;
}

namespace {

struct Event {
  bool timed = true;
  std::mutex mutex;
  std::shared_ptr<Record> record;  // null: never recorded
};

Event& EventOf(CUevent event) {
  return *reinterpret_cast<Event*>(event);
}
std::shared_ptr<Record> RecordOf(CUevent event) {
  const std::lock_guard lock(EventOf(event).mutex);
  return EventOf(event).record;
}
void* Address(CUdeviceptr pointer) {
  return reinterpret_cast<void*>(pointer);
}
CUresult Copy(CUstream stream, void* to, const void* from, std::size_t size) {
  CountCall();
  if (const CUresult alive = Alive(); alive != CUDA_SUCCESS) return alive;
  QueueOf(stream).Push([=] {
    std::memcpy(to, from, size);
    CountCopy();
  });
  return CUDA_SUCCESS;
}

// Events would join a captured stream to others, which the product never does.
CUresult NotCaptured(CUstream stream) {
  if (!QueueOf(stream).capturing()) return CUDA_SUCCESS;
  QueueOf(stream).SpoilCapture();
  return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
}

}  // namespace
}  // namespace troupe::gpu::cuda::fake

namespace fake = troupe::gpu::cuda::fake;

extern "C" {

CUresult CUDAAPI cuStreamCreate(CUstream* stream, unsigned int) {
  if (const CUresult alive = fake::Alive(); alive != CUDA_SUCCESS) return alive;
  if (fake::Current() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *stream = reinterpret_cast<CUstream>(new fake::Queue(fake::Current()));
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuStreamDestroy(CUstream stream) {
  {
    fake::State& state = fake::TheState();
    const std::lock_guard lock(state.mutex);
    state.green_streams.erase(stream);
  }
  delete &fake::QueueOf(stream);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int) {
  if (const CUresult alive = fake::Alive(); alive != CUDA_SUCCESS) return alive;
  fake::CountCall();
  if (const CUresult free = fake::NotCaptured(stream); free != CUDA_SUCCESS) return free;
  if (auto record = fake::RecordOf(event)) fake::QueueOf(stream).Push([record] { record->Wait(); });
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuEventCreate(CUevent* event, unsigned int flags) {
  if (const CUresult alive = fake::Alive(); alive != CUDA_SUCCESS) return alive;
  if (fake::Current() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  auto* const made = new fake::Event;
  made->timed = (flags & CU_EVENT_DISABLE_TIMING) == 0;
  *event = reinterpret_cast<CUevent>(made);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuEventDestroy(CUevent event) {
  delete &fake::EventOf(event);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuEventRecord(CUevent event, CUstream stream) {
  fake::CountCall();
  fake::CountEvent(fake::EventOf(event).timed);
  if (const CUresult free = fake::NotCaptured(stream); free != CUDA_SUCCESS) return free;
  auto record = std::make_shared<fake::Record>();
  {
    const std::lock_guard lock(fake::EventOf(event).mutex);
    fake::EventOf(event).record = record;
  }
  fake::QueueOf(stream).Push([record] { record->Reach(); });
  return fake::Alive();
}
CUresult CUDAAPI cuEventQuery(CUevent event) {
  fake::CountCall(event, true);
  if (const CUresult alive = fake::Alive(); alive != CUDA_SUCCESS) return alive;
  const auto record = fake::RecordOf(event);
  if (record == nullptr) return CUDA_SUCCESS;
  const std::lock_guard lock(record->mutex);
  return record->reached ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult CUDAAPI cuEventSynchronize(CUevent event) {
  fake::CountCall(event, true);
  if (const auto record = fake::RecordOf(event)) record->Wait();
  return fake::Alive();
}
CUresult CUDAAPI cuEventElapsedTime(float* milliseconds, CUevent begin, CUevent end) {
  fake::CountCall();
  if (!fake::EventOf(begin).timed || !fake::EventOf(end).timed) return CUDA_ERROR_INVALID_HANDLE;
  const auto first = fake::RecordOf(begin);
  const auto second = fake::RecordOf(end);
  if (first == nullptr || second == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *milliseconds = static_cast<float>(static_cast<double>(second->at_ns - first->at_ns) / 1e6);
  return CUDA_SUCCESS;
}
// From memory that is not registered the driver takes what it copies before it returns, to such memory it
// returns when the bytes are there.
CUresult CUDAAPI cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, std::size_t size, CUstream stream) {
  const fake::HostMemory host = fake::HostMemoryAt(from, size);
  if (host.kind == fake::HostMemory::Kind::kAcross) return CUDA_ERROR_INVALID_VALUE;
  if (host.pages != nullptr) {
    if (const CUresult alive = fake::Alive(); alive != CUDA_SUCCESS) return alive;
    fake::QueueOf(stream).Push([to, from, size, pages = host.pages] {
      pages->Read(reinterpret_cast<std::uintptr_t>(from), size, static_cast<char*>(fake::Address(to)));
      fake::CountCopy();
    });
    return CUDA_SUCCESS;
  }
  if (host.kind == fake::HostMemory::Kind::kRegistered)
    return fake::Copy(stream, fake::Address(to), from, size);
  if (const CUresult free = fake::NotWhileCapturing(); free != CUDA_SUCCESS) return free;
  if (const CUresult alive = fake::Alive(); alive != CUDA_SUCCESS) return alive;
  fake::CountStaged();
  const auto* const bytes = static_cast<const char*>(from);
  fake::QueueOf(stream).Push([to, staged = std::vector<char>(bytes, bytes + size)] {
    std::memcpy(fake::Address(to), staged.data(), staged.size());
    fake::CountCopy();
  });
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemcpyDtoHAsync(void* to, CUdeviceptr from, std::size_t size, CUstream stream) {
  const fake::HostMemory host = fake::HostMemoryAt(to, size);
  if (host.kind == fake::HostMemory::Kind::kAcross) return CUDA_ERROR_INVALID_VALUE;
  if (host.read_only) return CUDA_ERROR_ILLEGAL_ADDRESS;
  const bool registered = host.kind == fake::HostMemory::Kind::kRegistered;
  if (!registered) {
    if (const CUresult free = fake::NotWhileCapturing(); free != CUDA_SUCCESS) return free;
  }
  const CUresult result = fake::Copy(stream, to, fake::Address(from), size);
  if (!registered) fake::QueueOf(stream).Drain();
  return result;
}
CUresult CUDAAPI cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, std::size_t size, CUstream stream) {
  return fake::Copy(stream, fake::Address(to), fake::Address(from), size);
}

}  // extern "C"
