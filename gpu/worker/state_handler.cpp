#include "gpu/worker/state_handler.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu {
namespace {

using transport::SteadyNow;

// States that begin anew are filled from a block of this size: a device has no other way to be told of zeros.
constexpr Bytes kZeros = MiB(1);

std::span<const std::byte> BytesOf(const proto::Tensor& tensor, const transport::TensorData& fetched) {
  return tensor.data().has_arena() ? fetched.bytes() : std::as_bytes(std::span(tensor.data().inlined()));
}

}  // namespace

StateHandler::StateHandler(DeviceMemory& memory, TaskQueue& queue, DeviceLinks& links, Residency& residency,
                           const WorkerLimits& limits)
    : memory_(memory),
      queue_(queue),
      links_(links),
      residency_(residency),
      limits_(limits),
      zeros_(kZeros.count()) {}

// What is still on its way calls back, and reads from here.
StateHandler::~StateHandler() {
  links_.in().Close();
  links_.out().Close();
}

absl::Status StateHandler::Begin(const proto::SwapInOrder& order, std::vector<StatePtr>& states) {
  if (static_cast<std::size_t>(order.states_size()) > limits_.tensors)
    return absl::InvalidArgumentError(absl::StrCat(order.states_size(), " states are too many"));
  for (const proto::StateImage& image : order.states()) {
    TROUPE_RETURN_IF_ERROR(CheckImage(image));
    TROUPE_ASSIGN_OR_RETURN(StatePtr state, residency_.states().Begin(order.model().digest(), image));
    states.push_back(std::move(state));
  }
  return absl::OkStatus();
}

void StateHandler::SwapIn(ChannelPtr channel, const proto::SwapInOrder& order, std::optional<Time> deadline,
                          Reply reply, const std::function<void(Reply)>& bring_model) {
  if (order.states().empty()) return bring_model(std::move(reply));
  std::vector<StatePtr> states;
  const auto fail = [&](const absl::Status& why) {
    for (const StatePtr& state : states) residency_.states().Fail(state, why);
  };
  if (const absl::Status begun = Begin(order, states); !begun.ok()) {
    fail(begun);
    return reply.Fail(begun,
                      absl::IsResourceExhausted(begun) ? NoFitOutcome(memory_) : proto::WorkerOutcome());
  }
  const std::uint64_t sequence = reply.sequence();
  const auto arrival = std::make_shared<Arrival>(std::move(reply));
  arrival->open += states.size();
  arrival->states = states;
  bring_model(Reply(sequence, SteadyNow(), [this, arrival](proto::WorkerOutcome outcome) {
    arrival->model = std::move(outcome);
    Close(arrival);
  }));
  if (arrival->model.code() != 0) {  // refused at once
    arrival->open = 1;
    return Close(arrival);
  }
  for (std::size_t i = 0; i < states.size(); ++i) {
    Fetch(channel, states[i], std::make_shared<proto::StateImage>(order.states(static_cast<int>(i))),
          deadline, arrival);
  }
}

void StateHandler::Fetch(const ChannelPtr& channel, const StatePtr& state,
                         std::shared_ptr<proto::StateImage> image, std::optional<Time> deadline,
                         const ArrivalPtr& arrival) {
  const bool inlined = std::none_of(image->tensors().begin(), image->tensors().end(),
                                    [](const proto::Tensor& tensor) { return tensor.data().has_arena(); });
  std::vector<transport::TensorData> data(static_cast<std::size_t>(image->tensors_size()));
  if (inlined) return CopyIn(state, std::move(image), std::move(data), deadline, arrival);
  fetcher_.Post([this, channel, state, image, data = std::move(data), deadline, arrival]() mutable {
    absl::Status failed;
    for (int i = 0; i < image->tensors_size() && failed.ok(); ++i) {
      if (!image->tensors(i).data().has_arena()) continue;
      absl::StatusOr<transport::TensorData> fetched = channel->FetchHere(image->tensors(i).data());
      failed = fetched.status();
      if (fetched.ok()) data[static_cast<std::size_t>(i)] = *std::move(fetched);
    }
    queue_.Post([this, state, image, data, deadline, arrival, failed] {
      failed.ok() ? CopyIn(state, image, data, deadline, arrival) : Landed(state, failed, arrival);
    });
  });
}

void StateHandler::CopyIn(const StatePtr& state, std::shared_ptr<proto::StateImage> image,
                          std::vector<transport::TensorData> data, std::optional<Time> deadline,
                          const ArrivalPtr& arrival) {
  TransferRequest transfer;
  transfer.order = arrival->reply.sequence();
  transfer.deadline = deadline;
  // Copies in only read their source.
  const auto add = [&](DeviceRange to, const std::byte* from) {
    if (to.size > Bytes(0)) transfer.pieces.push_back({to, const_cast<std::byte*>(from)});
    bytes_in_ += to.size;
  };
  for (int i = 0; i < image->tensors_size(); ++i) {
    const proto::Tensor& tensor = image->tensors(i);
    const DeviceRange now = state->tensors[static_cast<std::size_t>(i)].now;
    if (tensor.data().place_case() != proto::TensorRef::PLACE_NOT_SET) {
      add(now, BytesOf(tensor, data[static_cast<std::size_t>(i)]).data());
      continue;
    }
    for (Bytes at; at < now.size; at += kZeros)
      add(now.Part(at, std::min(kZeros, now.size - at)), zeros_.data());
  }
  if (transfer.pieces.empty()) return Landed(state, absl::OkStatus(), arrival);
  transfer.done = [this, state, image, data, arrival](const Completion& completion) {
    queue_.Post([this, state, arrival, status = completion.status] { Landed(state, status, arrival); });
  };
  links_.in().Put(std::move(transfer));
}

void StateHandler::Landed(const StatePtr& state, const absl::Status& status, const ArrivalPtr& arrival) {
  if (status.ok()) {
    charge_(state->meter, state->copied());
    residency_.states().Arrived(*state);
  } else {
    arrival->failed = status;
    residency_.states().Fail(state,
                             absl::Status(status.code(), absl::StrCat("the state of '", state->function,
                                                                      "' did not come: ", status.message())));
  }
  Close(arrival);
  changed_();
}

// States are of no use without their model, and nothing is copied to them any more. Runs that wait for them
// learn of the model; a write-back that waits is let through.
void StateHandler::FailAll(const std::vector<StatePtr>& states, const absl::Status& why) {
  for (const StatePtr& state : states) {
    const bool written =
        std::ranges::any_of(state->line, [](const auto& user) { return user.ready != nullptr; });
    const bool replaced = residency_.states().Find(state->function) != state;
    if (!replaced && !written) residency_.states().Fail(state, why);
  }
}

void StateHandler::Close(const ArrivalPtr& arrival) {
  if (--arrival->open > 0) return;
  if (arrival->model.code() != 0) {
    FailAll(arrival->states,
            {static_cast<absl::StatusCode>(arrival->model.code()), arrival->model.message()});
  }
  const bool states_failed = arrival->model.code() == 0 && !arrival->failed.ok();
  states_failed ? arrival->reply.Fail(arrival->failed) : arrival->reply.Done(std::move(arrival->model));
}

void StateHandler::WriteBack(ChannelPtr channel, const proto::WriteBackOrder& order, Reply reply) {
  if (order.drop()) {
    DropNamed(order);
    return reply.Done({});
  }
  const StatePtr named = order.prefix() ? nullptr : residency_.states().Find(order.function());
  const bool here = named != nullptr && !named->coming && named->digest == order.digest();
  if (!order.prefix() && !order.function().empty() && !here) {
    return reply.Fail(absl::NotFoundError(absl::StrCat("the state of '", order.function(),
                                                       "' is not on this device: nothing is written back")));
  }
  // Without a function and a prefix all of the model's names begin so.
  const std::string prefix = order.prefix() ? order.function() : "";
  const auto states =
      here ? std::vector<StatePtr>{named} : Changed(residency_.states().Of(order.digest(), prefix));
  auto answer = std::make_shared<Reply>(std::move(reply));
  Write(std::move(channel), states, here, [answer](const absl::Status& status, proto::StateOutcome written) {
    proto::WorkerOutcome outcome;
    *outcome.mutable_state() = std::move(written);
    status.ok() ? answer->Done(std::move(outcome)) : answer->Fail(status, std::move(outcome));
  });
}

// What is on its way in stays: its bytes are still being copied there.
void StateHandler::DropNamed(const proto::WriteBackOrder& order) {
  StateTable& table = residency_.states();
  std::vector<StatePtr> states = table.Of(order.digest(), order.function());
  std::erase_if(states, [&](const StatePtr& state) {
    return state->coming || (!order.prefix() && state->function != order.function());
  });
  for (const StatePtr& state : states) table.DropInTurn(state);
  changed_();
}

// A state that a run waits for may change before the run gets it.
std::vector<StateHandler::StatePtr> StateHandler::Changed(std::vector<StatePtr> states) {
  std::erase_if(states, [](const StatePtr& state) {
    return state->coming || (!state->changed && state->line.empty());
  });
  return states;
}

void StateHandler::Evict(ChannelPtr channel, const std::string& digest, Reply reply) {
  if (residency_.states().Of(digest).empty()) return residency_.Evict(digest, std::move(reply));
  if (const absl::Status may = residency_.MayEvict(digest); !may.ok()) return reply.Fail(may);
  auto answer = std::make_shared<Reply>(std::move(reply));
  Write(
      std::move(channel), Changed(residency_.states().Of(digest)), false,
      [this, answer, digest](const absl::Status& status, proto::StateOutcome states) {
        proto::WorkerOutcome outcome;
        *outcome.mutable_state() = std::move(states);
        if (!status.ok()) return answer->Fail(status, std::move(outcome));
        // A run may have come meanwhile, and then the model stays.
        const std::vector<StatePtr> all = residency_.states().Of(digest);
        const bool used =
            std::any_of(all.begin(), all.end(), [](const StatePtr& state) { return !state->line.empty(); });
        if (used) {
          return answer->Fail(absl::FailedPreconditionError(absl::StrCat("runs use the state of model ",
                                                                         digest, ": evict it afterwards")),
                              std::move(outcome));
        }
        residency_.Evict(
            digest,
            Reply(answer->sequence(), SteadyNow(),
                  [this, answer, digest, outcome](const proto::WorkerOutcome& evicted) {
                    if (evicted.code() == 0) {
                      residency_.states().Drop(digest);
                      return answer->Done(outcome);
                    }
                    answer->Fail({static_cast<absl::StatusCode>(evicted.code()), evicted.message()}, outcome);
                  }));
      });
}

void StateHandler::Write(ChannelPtr channel, const std::vector<StatePtr>& states, bool unchanged,
                         std::function<void(absl::Status, proto::StateOutcome)> then) {
  auto writing = std::make_shared<Writing>();
  writing->channel = std::move(channel);
  writing->then = std::move(then);
  writing->life = life_;
  writing->unchanged = unchanged;
  for (const StatePtr& state : states) {
    ++writing->open;
    // The write-back waits behind the runs that wait for it already.
    const std::uint64_t ticket = residency_.states().TicketOfOurs();
    residency_.states().Join(*state,
                             {ticket, [this, state, ticket, writing] { CopyOut(state, ticket, writing); }});
  }
  Close(writing);
}

absl::StatusOr<std::vector<transport::Reservation>> StateHandler::Reserve(const DeviceState& state,
                                                                          Writing& writing) const {
  std::vector<transport::Reservation> rooms;
  for (const DeviceState::Tensor& tensor : state.tensors) {
    const Bytes size = tensor.now.size;
    const bool in_message =
        size <= transport::kInlineLimit && writing.inlined + size <= limits_.inline_outputs;
    if (in_message) writing.inlined += size;
    TROUPE_ASSIGN_OR_RETURN(
        auto room, in_message ? writing.channel->Reserve(size) : writing.channel->ReserveSlice(size));
    rooms.push_back(std::move(room));
  }
  return rooms;
}

void StateHandler::CopyOut(const StatePtr& state, std::uint64_t ticket, const WritingPtr& writing) {
  auto rooms = std::make_shared<std::vector<transport::Reservation>>();
  if (!state->changed && !writing->unchanged)
    return Written(state, ticket, absl::OkStatus(), *rooms, writing);
  auto reserved = Reserve(*state, *writing);
  if (!reserved.ok()) return Written(state, ticket, reserved.status(), *rooms, writing);
  *rooms = *std::move(reserved);
  TransferRequest transfer;
  for (std::size_t i = 0; i < rooms->size(); ++i) {
    const DeviceRange now = state->tensors[i].now;
    bytes_out_ += now.size;
    if (now.size > Bytes(0)) transfer.pieces.push_back({now, (*rooms)[i].bytes().data()});
  }
  if (transfer.pieces.empty()) return Written(state, ticket, absl::OkStatus(), *rooms, writing);
  transfer.done = [this, state, ticket, rooms, writing](const Completion& completion) {
    queue_.Post([this, state, ticket, rooms, writing, status = completion.status] {
      Written(state, ticket, status, *rooms, writing);
    });
  };
  links_.out().Put(std::move(transfer));
}

void StateHandler::Written(const StatePtr& state, std::uint64_t ticket, const absl::Status& status,
                           std::vector<transport::Reservation>& rooms, const WritingPtr& writing) {
  if (!status.ok()) {
    writing->failed = absl::Status(status.code(), absl::StrCat("the state of '", state->function,
                                                               "' was not written back: ", status.message()));
  } else if (!rooms.empty()) {
    charge_(state->meter, state->copied());
    proto::StateImage& image = *writing->outcome.add_states();
    image.set_function(state->function);
    image.set_runs(state->runs);
    for (std::size_t i = 0; i < rooms.size(); ++i) {
      proto::Tensor& tensor = *image.add_tensors();
      *tensor.mutable_spec() = state->tensors[i].spec;
      *tensor.mutable_data() = rooms[i].Commit();
    }
    // Another daemon has come meanwhile: it asks again.
    if (writing->life == life_) state->changed = false;
  }
  residency_.states().Leave(*state, ticket);
  Close(writing);
  changed_();
}

void StateHandler::Close(const WritingPtr& writing) {
  if (--writing->open == 0) writing->then(writing->failed, std::move(writing->outcome));
}

void StateHandler::Abandon() {
  ++life_;
  residency_.states().MarkAllChanged();
}

}  // namespace troupe::gpu
