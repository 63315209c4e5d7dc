// RUN CHANGE: a change of a run's record: its end, or a claim that gives it to another gateway; and who is told
// how that went.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "cluster/events.hpp"

namespace troupe::cluster {

// Who wants a run to end.
enum class Ender : std::uint8_t {
  kManager,   // the manager: there is no asker
  kRunner,    // the actor that runs the run
  kOperator,  // an operator that cancels the run
};
struct EndWish {
  proto::FinishRun command{};
  Ender ender = Ender::kManager;
  Ask ask = 0;  // of the runner or of the operator
};

struct ClaimWish {
  std::string run{};
  std::string gateway{};  // that gets it
  // Of the actor that asked for the run; 0: the manager gives it to a gateway, which is told to go on with it. A
  // run that failed for a passing reason is begun again only for an actor that asks.
  Ask ask = 0;
  std::string former_gateway{};
  std::string failure{};  // why the run had failed; empty: it had not
};

using RunChange = std::variant<EndWish, ClaimWish>;
[[nodiscard]] inline const std::string& RunOf(const RunChange& change) {
  if (const auto* end = std::get_if<EndWish>(&change)) return end->command.run();
  return std::get<ClaimWish>(change).run;
}

}  // namespace troupe::cluster
