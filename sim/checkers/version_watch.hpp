// VERSION WATCH: what the network sees of the requests to one function: to which of its versions gateways send them.
#pragma once

#include <string>
#include <vector>

#include "sim/checkers/version_check.hpp"
#include "sim/network.hpp"

namespace troupe::sim {

class VersionWatch final : public NetworkTap {
 public:
  void Know(const std::string& function) { function_ = function; }
  void Sent(const Passage& passage, const caf::message& content) override;
  void Arrives(const Passage& passage, caf::message& content) override;
  [[nodiscard]] const std::vector<VersionSent>& sent() const { return sent_; }

 private:
  std::string function_;
  std::vector<VersionSent> sent_;
};

}  // namespace troupe::sim
