// TENSOR COPIES: kept tensors that are also on another GPU of this node, to which a link leads from the first one (004
// StreamBox, section 6.1). All readers on that GPU share one copy.
//
//   asked for -> pinned where it is -> copied, and unpinned -> read by runs -> its tensor is released or lost: dropped
//   each of the first two -(fails)-> its readers have it exported
//
// A copy has a number of its own, under which its worker keeps it as it keeps what runs have left there.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "node/events.hpp"
#include "node/runtimes/order_purposes.hpp"
#include "proto/worker.pb.h"

namespace troupe::node {

struct Parts;

class TensorCopies {
 public:
  explicit TensorCopies(Parts& parts) : parts_(parts) {}

  void On(const TensorPinned& purpose, const proto::WorkerOutcome& outcome);
  void On(const TensorPulled& purpose, const proto::WorkerOutcome& outcome);
  // After the kept tensors have heard of it.
  void On(const RuntimeLost& event);

  // How fast the link is over which tensors of `from` come to `to`; nothing: they come through the host.
  [[nodiscard]] std::optional<BytesPerSecond> Link(std::uint32_t from, std::uint32_t to) const;
  // The copy of this part that is on the GPU already.
  [[nodiscard]] std::optional<proto::KeptTensor> Find(const proto::KeptTensor& part, GpuIndex gpu) const;
  // Brings the part, which `from` keeps, to `to` for this input of a request, which is told by Requests::InputExported.
  void Bring(const proto::KeptTensor& part, GpuIndex from, GpuIndex to, const TensorExported& reader);
  // The tensor is not kept any more: its copies go.
  void Forget(std::uint64_t tensor);
  [[nodiscard]] std::size_t size() const { return copies_.size(); }

 private:
  struct Copy {
    proto::KeptTensor part{};
    GpuIndex from = kNoGpu;
    std::uint64_t number = 0;               // at its worker; 0: it is not there yet
    std::vector<TensorExported> readers{};  // that wait for it
  };
  using Copies = std::map<TensorCopyKey, Copy>;
  void Unpin(GpuIndex gpu, std::uint64_t pin);
  void Drop(Copies::const_iterator it);
  // They read the arena of the tensor's own worker instead.
  void ExportInstead(const TensorCopyKey& key);
  [[nodiscard]] proto::KeptTensor PlaceOf(const Copy& copy) const;

  Parts& parts_;
  Copies copies_;
};

}  // namespace troupe::node
