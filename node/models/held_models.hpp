// HELD MODELS: the models that this node adopted, is adopting, or has given up while a worker may still use
// them.
//
//   absent -(Hold)-> held -(GiveUp)-> leaving -(the last order that names it is answered)-> absent
//   leaving -(Hold)-> held
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "node/events.hpp"
#include "node/runtimes/isolation.hpp"
#include "proto/cluster.pb.h"
#include "proto/function.pb.h"
#include "proto/worker.pb.h"

namespace troupe::node {

struct HeldModel {
  proto::FunctionRecord function{};
  proto::HostCopy copy{};  // the latest; empty until it is placed. Whether it is there: CacheTable
  bool adopted = false;    // requests may come
  std::uint64_t life = 0;  // counts up when it is held again before it had left: older answers are not for it
  std::map<std::uint32_t, std::uint64_t> prepared{};  // GPU -> the incarnation of its worker
  // Callers that asked for its adoption, until it is adopted.
  std::vector<Ask> waiting{};

  [[nodiscard]] bool PreparedBy(std::uint32_t gpu, std::uint64_t incarnation) const {
    const auto it = prepared.find(gpu);
    return it != prepared.end() && it->second == incarnation;
  }
};

// Copies of models by name (node/runtimes/isolation.hpp); workers know them by their packed digests.
class HeldModels {
 public:
  // The model, new or as it is held. A model that was leaving is adopted anew.
  HeldModel& Hold(const std::string& digest) {
    auto& entry = entries_[digest];
    if (std::exchange(entry.leaving, false)) {  // its old copy is still there
      entry.model.adopted = false;
      ++entry.model.life;
    }
    return entry.model;
  }
  // Null when it is not held (absent or leaving).
  [[nodiscard]] HeldModel* Find(const std::string& digest) {
    const auto it = entries_.find(digest);
    return it == entries_.end() || it->second.leaving ? nullptr : &it->second.model;
  }
  [[nodiscard]] const HeldModel* Find(const std::string& digest) const {
    const auto it = entries_.find(digest);
    return it == entries_.end() || it->second.leaving ? nullptr : &it->second.model;
  }
  // After this Find does not know it; its packed digest stays known while orders name it. Returns the
  // questions that waited for its adoption.
  [[nodiscard]] std::vector<Ask> GiveUp(const std::string& digest) {
    auto& entry = entries_.at(digest);
    entry.leaving = true;
    return std::exchange(entry.model.waiting, {});
  }

  // Orders to workers that name this model: while one is not answered, its host copy may be read.
  void BeginUse(const std::string& digest) { ++entries_.at(digest).orders; }
  void EndUse(const std::string& digest) {
    auto& orders = entries_.at(digest).orders;
    TROUPE_CHECK(orders > 0, "more answers than orders");
    --orders;
  }
  // Does nothing unless the model was given up and nothing uses it any more.
  void Forget(const std::string& digest) {
    const auto it = entries_.find(digest);
    if (it != entries_.end() && it->second.leaving && it->second.orders == 0) entries_.erase(it);
  }

  // Held or leaving; empty before it is placed.
  [[nodiscard]] const std::string& PackedDigest(const std::string& digest) const {
    return entries_.at(digest).model.copy.digest();
  }
  // The held copy for this isolation key that lies in the region as `packed`; empty when there is none.
  [[nodiscard]] std::string ByPackedDigest(const std::string& packed, const std::string& key) const {
    for (const auto& [name, entry] : entries_)
      if (!entry.leaving && entry.model.copy.digest() == packed && KeyOf(name) == key) return name;
    return {};
  }
  // All held copies of a model.
  [[nodiscard]] std::vector<std::string> CopiesOf(const std::string& digest) const {
    std::vector<std::string> copies;
    for (auto it = entries_.lower_bound(digest); it != entries_.end() && DigestOf(it->first) == digest; ++it)
      if (!it->second.leaving) copies.push_back(it->first);
    return copies;
  }
  // A model that was placed and that requests may come for; null when there is none.
  [[nodiscard]] const HeldModel* AdoptedCopyOf(const std::string& digest) const {
    for (const auto& name : CopiesOf(digest)) {
      const auto& model = entries_.at(name).model;
      if (model.adopted && !model.copy.digest().empty()) return &model;
    }
    return nullptr;
  }
  // A function with this name that the model was adopted for; null when there is none.
  [[nodiscard]] const proto::FunctionRecord* FunctionOf(const std::string& digest,
                                                        const std::string& name) const {
    for (const auto& copy : CopiesOf(digest)) {
      const auto& function = entries_.at(copy).model.function;
      if (function.key().name() == name) return &function;
    }
    return nullptr;
  }
  // Calls `visit(digest, model)` for each that is held.
  template <class Visit>
  void ForEach(Visit visit) const {
    for (const auto& [digest, entry] : entries_)
      if (!entry.leaving) visit(digest, entry.model);
  }

 private:
  struct Entry {
    HeldModel model{};
    std::size_t orders = 0;
    bool leaving = false;
  };
  std::map<std::string, Entry> entries_;
};

}  // namespace troupe::node
