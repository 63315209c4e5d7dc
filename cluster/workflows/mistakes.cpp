#include "cluster/workflows/mistakes.hpp"

#include <iterator>

#include "absl/strings/str_cat.h"

namespace troupe::cluster {

void Mistakes::Add(std::uint32_t line, std::string message) {
  if (!first_.emplace(line, std::move(message)).second || first_.size() <= kMost) return;
  first_.erase(std::prev(first_.end()));
  ++more_;
}

absl::Status Mistakes::ToStatus(std::string_view workflow) const {
  if (empty()) return absl::OkStatus();
  const std::string which =
      workflow.empty() ? "the workflow" : absl::StrCat("workflow '", std::string(workflow), "'");
  std::string text = absl::StrCat(which, " has ", size(), size() == 1 ? " error:" : " errors:");
  for (const auto& [line, message] : first_) {
    const std::string where = line == 0 ? "" : absl::StrCat("line ", line, ": ");
    absl::StrAppend(&text, "\n", where, message);
  }
  if (more_ > 0) absl::StrAppend(&text, "\nand ", more_, " more");
  return absl::InvalidArgumentError(text);
}

}  // namespace troupe::cluster
