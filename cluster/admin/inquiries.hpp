// INQUIRIES: questions of people that nodes or gateways have to be asked for: one answer is put together from what each of
// them describes. A member that does not answer is left out.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "cluster/events.hpp"

namespace troupe::cluster {

struct Parts;

class Inquiries {
 public:
  explicit Inquiries(Parts& parts) : parts_(parts) {}

  // Of one node, or of all for an empty name.
  void ListGpus(Ask ask, const std::string& node);
  // An empty key: every function; an empty version: every version.
  void ShowFunctions(Ask ask, const proto::FunctionKey& key);
  void ShowSlo(Ask ask, const proto::FunctionKey& key);
  // Requests that have the id; an empty one: the slowest of the last minute.
  void Explain(Ask ask, const std::string& id);
  void On(const NodeDescribed& event);
  void On(const GatewayDescribed& event);

 private:
  enum class About { kGpus, kFunctions, kSlos, kRequests };
  struct Inquiry {
    Ask ask = 0;
    About about = About::kGpus;
    proto::AdminReply reply{};
    proto::FunctionKey key{};  // of an SLO
    std::string id{};          // of requests
    std::size_t open = 0;      // members that have not answered
  };
  // The number of members that were asked.
  std::size_t AskNodes(std::uint64_t number, const std::string& only);
  std::size_t AskGateways(std::uint64_t number, const proto::DescribeGateway& ask);
  // Waits for as many answers.
  void Begin(std::uint64_t number, Inquiry inquiry, std::size_t asked);
  void CountAnswer(std::uint64_t number);
  void End(Inquiry& inquiry);

  Parts& parts_;
  std::map<std::uint64_t, Inquiry> inquiries_;
  std::uint64_t last_ = 0;
};

}  // namespace troupe::cluster
