#include "actors/node/remote_inputs.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/core/time.hpp"

namespace troupe::actors {

using transport::SizeOf;
using transport::TensorData;

bool RemoteInputs::Needed(const Tensors& inputs) const {
  return channel_ != nullptr && std::any_of(inputs.begin(), inputs.end(), [&](const proto::Tensor& tensor) {
           return !channel_->Near(tensor.data());
         });
}

void RemoteInputs::Bring(caf::local_actor* self, const node::RequestId& id, const Tensors& inputs,
                         Time expiry, Done done) {
  self_ = self;
  Bytes size;
  for (const auto& tensor : inputs) {
    if (channel_->Near(tensor.data())) continue;
    // The sizes are the sender's word: their sum must not wrap round.
    if (SizeOf(tensor.data()) > limits_.bytes - size) {
      return done(absl::ResourceExhaustedError(
          absl::StrCat("inputs on another host are larger than the ", FormatBytes(limits_.bytes),
                       " that this node keeps for such (option arena)")));
    }
    size += SizeOf(tensor.data());
  }
  auto& entry = entries_[id];
  entry = Entry();
  entry.serial = next_serial_++;
  entry.inputs = inputs;
  entry.size = size;
  entry.expiry = expiry;
  entry.done = std::move(done);
  ++pending_;
  waiting_.push_back(id);
  BeginWaiting();
}

void RemoteInputs::BeginWaiting() {
  while (!waiting_.empty()) {
    const auto id = waiting_.front();
    auto& entry = entries_.at(id);
    if (entry.size > limits_.bytes - used_) return;
    waiting_.pop_front();
    Begin(id, entry);
  }
}

void RemoteInputs::Begin(const node::RequestId& id, Entry& entry) {
  entry.begun = true;
  used_ += entry.size;
  const auto remaining = entry.expiry == Time::max() ? limits_.longest : entry.expiry - Now(self_);
  const auto timeout = std::clamp<Duration>(remaining, Duration(1), limits_.longest);
  for (int i = 0; i < entry.inputs.size(); ++i) {
    const auto& ref = entry.inputs[i].data();
    if (channel_->Near(ref)) continue;
    ++entry.open;
    // Whatever happens to the transfer, its callback becomes a message to the actor: never a call from here.
    channel_->FetchAsync(
        ref, timeout,
        continuations_.Make<TensorData>(
            self_, [this, id, serial = entry.serial, i, size = SizeOf(ref)](absl::StatusOr<TensorData> data) {
              Arrived(id, serial, i, size, std::move(data));
            }));
  }
}

void RemoteInputs::Arrived(const node::RequestId& id, std::uint64_t serial, int index, Bytes size,
                           absl::StatusOr<TensorData> data) {
  const auto it = entries_.find(id);
  const bool wanted = it != entries_.end() && it->second.serial == serial && it->second.done;
  if (!wanted || !data.ok()) used_ -= size;
  if (wanted) {
    auto& entry = it->second;
    --entry.open;
    if (data.ok()) {
      *entry.inputs[index].mutable_data() = data->ref();
      entry.here.push_back(*std::move(data));
      if (entry.open == 0) End(id, entry, entry.inputs);
    } else {
      const auto& name = entry.inputs[index].spec().name();
      End(id, entry,
          absl::Status(data.status().code(),
                       absl::StrCat("input '", name, "' on another host: ", data.status().message())));
    }
  }
  data = absl::CancelledError("dropped");  // before others ask for its room
  BeginWaiting();
}

// `done` may forget the request: nothing of the entry is touched after it.
void RemoteInputs::End(const node::RequestId& id, Entry& entry, absl::StatusOr<Tensors> result) {
  --pending_;
  const auto done = std::exchange(entry.done, nullptr);
  if (!result.ok()) Forget(id);
  done(std::move(result));
}

bool RemoteInputs::Forget(const node::RequestId& id) {
  auto node = entries_.extract(id);
  if (node.empty()) return false;
  auto& entry = node.mapped();
  if (entry.done) --pending_;
  if (!entry.begun) std::erase(waiting_, id);
  for (const auto& data : entry.here) used_ -= SizeOf(data.ref());
  entry.here.clear();
  BeginWaiting();
  return true;
}

std::vector<node::RequestId> RemoteInputs::PendingOf(std::uint64_t router) const {
  std::vector<node::RequestId> ids;
  for (const auto& [id, entry] : entries_)
    if (id.router == router && entry.done) ids.push_back(id);
  return ids;
}

bool RemoteInputs::Pending(const node::RequestId& id) const {
  const auto it = entries_.find(id);
  return it != entries_.end() && it->second.done;
}

void RemoteInputs::Clear() {
  waiting_.clear();
  entries_.clear();
  continuations_.Clear();
}

}  // namespace troupe::actors
