// INQUIRIES: questions of people that nodes have to be asked for: one answer is put together from what each of
// them describes.
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
  void On(const NodeDescribed& event);

 private:
  enum class About { kGpus, kResidency };
  struct Inquiry {
    Ask ask = 0;
    About about = About::kGpus;
    proto::AdminReply reply{};
    std::size_t open = 0;  // nodes that have not answered
  };
  void AskNodes(Ask ask, const std::string& only, About about, proto::AdminReply known);

  Parts& parts_;
  std::map<std::uint64_t, Inquiry> inquiries_;
  std::uint64_t last_ = 0;
};

}  // namespace troupe::cluster
