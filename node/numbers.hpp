// NUMBERS: small numbers for things that have a text as their name, so that the rooms compare and look up
// numbers. A table (Numbers) gives each text one number. What holds the number (Number) keeps it: the number
// means this text until its last holder is gone, and then it is given to the next new text. So no number
// changes its meaning while some part has it, and a table by number is as long as there were texts at a time.
// `Named` is what is known of such a thing; its `text` is its name. One thread has a table and its numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/check.hpp"

namespace troupe::node {

template <class Named>
class Numbers;

// Holds the number of one thing; or, from its default constructor, of none.
template <class Named>
class Number {
 public:
  Number() = default;
  Number(const Number& other) : entry_(other.entry_) {
    if (entry_ != nullptr) ++entry_->holders;
  }
  Number(Number&& other) noexcept : entry_(std::exchange(other.entry_, nullptr)) {}
  Number& operator=(Number other) noexcept {
    std::swap(entry_, other.entry_);
    return *this;
  }
  ~Number() {
    if (entry_ != nullptr && --entry_->holders == 0) entry_->table->Forget(*entry_);
  }

  explicit operator bool() const { return entry_ != nullptr; }
  // Of some thing.
  [[nodiscard]] std::uint32_t value() const { return entry_->value; }
  const Named* operator->() const { return &entry_->named; }
  // Empty for none.
  [[nodiscard]] const std::string& text() const {
    static const std::string none;
    return entry_ == nullptr ? none : entry_->named.text;
  }

  friend bool operator==(const Number& a, const Number& b) { return a.entry_ == b.entry_; }
  template <class Hash>
  friend Hash AbslHashValue(Hash hash, const Number& number) {
    return Hash::combine(std::move(hash), number ? number.value() : ~std::uint32_t{0});
  }

 private:
  friend class Numbers<Named>;
  struct Entry {
    Named named{};
    Numbers<Named>* table = nullptr;
    std::uint32_t value = 0;
    std::uint32_t holders = 0;
  };
  explicit Number(Entry& entry) : entry_(&entry) { ++entry.holders; }

  Entry* entry_ = nullptr;
};

template <class Named>
class Numbers {
 public:
  Numbers() = default;
  Numbers(const Numbers&) = delete;
  Numbers& operator=(const Numbers&) = delete;
  ~Numbers() { TROUPE_CHECK(entries_.empty(), "a number is held longer than its table"); }

  // The text's number. `make()` tells what is known of a thing that has none yet; its text is `text`.
  template <class Make>
  Number<Named> Of(std::string_view text, Make make) {
    if (auto known = Find(text)) return known;
    auto entry = std::make_unique<typename Number<Named>::Entry>();
    entry->named = make();
    entry->table = this;
    if (free_.empty()) free_.push_back(end_++);
    entry->value = free_.back();
    free_.pop_back();
    auto& made = *entry;
    entries_.emplace(made.named.text, std::move(entry));
    return Number<Named>(made);
  }
  Number<Named> Of(std::string_view text) {
    return Of(text, [text] { return Named{std::string(text)}; });
  }
  // None for a text that has no number.
  [[nodiscard]] Number<Named> Find(std::string_view text) const {
    const auto it = entries_.find(text);
    return it == entries_.end() ? Number<Named>() : Number<Named>(*it->second);
  }
  // How many texts have a number.
  [[nodiscard]] std::size_t size() const { return entries_.size(); }
  // Above every number so far.
  [[nodiscard]] std::uint32_t end() const { return end_; }

 private:
  friend class Number<Named>;
  using Entry = typename Number<Named>::Entry;

  void Forget(const Entry& entry) {
    free_.push_back(entry.value);
    entries_.erase(entries_.find(entry.named.text));
  }

  absl::flat_hash_map<std::string_view, std::unique_ptr<Entry>> entries_;  // by the text in the entry
  std::vector<std::uint32_t> free_;
  std::uint32_t end_ = 0;
};

}  // namespace troupe::node
