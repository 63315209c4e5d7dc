// A body gathered into one string, for everything that is read as text.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

namespace troupe::gateway {

class TextBody {
 public:
  // Room for the next part of a body of which `remaining` bytes are still to come. Grows with what has
  // arrived, not with what the client says will: a claim alone takes 64 KiB.
  std::span<std::byte> Next(std::uint64_t remaining) {
    constexpr std::uint64_t kFirst = 64 * 1024;
    const std::size_t before = text_.size();
    text_.resize(before + std::min<std::uint64_t>(remaining, std::max<std::uint64_t>(kFirst, before)));
    return std::as_writable_bytes(std::span(text_)).subspan(before);
  }
  [[nodiscard]] const std::string& text() const { return text_; }
  // Gives the memory back too, which assigning an empty string does not.
  void Drop() { std::string().swap(text_); }
  [[nodiscard]] std::string Take() { return std::move(text_); }

 private:
  std::string text_;
};

}  // namespace troupe::gateway
