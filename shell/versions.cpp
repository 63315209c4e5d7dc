#include "shell/versions.hpp"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "shell/cat.hpp"

namespace troupe::shell {

Versions Versions::Of(const proto::AdminReply& reply) {
  Versions versions;
  const auto add = [&](const std::string& version, bool loaded) {
    std::uint64_t number = 0;
    if (absl::SimpleAtoi(version, &number)) versions.loaded_[number] = loaded;
  };
  for (const auto& function : reply.functions())
    add(function.record().key().version(), function.record().loaded());
  for (const auto& workflow : reply.workflows()) add(workflow.spec().version(), true);
  return versions;
}

std::string Versions::Newest() const {
  return loaded_.empty() ? "" : Cat(loaded_.rbegin()->first);
}

std::string Versions::Answering() const {
  const auto found =
      std::find_if(loaded_.rbegin(), loaded_.rend(), [](const auto& version) { return version.second; });
  return found == loaded_.rend() ? "" : Cat(found->first);
}

Versions Versions::Without(const std::string& version) const {
  Versions after = *this;
  std::uint64_t number = 0;
  if (absl::SimpleAtoi(version, &number)) after.loaded_.erase(number);
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
