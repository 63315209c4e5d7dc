#include "node/scheduling/model_holders.hpp"

namespace troupe::node {

void ModelHolders::Enter(ModelId model, GpuIndex gpu) {
  if (holders_.size() <= model) holders_.resize(model + 1);
  std::vector<GpuIndex>& holders = holders_[model];
  holders.insert(std::upper_bound(holders.begin(), holders.end(), gpu), gpu);
}

void ModelHolders::BeginEvict(ModelId model) {
  if (evicting_.size() <= model) evicting_.resize(model + 1);
  ++evicting_[model];
}

}  // namespace troupe::node
