// SHA-256: the name of everything that is content-addressed (models, canonical weights, blobs).
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace troupe {

// Incremental SHA-256. One use: Update any number of times, then Finish once.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  void Update(std::span<const std::byte> data);
  void Update(std::string_view data);
  // 64 lower-case hexadecimal digits.
  [[nodiscard]] std::string Finish();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

// 64 lower-case hexadecimal digits.
[[nodiscard]] std::string Sha256Hex(std::string_view data);
// True for exactly 64 lower-case hexadecimal digits: what may become part of a path.
[[nodiscard]] bool IsSha256Hex(std::string_view text);

}  // namespace troupe
