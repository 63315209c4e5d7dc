#include "gpu/swap/device_links.hpp"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu {
namespace {

template <class T>
T Known(absl::StatusOr<T> found) {
  TROUPE_CHECK(found.ok(), "the names of a device's links's policies have been checked");
  return *found;
}

LinkCurve CurveOf(Device& device, const SwapOptions& options) {
  if (options.group > Bytes(0)) return {{}, options.group};
  if (options.known.elbow > Bytes(0)) return options.known;
  return ProbeLink(device, DeviceLinks::kProbeBudget);
}

SwapOptions Resolved(const Device& device, SwapOptions options) {
  if (options.block == Bytes(0)) options.block = BlockFor(device.info().link);
  return options;
}

// What several ports want of one link: as much as all of them, as urgently as the most urgent one.
struct Wants {
  std::mutex mutex;
  std::vector<LinkPort::Demand> of_port;  // guarded by mutex
  LinkPort::Demand Sum() const {
    LinkPort::Demand sum;
    for (const LinkPort::Demand& demand : of_port) {
      sum.transfers += demand.transfers;
      if (demand.urgency && (!sum.urgency || *demand.urgency < *sum.urgency)) sum.urgency = demand.urgency;
    }
    return sum;
  }
};

void Tell(const std::vector<LinkPort*>& ports, const std::shared_ptr<transport::LinkBuckets>& links,
          const std::string& name) {
  const absl::StatusOr<std::size_t> link = links->Find(name);
  if (!link.ok()) return;  // the device says so when it is told to use them
  const auto wants = std::make_shared<Wants>();
  wants->of_port.resize(ports.size());
  for (std::size_t i = 0; i < ports.size(); ++i) {
    ports[i]->Announce([links, path = links->PathOf(*link), wants, i](const LinkPort::Demand& demand) {
      const Time now = transport::SteadyNow();
      const std::lock_guard lock(wants->mutex);
      wants->of_port[i] = demand;
      const LinkPort::Demand sum = wants->Sum();
      for (const std::size_t each : path) links->Want(each, {sum.urgency.value_or(0), sum.transfers}, now);
    });
  }
}

}  // namespace

// A block is to take some 0.2 ms, against 5 to 7 us that a copy costs to begin; 2 MiB is the papers' for slower links.
Bytes BlockFor(BytesPerSecond link) {
  constexpr double kFast = 20e9;
  constexpr double kFaster = 40e9;
  return link.value >= kFaster ? MiB(16) : link.value >= kFast ? MiB(8) : MiB(2);
}

DeviceLinks::DeviceLinks(Device& device, SwapOptions options)
    : device_(device),
      options_(Resolved(device, std::move(options))),
      policy_(Known(FindSwapPolicy(options_.swap))),
      curve_(CurveOf(device, options_)),
      in_(device, LinkPort::Direction::kIn, PortOptions()),
      inputs_(device, LinkPort::Direction::kIn, PortOptions()),
      out_(device, LinkPort::Direction::kOut, PortOptions()) {}

LinkPort::Options DeviceLinks::PortOptions() const {
  return {Known(FindLinkSharing(options_.sharing)), options_.block, options_.batch};
}

void DeviceLinks::Share(std::shared_ptr<transport::LinkBuckets> links, Names names) {
  links_ = std::move(links);
  names_ = std::move(names);
  Tell({&in_, &inputs_}, links_, names_.in);
  Tell({&out_}, links_, names_.out);
  for (const auto& [gpu, port] : from_) Tell({port.get()}, links_, names_.from(gpu));
}

LinkPort& DeviceLinks::from(std::uint32_t gpu) {
  std::unique_ptr<LinkPort>& port = from_[gpu];
  if (port == nullptr) {
    port = std::make_unique<LinkPort>(device_, LinkPort::Direction::kPeer, PortOptions());
    if (links_ != nullptr && names_.from) Tell({port.get()}, links_, names_.from(gpu));
  }
  return *port;
}

LinkPort::State DeviceLinks::from_others() const {
  std::vector<const LinkPort*> ports;
  for (const auto& [gpu, port] : from_) ports.push_back(port.get());
  return Joined(ports);
}

LinkPort::State DeviceLinks::Joined(const std::vector<const LinkPort*>& ports) {
  LinkPort::State all;
  for (const LinkPort* const port : ports) {
    const LinkPort::State state = port->state();
    if (state.busy && !all.busy) all.order = state.order;
    all.busy |= state.busy;
    all.progress += state.progress;
  }
  return all;
}

void DeviceLinks::Close() {
  in_.Close();
  inputs_.Close();
  out_.Close();
  for (const auto& [gpu, port] : from_) port->Close();
}

std::vector<Group> DeviceLinks::GroupsOf(Bytes weights, const proto::Model* model) const {
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
