#include "gpu/cuda/signal_words.hpp"

#include <atomic>
#include <numeric>
#include <thread>
#include <utility>

#include "base/check.hpp"
#include "base/status.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu::cuda {
namespace {

constexpr std::uint32_t kRaised = 1;
// A write that has not passed a wait after so long never does.
constexpr Duration kTrialPatience = std::chrono::seconds(1);

void Set(std::uint32_t& word, std::uint32_t value) {
  std::atomic_ref(word).store(value, std::memory_order_release);
}

CUdeviceptr AddressOf(const std::uint32_t* word) {
  return reinterpret_cast<CUdeviceptr>(word);
}

// Two streams, for the time of the trial.
class TrialStreams {
 public:
  explicit TrialStreams(Context& context) : context_(context) {}
  ~TrialStreams() {
    for (const CUstream stream : {waits_, writes_}) {
      if (stream != nullptr) (void)context_.driver().cuStreamDestroy(stream);
    }
  }
  TrialStreams(const TrialStreams&) = delete;
  TrialStreams& operator=(const TrialStreams&) = delete;
  absl::Status Make() {
    for (CUstream* const stream : {&waits_, &writes_}) {
      TROUPE_RETURN_IF_ERROR(context_.Check(context_.driver().cuStreamCreate(stream, CU_STREAM_NON_BLOCKING),
                                            "making a stream"));
    }
    return absl::OkStatus();
  }
  [[nodiscard]] CUstream waits() const { return waits_; }
  [[nodiscard]] CUstream writes() const { return writes_; }

 private:
  Context& context_;
  CUstream waits_ = nullptr;
  CUstream writes_ = nullptr;
};

}  // namespace

SignalWords::SignalWords(Context& context, CUstream share) : context_(context) {
  context_.Enter();
  void* words = nullptr;
  absl::Status status =
      context_.Check(context_.driver().cuMemHostAlloc(&words, kWords * sizeof(std::uint32_t),
                                                      CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
                     "taking memory for the words that launches wait for");
  if (status.ok()) {
    pool_->words = static_cast<std::uint32_t*>(words);
    std::vector<std::uint32_t> all(kWords);
    std::iota(all.begin(), all.end(), 0U);
    status = TryAll(CudaSignals(pool_, std::move(all)), share);  // gives them to the pool
  }
  if (!status.ok()) why_not_ = std::string(status.message());
}

SignalWords::~SignalWords() {
  std::uint32_t* words = nullptr;
  {
    const std::lock_guard lock(pool_->mutex);
    words = std::exchange(pool_->words, nullptr);
  }
  context_.Enter();
  if (words != nullptr) (void)context_.driver().cuMemFreeHost(words);
}

absl::Status SignalWords::TryAll(const CudaSignals& signal, CUstream share) {
  TrialStreams streams(context_);
  TROUPE_RETURN_IF_ERROR(streams.Make());
  TROUPE_RETURN_IF_ERROR(Try(signal, streams.waits(), streams.writes()));
  return share == nullptr ? absl::OkStatus() : Try(signal, share, streams.writes());
}

// As for a group of weights whose copy is ordered after the launch: the wait comes first. Whatever becomes of the
// write, the host's own ends the wait, so that the streams can end.
absl::Status SignalWords::Try(const CudaSignals& signal, CUstream waits, CUstream writes) {
  std::uint32_t& word = *pool_->words;  // the first of them
  Set(word, 0);
  TROUPE_RETURN_IF_ERROR(signal.WaitOn(context_, waits, 0));
  const auto behind = context_.Record(waits);
  absl::Status tried = behind.status();
  if (tried.ok()) tried = signal.RaiseOn(context_, writes, 0);
  const Time until = transport::SteadyNow() + kTrialPatience;
  while (tried.ok() && context_.driver().cuEventQuery(behind->get()) == CUDA_ERROR_NOT_READY) {
    if (transport::SteadyNow() > until)
      tried = absl::DeadlineExceededError("a stream that waits for a word holds up another one");
    std::this_thread::yield();
  }
  Set(word, kRaised);
  if (behind.ok()) TROUPE_RETURN_IF_ERROR(context_.Await(*behind));
  // The write may still be on its way.
  const auto written = context_.Record(writes);
  if (written.ok()) TROUPE_RETURN_IF_ERROR(context_.Await(*written));
  return tried;
}

std::shared_ptr<CudaSignals> SignalWords::Take(std::size_t count) {
  if (!why_not_.empty()) return nullptr;
  const std::lock_guard lock(pool_->mutex);
  if (pool_->free.size() < count) return nullptr;
  std::vector<std::uint32_t> indices(pool_->free.end() - static_cast<std::ptrdiff_t>(count),
                                     pool_->free.end());
  pool_->free.resize(pool_->free.size() - count);
  for (const std::uint32_t index : indices) Set(pool_->words[index], 0);
  return std::make_shared<CudaSignals>(pool_, std::move(indices));
}

CudaSignals::~CudaSignals() {
  const std::lock_guard lock(pool_->mutex);
  pool_->free.insert(pool_->free.end(), indices_.begin(), indices_.end());
}

void CudaSignals::Release() {
  const std::lock_guard lock(pool_->mutex);
  if (pool_->words == nullptr) return;
  for (const std::uint32_t index : indices_) Set(pool_->words[index], kRaised);
}

std::uint32_t* CudaSignals::At(std::size_t index) const {
  TROUPE_CHECK(index < indices_.size(), "a signal that there is not");
  const std::lock_guard lock(pool_->mutex);
  TROUPE_CHECK(pool_->words != nullptr, "a device's signals were used after its end");
  return pool_->words + indices_[index];
}

bool CudaSignals::Raised(std::size_t index) const {
  return std::atomic_ref(*At(index)).load(std::memory_order_acquire) == kRaised;
}

absl::Status CudaSignals::WaitOn(const Context& context, CUstream stream, std::size_t index) const {
  return context.Check(
      context.driver().cuStreamWaitValue32(stream, AddressOf(At(index)), kRaised, CU_STREAM_WAIT_VALUE_GEQ),
      "waiting for a word of memory");
}

absl::Status CudaSignals::RaiseOn(const Context& context, CUstream stream, std::size_t index) const {
  return context.Check(context.driver().cuStreamWriteValue32(stream, AddressOf(At(index)), kRaised,
                                                             CU_STREAM_WRITE_VALUE_DEFAULT),
                       "writing a word of memory");
}

}  // namespace troupe::gpu::cuda
