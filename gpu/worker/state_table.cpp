#include "gpu/worker/state_table.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "base/status.hpp"
#include "gpu/device/tensor_bytes.hpp"
#include "transport/tensor_channel.hpp"

namespace troupe::gpu {

Bytes DeviceState::size() const {
  Bytes sum;
  for (const Tensor& tensor : tensors) sum += tensor.now.size + tensor.next.size;
  return sum;
}

Bytes DeviceState::copied() const {
  Bytes sum;
  for (const Tensor& tensor : tensors) sum += tensor.now.size;
  return sum;
}

void DeviceState::Commit() {
  for (Tensor& tensor : tensors) std::swap(tensor.now, tensor.next);
  ++runs;
  changed = true;
}

absl::Status CheckImage(const proto::StateImage& image) {
  const std::string who = absl::StrCat("state of '", image.function(), "': ");
  if (image.function().empty() || image.tensors().empty())
    return absl::InvalidArgumentError("a state without a function or without tensors was sent");
  std::set<std::string> names;
  for (const proto::Tensor& tensor : image.tensors()) {
    TROUPE_ASSIGN_OR_RETURN(const Bytes size, ConcreteBytes(tensor.spec()));
    if (tensor.spec().type() == proto::BYTES)
      return absl::InvalidArgumentError(
          absl::StrCat(who, FormatSpec(tensor.spec()), " is of texts, whose size changes from run to run"));
    if (!names.insert(tensor.spec().name()).second)
      return absl::InvalidArgumentError(absl::StrCat(who, tensor.spec().name(), " is there twice"));
    const bool zeros = tensor.data().place_case() == proto::TensorRef::PLACE_NOT_SET;
    if (zeros || transport::SizeOf(tensor.data()) == size) continue;
    return absl::InvalidArgumentError(absl::StrCat(who, FormatSpec(tensor.spec()), " has ",
                                                   transport::SizeOf(tensor.data()).count(),
                                                   " bytes, its shape needs ", size.count()));
  }
  return absl::OkStatus();
}

StateTable::StatePtr StateTable::Find(const std::string& function) const {
  const auto found = states_.find(function);
  return found == states_.end() ? nullptr : found->second;
}

std::vector<StateTable::StatePtr> StateTable::Of(const std::string& digest, const std::string& prefix) const {
  std::vector<StatePtr> of;
  for (auto at = states_.lower_bound(prefix); at != states_.end() && at->first.starts_with(prefix); ++at) {
    if (at->second->digest == digest) of.push_back(at->second);
  }
  return of;
}

absl::StatusOr<StateTable::StatePtr> StateTable::Begin(const std::string& digest,
                                                       const proto::StateImage& image) {
  if (const StatePtr old = Find(image.function()); old != nullptr) {
    if (old->coming || !old->line.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat("the state of '", image.function(), "' is in use: replace it afterwards"));
    }
    Free(*old);
    states_.erase(image.function());
  }
  auto state = std::make_shared<DeviceState>();
  state->function = image.function();
  state->digest = digest;
  state->meter = image.meter();
  state->runs = image.runs();
  const MemoryUser user{MemoryUser::Kind::kState, digest};
  for (const proto::Tensor& tensor : image.tensors()) {
    const absl::StatusOr<Bytes> size = ConcreteBytes(tensor.spec());
    TROUPE_CHECK(size.ok(), "the image has been checked");
    for (const bool now : {true, false}) {
      const absl::StatusOr<DeviceRange> range = memory_.Allocate(user, *size);
      if (!range.ok()) {
        Free(*state);
        return range.status();
      }
      if (now) state->tensors.push_back({tensor.spec(), *range, {}});
      if (!now) state->tensors.back().next = *range;
    }
  }
  states_[image.function()] = state;
  return state;
}

void StateTable::Free(DeviceState& state) {
  for (const DeviceState::Tensor& tensor : state.tensors) {
    for (const DeviceRange& range : {tensor.now, tensor.next}) {
      if (range.address != nullptr) memory_.Free(range);
    }
  }
  state.tensors.clear();
}

void StateTable::Arrived(DeviceState& state) {
  state.coming = false;
  CallFirst(state);
}

void StateTable::Fail(const StatePtr& state, const absl::Status& why) {
  TROUPE_CHECK(!why.ok(), "a state fails for a reason");
  state->failed = why;
  states_.erase(state->function);
  if (state->line.empty()) Free(*state);
}

void StateTable::DropInTurn(const StatePtr& state) {
  const std::uint64_t ticket = TicketOfOurs();
  Join(*state, {ticket, [this, state, ticket] {
                  Leave(*state, ticket);
                  if (state->line.empty() && state->failed.ok())
                    Fail(state, absl::CancelledError("it was dropped"));
                }});
}

void StateTable::Drop(const std::string& digest) {
  for (const StatePtr& state : Of(digest)) {
    TROUPE_CHECK(!state->coming && state->line.empty(), "a state in use was dropped");
    Free(*state);
    states_.erase(state->function);
  }
}

void StateTable::Join(DeviceState& state, DeviceState::User user) {
  state.line.push_back(std::move(user));
  if (state.line.size() == 1) CallFirst(state);
}

void StateTable::Leave(DeviceState& state, std::uint64_t ticket) {
  const auto at = std::find_if(state.line.begin(), state.line.end(),
                               [ticket](const DeviceState::User& user) { return user.ticket == ticket; });
  TROUPE_CHECK(at != state.line.end(), "a user left a state that it did not wait for");
  const bool first = at == state.line.begin();
  state.line.erase(at);
  if (!state.failed.ok()) {
    if (state.line.empty()) Free(state);
  } else if (first) {
    CallFirst(state);
  }
}

void StateTable::CallFirst(DeviceState& state) {
  if (state.coming || state.line.empty() || !state.line.front().ready) return;
  const auto ready = std::exchange(state.line.front().ready, nullptr);
  ready();
}

void StateTable::MarkAllChanged() {
  for (const auto& [function, state] : states_) state->changed = true;
}

Bytes StateTable::bytes() const {
  Bytes sum;
  for (const auto& [function, state] : states_) sum += state->size();
  return sum;
}

}  // namespace troupe::gpu
