// The places where the front writes inputs and reads outputs, without knowing where they are.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "proto/tensor.pb.h"

namespace troupe::gateway {

// One input's place, implemented by the InferenceService. Destroying it gives the place back.
class InputPlace {
 public:
  virtual ~InputPlace() = default;
  // Always the same memory, until ToRef.
  virtual std::span<std::byte> bytes() = 0;
  // How the bytes travel. Called at most once, after the last write; the place must be kept for as long as a
  // reader may follow the reference.
  virtual proto::TensorRef ToRef() = 0;
};

// reserved (writable) -> submitted inside an InferCall -> the service takes the place, makes a reference, and
// drops the place when the call is over. Dropped before: released. Move-only; owned by one thread at a time.
class InputBuffer {
 public:
  InputBuffer() = default;  // no place, no bytes
  explicit InputBuffer(std::unique_ptr<InputPlace> place) : place_(std::move(place)) {}
  // Small bytes that travel in the message itself.
  [[nodiscard]] static InputBuffer Inline(std::string bytes);

  [[nodiscard]] std::span<std::byte> bytes() const {
    return place_ ? place_->bytes() : std::span<std::byte>();
  }
  [[nodiscard]] std::unique_ptr<InputPlace> TakePlace() { return std::move(place_); }

 private:
  std::unique_ptr<InputPlace> place_;
};

// Bytes of one output, readable until the last buffer that shares `keeper` is dropped.
class OutputBuffer {
 public:
  OutputBuffer() = default;
  OutputBuffer(std::span<const std::byte> bytes, std::shared_ptr<const void> keeper)
      : bytes_(bytes), keeper_(std::move(keeper)) {}
  [[nodiscard]] static OutputBuffer Inline(std::string bytes);

  OutputBuffer(OutputBuffer&& other) noexcept
      : bytes_(std::exchange(other.bytes_, {})), keeper_(std::move(other.keeper_)) {}
  OutputBuffer& operator=(OutputBuffer&& other) noexcept {
    bytes_ = std::exchange(other.bytes_, {});
    keeper_ = std::move(other.keeper_);
    return *this;
  }

  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
  std::shared_ptr<const void> keeper_;
};

}  // namespace troupe::gateway
