#include "gpu/swap/link_probe.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>

#include "transport/steady_clock.hpp"

namespace troupe::gpu {
namespace {

using transport::SteadyNow;

constexpr Bytes kSmallest = KiB(256);
constexpr Bytes kLargest = MiB(16);
constexpr int kRounds = 3;
constexpr int kFewestCopies = 3;
constexpr int kMostCopies = 17;
// A group is large enough at this share of the best bandwidth: what is lost beyond it is less than what a
// later start of the first step costs.
constexpr double kNearly = 0.95;
// Two doublings that gain less than this: the curve is flat.
constexpr double kGain = 1.02;
constexpr Duration kPatience =
    std::chrono::seconds(1);  // for one copy: a link that stalls is found elsewhere

// Copies one behind the other. An end is seen when the host wakes, late by as much as a small copy takes: that is
// little of the time between the first end and the last when small copies are many.
int CopiesOf(Bytes size) {
  return std::clamp(static_cast<int>(kLargest.count() / size.count()), kFewestCopies, kMostCopies);
}

// From the end of one copy to the end of the one behind it, so that it is the link's time, without what it takes to
// begin a copy and to wake a thread at its end. Nothing when a copy failed.
Duration TimeOf(Stream& stream, DeviceRange to, std::span<const std::byte> from) {
  const auto ends = std::make_shared<std::vector<Time>>(CopiesOf(Bytes(from.size())));
  EventPtr last;
  for (std::size_t copy = 0; copy < ends->size(); ++copy) {
    last = stream.CopyIn(to, from,
                         [ends, copy](const Completion& completion) { (*ends)[copy] = completion.end; });
  }
  if (!last->Wait(kPatience).ok()) return Duration(0);
  // The last one is told of behind its event.
  const DeviceRange nothing = to.Part(Bytes(0), Bytes(0));
  if (!stream.CopyWithin(nothing, nothing, nullptr)->Wait(kPatience).ok()) return Duration(0);
  return std::max((ends->back() - ends->front()) / static_cast<int>(ends->size() - 1), Duration(1));
}

bool Flat(const std::vector<LinkPoint>& points) {
  const std::size_t n = points.size();
  return n > 3 && points[n - 1].bandwidth.value < kGain * points[n - 3].bandwidth.value;
}

std::vector<LinkPoint> Measure(Device& device, DeviceRange range, Time end) {
  const std::unique_ptr<std::byte[]> memory(new std::byte[range.size.count()]());
  const std::span<const std::byte> host(memory.get(), range.size.count());
  if (!device.RegisterHost(host).ok()) return {};
  std::vector<LinkPoint> points;
  {
    const std::unique_ptr<Stream> stream = device.MakeStream();
    for (Bytes size = kSmallest; size <= range.size && SteadyNow() < end && !Flat(points); size += size) {
      const DeviceRange to = range.Part(Bytes(0), size);
      const auto from = host.first(size.count());
      // The first one is not counted: it may be the first touch of the device's memory.
      if (TimeOf(*stream, to, from) == Duration(0)) break;
      Duration best = Duration::max();
      for (int i = 0; i < kRounds && (i == 0 || SteadyNow() < end); ++i) {
        const Duration took = TimeOf(*stream, to, from);
        if (took > Duration(0)) best = std::min(best, took);
      }
      if (best == Duration::max()) break;
      points.push_back({size, {static_cast<double>(size.count()) / ToSeconds(best)}});
    }
  }
  device.UnregisterHost(host);
  return points;
}

}  // namespace

Bytes ElbowOf(std::span<const LinkPoint> points) {
  if (points.empty()) return kUsualGroup;
  double best = 0;
  for (const LinkPoint& point : points) best = std::max(best, point.bandwidth.value);
  for (const LinkPoint& point : points) {
    if (point.bandwidth.value >= kNearly * best) return point.size;
  }
  return points.back().size;
}

LinkCurve ProbeLink(Device& device, Duration budget) {
  LinkCurve curve;
  const Time end = SteadyNow() + budget;
  const Bytes room = std::min(kLargest, Bytes(device.memory().largest.count() / 4));
  const absl::StatusOr<DeviceRange> range = device.Allocate(room);
  if (range.ok()) {
    curve.points = Measure(device, *range, end);
    device.Free(*range);
  }
  curve.elbow = ElbowOf(curve.points);
  return curve;
}

}  // namespace troupe::gpu
