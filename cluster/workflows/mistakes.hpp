// MISTAKES: what is wrong with a workflow file, each mistake with its line. All of them are told in one answer: the
// twenty that stand first in the file, and how many more there are.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"

namespace troupe::cluster {

class Mistakes {
 public:
  static constexpr std::size_t kMost = 20;

  // `line` counts from 1; 0: the file as a whole. The same mistake in the same line counts once.
  void Add(std::uint32_t line, std::string message);
  [[nodiscard]] bool empty() const { return first_.empty(); }
  [[nodiscard]] std::size_t size() const { return first_.size() + more_; }
  // InvalidArgument: one line for each mistake, "line 7: ...", in the order of lines. OK: there is none.
  [[nodiscard]] absl::Status ToStatus(std::string_view workflow) const;

 private:
  std::set<std::pair<std::uint32_t, std::string>> first_;
  std::size_t more_ = 0;  // mistakes that stand behind those
};

}  // namespace troupe::cluster
