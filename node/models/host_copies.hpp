// HOST COPIES: the bytes of this node's models, on disk and in the host region. node::CacheTable decides what
// moves; this part has it moved, and tells the scheduler which models are in the region.
#pragma once

#include "base/alarm.hpp"
#include "node/events.hpp"
#include "node/models/cache_table.hpp"

namespace troupe::node {

struct Parts;

class HostCopies {
 public:
  HostCopies(Parts& parts, CacheLimits limits) : parts_(parts), table_(limits) {}

  void On(const CopyFetched& event);
  void On(const CopyPlaced& event);
  void OnTimer();

  // ResourceExhausted when the region can never hold it.
  absl::Status Want(const ModelNumber& copy, const proto::FunctionRecord& function);
  void Unwant(const ModelNumber& copy) { table_.Unwant(copy); }
  void Adopted(const ModelNumber& copy) { table_.Adopted(copy); }
  // A request waits for a copy that is not in the region.
  void Need(const ModelNumber& copy) { table_.Need(copy); }
  void Read(const ModelNumber& copy);
  void Unread(const ModelNumber& copy);
  // Starts what the table decides.
  void Move();
  [[nodiscard]] bool Usable(const ModelNumber& copy) const { return table_.Usable(copy); }
  [[nodiscard]] const CacheTable& table() const { return table_; }

 private:
  void Fetch(const ModelNumber& copy);
  void Place(const ModelNumber& copy);
  void CameBack(const ModelNumber& copy, Bytes bytes, Duration took);
  void Failed(const ModelNumber& copy, const absl::Status& status);

  Parts& parts_;
  CacheTable table_;
  Alarm alarm_;
};

}  // namespace troupe::node
