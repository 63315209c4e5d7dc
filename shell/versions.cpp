#include "shell/versions.hpp"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "shell/text/cat.hpp"

namespace troupe::shell {

Versions Versions::Of(const proto::AdminReply& reply) {
  Versions versions;
  const auto add = [&](const std::string& version, bool loaded) {
    std::uint64_t number = 0;
    if (absl::SimpleAtoi(version, &number)) versions.loaded_[number] = loaded;
  };
  for (const auto& function : reply.functions()) {
    const auto& record = function.record();
    add(record.key().version(), record.loaded());
    std::uint64_t number = 0;
    if (record.share_percent() > 0 && absl::SimpleAtoi(record.key().version(), &number))
      versions.shares_[number] = record.share_percent();
  }
  for (const auto& workflow : reply.workflows()) add(workflow.spec().version(), true);
  return versions;
}

std::string Versions::Newest() const {
  return loaded_.empty() ? "" : Cat(loaded_.rbegin()->first);
}

std::string Versions::Answering() const {
  std::uint64_t largest = 0;
  for (const auto& [number, share] : shares_)
    if (loaded_.at(number) && (largest == 0 || share > shares_.at(largest))) largest = number;
  if (largest != 0) return Cat(largest);
  if (!shares_.empty()) return "";
  const auto found =
      std::find_if(loaded_.rbegin(), loaded_.rend(), [](const auto& version) { return version.second; });
  return found == loaded_.rend() ? "" : Cat(found->first);
}

Versions Versions::Without(const std::string& version) const {
  Versions after = *this;
  std::uint64_t number = 0;
  if (absl::SimpleAtoi(version, &number)) after.loaded_.erase(number);
  after.shares_.erase(number);
  return after;
}

Versions Versions::WithLoaded(const std::string& version, bool loaded) const {
  Versions after = *this;
  std::uint64_t number = 0;
  if (absl::SimpleAtoi(version, &number)) after.loaded_[number] = loaded;
  return after;
}

std::string Versions::Since(const Versions& before) const {
  if (loaded_.empty()) return "; no version is left";
  const auto answering = Answering();
  if (answering.empty()) return "; no version is served";
  return Cat("; version ", answering,
             answering == before.Answering() ? " answers, as before" : " answers now");
}

}  // namespace troupe::shell
