// REQUEST CLIENTS: the clients that ask functions at every gateway. They time out, they cancel, they ask again
// elsewhere. What they asked and heard is in their ledger, also what the returning clients ask through them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "sim/checkers/request_ledger.hpp"
#include "sim/workloads/client_load.hpp"

namespace troupe::sim {

class RequestClients {
 public:
  // Outlived by the workload.
  explicit RequestClients(ClientLoad& load) : load_(load) {}
  // A planted error: the n-th answer from now on is told twice.
  void AnswerTwice(std::uint64_t nth) { twice_ = nth; }

  // Steady requests, or bursts.
  void Begin();
  void LongLoop();
  void QuotaLoop();
  std::uint64_t Ask(std::size_t gateway, const std::string& function, const std::string& version,
                    Duration timeout);
  // `tries`: how often its client asks until it has an answer.
  std::uint64_t Send(RequestRecord record, std::uint32_t tries);
  // Asks once, and calls `then` with the answer, unless these clients are gone.
  void SendThen(RequestRecord record, std::function<void(const RequestRecord& answered)> then);

  [[nodiscard]] const RequestLedger& ledger() const { return ledger_; }
  [[nodiscard]] std::uint64_t served() const { return served_; }

 private:
  [[nodiscard]] ChaosCluster& cluster() { return load_.cluster(); }
  void RequestLoop();
  void Burst();
  void AskAnything(std::uint32_t tries);
  void Answered(std::uint64_t request, const AnswerSeen& answer, std::uint32_t tries);
  void AskAgain(std::uint64_t request, std::uint32_t tries);

  ClientLoad& load_;
  RequestLedger ledger_;
  std::uint64_t served_ = 0;
  std::uint64_t twice_ = 0;
  std::map<std::uint64_t, std::function<void(const RequestRecord&)>> then_;  // by request
  std::uint64_t long_asked_ = 0;
  std::uint64_t quota_asked_ = 0;
  const std::shared_ptr<bool> here_ = std::make_shared<bool>(true);  // answers may come when this is gone
};

}  // namespace troupe::sim
