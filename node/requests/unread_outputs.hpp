// UNREAD OUTPUTS: outputs in the arenas of this node's workers that were answered and that their router has
// not read yet.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "node/request.hpp"
#include "proto/worker.pb.h"

namespace troupe::node {

struct UnreadSlices {
  GpuIndex gpu = kNoGpu;  // whose worker holds them
  proto::ReleaseOrder slices;
};

class UnreadOutputs {
 public:
  void Add(const RequestId& id, UnreadSlices slices) { unread_[id] = std::move(slices); }
  // What to release now that the router has read it; nothing when it is not known (any more).
  std::optional<UnreadSlices> Take(const RequestId& id) {
    const auto it = unread_.find(id);
    if (it == unread_.end()) return std::nullopt;
    auto slices = std::move(it->second);
    unread_.erase(it);
    return slices;
  }
  // The router is gone, and with it the reader of its answers.
  std::vector<UnreadSlices> TakeOfRouter(std::uint64_t router) {
    std::vector<UnreadSlices> taken;
    const auto begin = unread_.lower_bound({router, 0});
    auto end = begin;
    for (; end != unread_.end() && end->first.router == router; ++end)
      taken.push_back(std::move(end->second));
    unread_.erase(begin, end);
    return taken;
  }
  // The worker is gone, and its arena with it.
  void ForgetGpu(GpuIndex gpu) {
    std::erase_if(unread_, [gpu](const auto& entry) { return entry.second.gpu == gpu; });
  }

 private:
  std::map<RequestId, UnreadSlices> unread_;
};

}  // namespace troupe::node
