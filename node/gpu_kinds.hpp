// GPU KINDS: the numbers that the kinds of this node's GPUs have inside it (scheduling/by_kind.hpp), in the
// order of the GPUs. A number never changes its meaning.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "node/scheduling/policies/gpu_policy.hpp"
#include "node/settings.hpp"
#include "scheduling/by_kind.hpp"

namespace troupe::node {

class GpuKinds {
 public:
  // With KindRule::kBlind GPUs of several kinds are all of one, which has no name.
  GpuKinds(const std::vector<GpuSetup>& gpus, KindRule rule);

  [[nodiscard]] KindId OfDevice(std::uint32_t device) const { return devices_.at(device); }
  // Nothing: no GPU here is of that kind, nor was what is remembered of it.
  [[nodiscard]] std::optional<KindId> Find(std::string_view name) const;
  // Of a kind that was seen here before, perhaps of GPUs that are gone. Without a name it is the kind of the
  // first GPU. Nothing: it is not a name, or there are kMost kinds already.
  [[nodiscard]] std::optional<KindId> Remember(std::string_view name);
  // How many have a number: those from 0.
  [[nodiscard]] KindId size() const { return static_cast<KindId>(names_.size()); }
  [[nodiscard]] const std::string& NameOf(KindId kind) const { return names_.at(kind); }

  static constexpr std::size_t kMost = 16;
  static constexpr std::size_t kLongestName = 100;

 private:
  KindRule rule_;
  std::vector<std::string> names_;
  std::vector<KindId> devices_;
};

}  // namespace troupe::node
