// UPLOAD SOURCE: a file on its way to the cluster, of any size, read in parts. Knows no actors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/digest.hpp"
#include "base/status.hpp"

namespace troupe::actors {

// Threads: one at a time.
class UploadSource {
 public:
  virtual ~UploadSource() = default;
  [[nodiscard]] virtual std::uint64_t size() const = 0;
  // These bytes, all of which lie before the end; an error says that they cannot be read.
  [[nodiscard]] virtual absl::StatusOr<std::string> Read(std::uint64_t offset, std::size_t length) const = 0;
};

// The SHA-256 of the whole, which is read for it.
[[nodiscard]] inline absl::StatusOr<std::string> DigestOf(const UploadSource& source) {
  constexpr std::uint64_t kPiece = 64u << 10;  // the same memory serves each of them
  Sha256 hash;
  for (std::uint64_t at = 0; at < source.size(); at += kPiece) {
    TROUPE_ASSIGN_OR_RETURN(const auto piece, source.Read(at, std::min(kPiece, source.size() - at)));
    hash.Update(piece);
  }
  return hash.Finish();
}

class StringSource final : public UploadSource {
 public:
  explicit StringSource(std::string bytes) : bytes_(std::move(bytes)) {}
  [[nodiscard]] std::uint64_t size() const override { return bytes_.size(); }
  [[nodiscard]] absl::StatusOr<std::string> Read(std::uint64_t offset, std::size_t length) const override {
    return bytes_.substr(offset, length);
  }

 private:
  const std::string bytes_;
};

}  // namespace troupe::actors
