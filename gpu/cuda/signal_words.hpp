// SIGNAL WORDS: words of the host's memory by which streams of a GPU wait for each other without events: a stream
// may wait for a word before the copy that writes it is put on another stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gpu/cuda/context.hpp"
#include "gpu/device/signals.hpp"

namespace troupe::gpu::cuda {

class CudaSignals;

// Taken from the driver once, at the start: its calls for such memory wait for all that the GPU has to do.
// Thread-safe. What is left of its signals when it ends does nothing any more.
class SignalWords {
 public:
  // Of all launches that wait at a time; a group of weights takes one.
  static constexpr std::size_t kWords = 16384;

  // Tries on two streams whether a wait lets a write pass that is put there after it; and on the stream of a share of
  // the SMs, where there is one.
  SignalWords(Context& context, CUstream share);
  ~SignalWords();
  SignalWords(const SignalWords&) = delete;
  SignalWords& operator=(const SignalWords&) = delete;

  // Null: the GPU waits for no words, or so many are not free.
  std::shared_ptr<CudaSignals> Take(std::size_t count);
  // Empty: the GPU waits for words; else why it does not.
  [[nodiscard]] const std::string& why_not() const { return why_not_; }

 private:
  friend class CudaSignals;
  struct Pool {
    std::mutex mutex;
    std::uint32_t* words = nullptr;   // guarded by mutex, as all below; null: they are gone
    std::vector<std::uint32_t> free;  // by their index
  };
  absl::Status TryAll(const CudaSignals& signal, CUstream share);
  absl::Status Try(const CudaSignals& signal, CUstream waits, CUstream writes);

  Context& context_;
  const std::shared_ptr<Pool> pool_ = std::make_shared<Pool>();
  std::string why_not_;
};

// Held by what is on a stream and waits for them, or writes them, until that has ended.
class CudaSignals final : public Signals {
 public:
  CudaSignals(std::shared_ptr<SignalWords::Pool> pool, std::vector<std::uint32_t> indices)
      : pool_(std::move(pool)), indices_(std::move(indices)) {}
  ~CudaSignals() override;
  CudaSignals(const CudaSignals&) = delete;
  CudaSignals& operator=(const CudaSignals&) = delete;

  [[nodiscard]] std::size_t count() const override { return indices_.size(); }
  void Release() override;
  // As the host sees it.
  [[nodiscard]] bool Raised(std::size_t index) const;
  // What is put on `stream` from now on waits until it is raised.
  absl::Status WaitOn(const Context& context, CUstream stream, std::size_t index) const;
  // Raised when what was put on `stream` so far has ended.
  absl::Status RaiseOn(const Context& context, CUstream stream, std::size_t index) const;

 private:
  [[nodiscard]] std::uint32_t* At(std::size_t index) const;
  const std::shared_ptr<SignalWords::Pool> pool_;
  const std::vector<std::uint32_t> indices_;
};

}  // namespace troupe::gpu::cuda
