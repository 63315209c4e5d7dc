// The parts of the table of verbs, one per file of this folder.
#pragma once

#include <vector>

#include "shell/verb.hpp"

namespace troupe::shell {

[[nodiscard]] std::vector<Verb> AutoscaleVerbs();    // autoscale
[[nodiscard]] std::vector<Verb> CaVerbs();           // ca
[[nodiscard]] std::vector<Verb> ClusterVerbs();      // cluster, node
[[nodiscard]] std::vector<Verb> GpuVerbs();          // gpu, kill
[[nodiscard]] std::vector<Verb> ChaosVerbs();        // chaos
[[nodiscard]] std::vector<Verb> DeclarativeVerbs();  // apply, diff, export
[[nodiscard]] std::vector<Verb> FunctionVerbs();     // function
[[nodiscard]] std::vector<Verb> CheckVerbs();        // function check
[[nodiscard]] std::vector<Verb> SplitVerbs();        // function canary, promote, rollback
[[nodiscard]] std::vector<Verb> UpdateVerbs();       // function update
[[nodiscard]] std::vector<Verb> InferVerbs();        // infer
[[nodiscard]] std::vector<Verb> KeyVerbs();          // key
[[nodiscard]] std::vector<Verb> ProfileVerbs();      // profile
[[nodiscard]] std::vector<Verb> SloVerbs();          // slo, why
[[nodiscard]] std::vector<Verb> UsageVerbs();        // usage
[[nodiscard]] std::vector<Verb> WorkflowVerbs();     // workflow
[[nodiscard]] std::vector<Verb> WatchVerbs();        // top, events

}  // namespace troupe::shell
