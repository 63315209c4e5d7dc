#include "shell/verbs/all_verbs.hpp"

namespace troupe::shell {

const std::vector<Verb>& Verbs() {
  static const std::vector<Verb> kVerbs = [] {
    std::vector<Verb> all;
    for (const auto& part :
         {ClusterVerbs(), GpuVerbs(), ChaosVerbs(), DeclarativeVerbs(), CheckVerbs(), FunctionVerbs(),
          UpdateVerbs(), SplitVerbs(), InferVerbs(), KeyVerbs(), CaVerbs(), WorkflowVerbs(), ProfileVerbs(),
          AutoscaleVerbs(), SloVerbs(), UsageVerbs(), WatchVerbs()})
      all.insert(all.end(), part.begin(), part.end());
    return all;
  }();
  return kVerbs;
}

}  // namespace troupe::shell
