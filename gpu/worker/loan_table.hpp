// LOAN TABLE: models of this device that other GPUs of the node copy from.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "gpu/device/device.hpp"
#include "gpu/worker/limits.hpp"
#include "gpu/worker/model_table.hpp"
#include "gpu/worker/reply.hpp"
#include "gpu/worker/residency.hpp"
#include "transport/local_channel.hpp"

namespace troupe::gpu {

// A lent model is held as a run holds it: it is neither evicted nor moved until the loan ends, by a Return,
// with the daemon's session, or with this process. The copier asks for the memory by the loan's identity,
// which no other loan has or had, and asks again when it has copied: what it is told then holds for the whole
// copy, since a loan that has ended is not known any more before its memory may be used otherwise. The main
// loop's thread.
class LoanTable {
 public:
  LoanTable(Device& device, Residency& residency, const WorkerLimits& limits)
      : device_(device), residency_(residency), limits_(limits) {}
  ~LoanTable() { ReturnAll(); }

  // NotFound when the model is not there, FailedPrecondition while it is on its way, or lies in more ranges
  // than a borrower takes. `channel`: the session's, whose server hands out the memory.
  void Lend(const std::shared_ptr<transport::LocalChannel>& channel, const std::string& digest, Reply reply);
  // Not lent (any more): nothing happens.
  void Return(std::uint64_t loan);
  void ReturnAll();
  [[nodiscard]] std::size_t lent() const { return loans_.size(); }

 private:
  struct Loan {
    std::string digest;
    ModelTable::Hold hold;
    std::shared_ptr<transport::LocalChannel> channel;
  };
  absl::StatusOr<proto::LendOutcome> Make(const std::shared_ptr<transport::LocalChannel>& channel,
                                          const std::string& digest);
  absl::Status Show(const DeviceRange& weights, transport::LocalChannel& channel, proto::LentMemory& shown);
  Device& device_;
  Residency& residency_;
  const WorkerLimits& limits_;
  std::map<std::uint64_t, Loan> loans_;
};

}  // namespace troupe::gpu
