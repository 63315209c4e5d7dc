// LOANS: models that one GPU of this node lends another while that one copies them. Owned by the node
// controller, which gives the orders.
//
//   asked for -(Answered)-> lent -(End)-> returned        asked for, lent -(BorrowerLost)-> returned
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "node/request.hpp"

namespace troupe::actors {

class Loans {
 public:
  using Ticket = std::uint64_t;
  struct Loan {
    node::GpuIndex lender = node::kNoGpu;
    node::GpuIndex borrower = node::kNoGpu;
    std::string model;
    std::uint64_t id = 0;  // at the lender's worker; 0: it has not answered
  };
  using Then = std::function<void()>;

  Ticket Ask(node::GpuIndex lender, node::GpuIndex borrower, const std::string& model) {
    loans_[++last_].loan = {lender, borrower, model};
    return last_;
  }
  // A borrower's worker hears of the copy when its lender has answered: what else it is to do with the model
  // has to wait as long. False: nothing was asked for, `then` is not kept.
  bool Await(node::GpuIndex borrower, const std::string& model, Then then) {
    for (auto& [ticket, entry] : loans_) {
      if (entry.loan.id != 0 || entry.loan.borrower != borrower || entry.loan.model != model) continue;
      entry.waiting.push_back(std::move(then));
      return true;
    }
    return false;
  }
  // The lender lends the model under this id, or (0) it does not, which ends it. What waited, in order;
  // nothing when the borrower was lost meanwhile: then the model has to be returned now.
  std::optional<std::vector<Then>> Answered(Ticket ticket, std::uint64_t id) {
    const auto it = loans_.find(ticket);
    if (it == loans_.end()) return std::nullopt;
    auto waiting = std::exchange(it->second.waiting, {});
    it->second.loan.id = id;
    if (id == 0) loans_.erase(it);
    return waiting;
  }
  // The copy has ended: what to return, unless that was done before.
  std::optional<Loan> End(Ticket ticket) {
    const auto node = loans_.extract(ticket);
    return node.empty() ? std::nullopt : std::optional(node.mapped().loan);
  }
  // Nobody copies to this GPU any more: what to return now.
  std::vector<Loan> BorrowerLost(node::GpuIndex borrower) {
    std::vector<Loan> lent;
    std::erase_if(loans_, [&](const auto& entry) {
      if (entry.second.loan.borrower != borrower) return false;
      if (entry.second.loan.id != 0) lent.push_back(entry.second.loan);
      return true;
    });
    return lent;
  }
  [[nodiscard]] std::size_t size() const { return loans_.size(); }

 private:
  struct Entry {
    Loan loan;
    std::vector<Then> waiting;
  };
  std::map<Ticket, Entry> loans_;
  Ticket last_ = 0;
};

}  // namespace troupe::actors
