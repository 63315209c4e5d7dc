#include "gpu/swap/link_desk.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu {
namespace {

template <class T>
T Known(absl::StatusOr<T> found) {
  TROUPE_CHECK(found.ok(), "the names of a link desk's policies have been checked");
  return *found;
}

LinkCurve CurveOf(Device& device, const SwapOptions& options) {
  if (options.group > Bytes(0)) return {{}, options.group};
  return ProbeLink(device, LinkDesk::kProbeBudget);
}

void Tell(LinkPort& port, const std::shared_ptr<transport::LinkBuckets>& links, const std::string& name) {
  const absl::StatusOr<std::size_t> link = links->Find(name);
  if (!link.ok()) return;  // the device says so when it is told to use them
  port.Announce([links, path = links->PathOf(*link)](const LinkPort::Demand& demand) {
    const Time now = transport::SteadyNow();
    for (const std::size_t each : path)
      links->Want(each, {demand.urgency.value_or(0), demand.transfers}, now);
  });
}

}  // namespace

LinkDesk::LinkDesk(Device& device, SwapOptions options)
    : options_(std::move(options)),
      policy_(Known(FindSwapPolicy(options_.swap))),
      curve_(CurveOf(device, options_)),
      in_(device, LinkPort::Direction::kIn,
          {Known(FindLinkSharing(options_.sharing)), options_.block, options_.batch}),
      out_(device, LinkPort::Direction::kOut,
           {Known(FindLinkSharing(options_.sharing)), options_.block, options_.batch}) {}

void LinkDesk::Share(const std::shared_ptr<transport::LinkBuckets>& links, const std::string& in,
                     const std::string& out) {
  Tell(in_, links, in);
  Tell(out_, links, out);
}

std::vector<Group> LinkDesk::GroupsOf(Bytes weights, const proto::Model* model) const {
  switch (policy_.cut) {
    case SwapPolicy::Cut::kWhole:
      break;
    case SwapPolicy::Cut::kTensors:
      TROUPE_CHECK(model != nullptr, "groups that follow the tensors need the model");
      return CutByTensor(*model, weights);
    case SwapPolicy::Cut::kGroups:
      return CutEvenly(weights, curve_.elbow);
  }
  return CutEvenly(weights, std::max(weights, Bytes(1)));
}

}  // namespace troupe::gpu
