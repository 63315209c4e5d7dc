// HELD MODELS: the models that this node adopted, is adopting, or has given up while a worker may still use
// them.
//
//   absent -(Hold)-> held -(GiveUp)-> leaving -(the last order that names it is answered)-> absent
//   leaving -(Hold)-> held
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/node_hash_map.h"
#include "base/check.hpp"
#include "node/events.hpp"
#include "node/names.hpp"
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

// Copies of models (node/runtimes/isolation.hpp); workers know them by their packed digests.
class HeldModels {
 public:
  // The model, new or as it is held. A model that was leaving is adopted anew.
  HeldModel& Hold(const ModelNumber& copy) {
    const auto [it, is_new] = entries_.try_emplace(copy);
    auto& entry = it->second;
    if (is_new) copies_[copy->digest].push_back(copy);
    if (std::exchange(entry.leaving, false)) {  // its old copy is still there
      entry.model.adopted = false;
      ++entry.model.life;
    }
    return entry.model;
  }
  // Null when it is not held (absent or leaving).
  [[nodiscard]] HeldModel* Find(const ModelNumber& copy) {
    const auto it = entries_.find(copy);
    return it == entries_.end() || it->second.leaving ? nullptr : &it->second.model;
  }
  [[nodiscard]] const HeldModel* Find(const ModelNumber& copy) const {
    const auto it = entries_.find(copy);
    return it == entries_.end() || it->second.leaving ? nullptr : &it->second.model;
  }
  // After this Find does not know it; its packed digest stays known while orders name it. Returns the
  // questions that waited for its adoption.
  [[nodiscard]] std::vector<Ask> GiveUp(const ModelNumber& copy) {
    auto& entry = entries_.at(copy);
    entry.leaving = true;
    return std::exchange(entry.model.waiting, {});
  }

  // Orders to workers that name this model: while one is not answered, its host copy may be read.
  void BeginUse(const ModelNumber& copy) { ++entries_.at(copy).orders; }
  void EndUse(const ModelNumber& copy) {
    auto& orders = entries_.at(copy).orders;
    TROUPE_CHECK(orders > 0, "more answers than orders");
    --orders;
  }
  // Does nothing unless the model was given up and nothing uses it any more.
  void Forget(const ModelNumber& copy) {
    const auto it = entries_.find(copy);
    if (it == entries_.end() || !it->second.leaving || it->second.orders > 0) return;
    const auto of = copies_.find(copy->digest);
    std::erase(of->second, copy);
    if (of->second.empty()) copies_.erase(of);
    entries_.erase(it);
  }

  // Held or leaving; empty before it is placed.
  [[nodiscard]] const std::string& PackedDigest(const ModelNumber& copy) const {
    return entries_.at(copy).model.copy.digest();
  }
  // The held copy for this isolation key that lies in the region as `packed`, the first by name; none when
  // there is none.
  [[nodiscard]] ModelNumber ByPackedDigest(const std::string& packed, const std::string& key) const {
    ModelNumber first;
    for (const auto& [copy, entry] : entries_) {
      if (entry.leaving || entry.model.copy.digest() != packed || copy->key != key) continue;
      if (!first || copy.text() < first.text()) first = copy;
    }
    return first;
  }
  // All held copies of a model, in the order of their names.
  [[nodiscard]] std::vector<ModelNumber> CopiesOf(const DigestNumber& digest) const {
    std::vector<ModelNumber> copies;
    const auto of = copies_.find(digest);
    if (of == copies_.end()) return copies;
    for (const auto& copy : of->second)
      if (!entries_.at(copy).leaving) copies.push_back(copy);
    std::ranges::sort(copies, {}, &ModelNumber::text);
    return copies;
  }
  // A model that was placed and that requests may come for; null when there is none.
  [[nodiscard]] const HeldModel* AdoptedCopyOf(const DigestNumber& digest) const {
    for (const auto& copy : CopiesOf(digest)) {
      const auto& model = entries_.at(copy).model;
      if (model.adopted && !model.copy.digest().empty()) return &model;
    }
    return nullptr;
  }
  // A function with this name that the model was adopted for; null when there is none.
  [[nodiscard]] const proto::FunctionRecord* FunctionOf(const DigestNumber& digest,
                                                        const std::string& name) const {
    for (const auto& copy : CopiesOf(digest)) {
      const auto& function = entries_.at(copy).model.function;
      if (function.key().name() == name) return &function;
    }
    return nullptr;
  }
  // Those that are held, in the order of their names.
  [[nodiscard]] std::vector<ModelNumber> InOrder() const {
    std::vector<ModelNumber> copies;
    ForEach([&](const ModelNumber& copy, const HeldModel&) { copies.push_back(copy); });
    std::ranges::sort(copies, {}, &ModelNumber::text);
    return copies;
  }
  // Calls `visit(copy, model)` for each that is held, in no order.
  template <class Visit>
  void ForEach(Visit visit) const {
    for (const auto& [copy, entry] : entries_)
      if (!entry.leaving) visit(copy, entry.model);
  }

 private:
  struct Entry {
    HeldModel model{};
    std::size_t orders = 0;
    bool leaving = false;
  };
  absl::node_hash_map<ModelNumber, Entry> entries_;
  absl::flat_hash_map<DigestNumber, std::vector<ModelNumber>> copies_;  // of entries_
};

}  // namespace troupe::node
