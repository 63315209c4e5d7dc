#include "gpu/worker/layer_load.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace troupe::gpu {
namespace {

std::vector<Group> GroupsOf(const WeightWindow& window) {
  std::vector<Group> groups;
  for (const WindowPart& part : window.parts) groups.push_back({part.offset, part.length});
  return groups;
}

}  // namespace

LayerLoad::LayerLoad(std::shared_ptr<const WeightWindow> window, HostModel host, DeviceRange at,
                     std::uint64_t order, std::optional<Time> deadline, Calls calls)
    : window_(std::move(window)),
      host_(std::move(host)),
      at_(at),
      order_(order),
      deadline_(deadline),
      calls_(std::move(calls)),
      load_(std::make_shared<ModelLoad>(GroupsOf(*window_))),
      arrivals_(load_, window_->parts.size()) {}

void LayerLoad::Send(std::size_t step, LinkPort& port) {
  TransferRequest request;
  request.order = order_;
  request.deadline = deadline_;
  const std::size_t first = sent_;
  while (!stopped_ && sent_ < window_->parts.size() && window_->parts[sent_].free_at <= step) {
    const WindowPart& part = window_->parts[sent_++];
    // Copies in only read their source.
    auto* from = const_cast<std::byte*>(host_.weights.data()) + part.offset;
    request.pieces.push_back({at_.Part(Bytes(part.place), Bytes(part.length)), from});
  }
  if (request.pieces.empty()) return;
  ++transfers_;
  request.signals = signals_;
  request.first_signal = first;
  load_->RaisedByDevice(signals_, 0, sent_);
  request.landed = [load = shared_from_this(), first](std::size_t piece, Time at) {
    load->Arrived(first + piece, at);
  };
  request.done = [load = shared_from_this()](const Completion& completion) {
    if (!completion.status.ok()) load->load_->Failed(completion.status);
    load->calls_.landed(completion.status);
  };
  port.Put(std::move(request));
}

void PartArrivals::Arrived(std::size_t part, Time at) {
  const std::lock_guard lock(mutex_);
  arrivals_[part] = at;
  for (; counted_ < arrivals_.size() && arrivals_[counted_]; ++counted_) load_->Arrived(*arrivals_[counted_]);
}

void LayerLoad::Arrived(std::size_t part, Time at) {
  arrivals_.Arrived(part, at);
  if (part == 0) calls_.begun();
}

void LayerLoad::Stop(const absl::Status& why) {
  stopped_ = true;
  load_->Failed(why);
}

std::vector<WeightPiece> LayerLoad::Pieces() const {
  std::vector<WeightPiece> pieces;
  for (const WindowPart& part : window_->parts)
    pieces.push_back({part.offset, part.length, at_.Part(Bytes(part.place), Bytes(part.length))});
  std::ranges::sort(pieces, {}, &WeightPiece::offset);
  return pieces;
}

StepGate LayerLoad::Gate() const {
  return [load = load_, window = window_](std::size_t step) { return load->After(window->needed[step]); };
}

std::vector<std::size_t> LayerLoad::Marks() const {
  std::set<std::size_t> marks;
  for (const WindowPart& part : window_->parts) {
    if (part.free_at > 0) marks.insert(part.free_at);
  }
  return {marks.begin(), marks.end()};
}

}  // namespace troupe::gpu
