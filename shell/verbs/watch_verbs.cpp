// `top` and `events`: looking on.
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <optional>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/nearest.hpp"
#include "base/status.hpp"
#include "proto/event_kinds.hpp"
#include "shell/exit_code.hpp"
#include "shell/session.hpp"
#include "shell/text/cat.hpp"
#include "shell/top.hpp"
#include "shell/verbs/all_verbs.hpp"
#include "shell/views.hpp"

namespace troupe::shell {

namespace {

constexpr Duration kTopPeriod = std::chrono::seconds(1);
constexpr Duration kFollowPeriod = std::chrono::milliseconds(500);
constexpr double kMostEvents = 100000;
// Frequent kinds of events are shown only when they are asked for.
constexpr const char* kSwapKind = "swap";
constexpr const char* kEveryKind = "all";

absl::StatusOr<TopSample> TakeSample(Session& session) {
  TopSample sample;
  proto::AdminRequest request;
  request.mutable_cluster_status();
  TROUPE_ASSIGN_OR_RETURN(const auto status, session.Ask(request));
  request.mutable_list_gpus();
  TROUPE_ASSIGN_OR_RETURN(sample.gpus, session.Ask(request));
  sample.at = session.console().Now();
  request.mutable_list_functions();
  TROUPE_ASSIGN_OR_RETURN(sample.functions, session.Ask(request));
  sample.status = status.status();
  return sample;
}

// What a program gets: one reply per sample, of the parts that change.
void PrintSampleJson(Session& session, const TopSample& sample) {
  proto::AdminReply reply = sample.functions;
  *reply.mutable_status() = sample.status;
  *reply.mutable_gpus() = sample.gpus.gpus();
  session.PrintJson(reply);
  session.out() << std::flush;
}

void Draw(Session& session, const std::string& frame, bool on_screen) {
  if (!on_screen) {
    session.out() << frame << '\n' << std::flush;
    return;
  }
  // Each line clears its rest, so that nothing flickers.
  session.out() << "\x1b[H" << absl::StrReplaceAll(frame, {{"\n", "\x1b[K\n"}}) << "\x1b[J" << std::flush;
}

absl::Status Top(Session& session, const Arguments& arguments) {
  auto& console = session.console();
  const double count = arguments.NumberOr("--count", 0);
  const Duration period = arguments.DurationOr("--every", kTopPeriod);
  const bool on_screen = console.out_is_terminal() && console.in_is_terminal() && !session.json();
  if (on_screen) console.BeginScreen();
  const absl::Cleanup back = [&] {
    if (on_screen) console.EndScreen();
  };
  std::optional<TopSample> before;
  for (double shown = 1;; ++shown) {
    auto sample = TakeSample(session);
    if (ExitCodeOf(sample.status()) == ExitCode::kInterrupted)
      return console.ClearInterrupt(), absl::OkStatus();
    // A manager that is away for a while may come back; a manager that was never reached is an error.
    if (!sample.ok() && (!before || !on_screen)) return sample.status();
    const Screen screen{static_cast<std::size_t>(std::max(20, console.columns())),
                        static_cast<std::size_t>(std::max(5, console.rows() - 2))};
    if (!sample.ok()) {
      Draw(session,
           Cat("no answer: ", Shorten(Printable(FromAbsl(sample.status().message())), screen.columns - 12),
               "\n"),
           true);
    } else if (session.json()) {
      PrintSampleJson(session, *sample);
    } else {
      auto frame = RenderTop(*sample, before ? &*before : nullptr, on_screen ? screen : Screen{1000, 100000},
                             session.style());
      if (on_screen) Append(&frame, session.style().Paint("q or Ctrl-C leaves", Colour::kDim));
      Draw(session, frame, on_screen);
    }
    if (sample.ok()) before = std::move(*sample);
    if (count > 0 && shown >= count) return absl::OkStatus();
    switch (console.Sleep(period)) {
      case Console::Wake::kTimeout:
        break;
      default:
        console.ClearInterrupt();
        return absl::OkStatus();
    }
  }
}

void PrintEvents(Session& session, const proto::AdminReply& reply) {
  for (const auto& event : reply.events()) session.out() << EventLine(event, session.style());
  session.out() << std::flush;
}

// While following, a program reads one event per line.
void PrintEventsJson(Session& session, const proto::AdminReply& reply) {
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  for (const auto& event : reply.events()) {
    std::string text;
    if (google::protobuf::util::MessageToJsonString(event, &text, options).ok())
      session.out() << text << '\n';
  }
  session.out() << std::flush;
}

bool IsShown(const proto::Event& event, const std::string& wanted) {
  return wanted.empty() ? event.kind() != kSwapKind : wanted == kEveryKind || event.kind() == wanted;
}

absl::Status CheckKind(const std::string& wanted) {
  if (wanted.empty() || wanted == kEveryKind || proto::IsEventKind(wanted)) return absl::OkStatus();
  const std::vector<std::string> kinds(proto::kEventKinds.begin(), proto::kEventKinds.end());
  return UsageError(Cat("there are no events of kind '", Printable(wanted), "'", DidYouMean(wanted, kinds),
                        "; the kinds are ", kEveryKind, ", ", absl::StrJoin(kinds, ", ")));
}

// Leaves the newest `limit` (0: all) of the wanted kind.
void KeepShown(proto::AdminReply& reply, const std::string& wanted, std::size_t limit) {
  auto& events = *reply.mutable_events();
  events.erase(std::remove_if(events.begin(), events.end(),
                              [&](const auto& event) { return !IsShown(event, wanted); }),
               events.end());
  const auto found = static_cast<std::size_t>(events.size());
  if (limit > 0 && found > limit) events.DeleteSubrange(0, static_cast<int>(found - limit));
}

// Of all that there is: events are numbered from 1 without gaps.
void PrintGone(Session& session, const proto::AdminReply& everything) {
  if (everything.events().empty()) return;
  const auto gone =
      everything.events().rbegin()->sequence() - static_cast<std::uint64_t>(everything.events_size());
  if (gone > 0)
    session.out() << session.style().Paint(Cat(std::to_string(gone), " older events are not kept any more"),
                                           Colour::kDim)
                  << '\n';
}

absl::Status Events(Session& session, const Arguments& arguments) {
  const bool follow = arguments.Has("--follow");
  const auto kind = arguments.Text("--kind");
  TROUPE_RETURN_IF_ERROR(CheckKind(kind));
  const auto limit = static_cast<std::size_t>(std::min(arguments.NumberOr("--limit", 20), kMostEvents));
  proto::AdminRequest request;
  // Which kinds are wanted is known here alone: the manager gives them all.
  request.mutable_list_events()->set_limit(kind == kEveryKind ? static_cast<std::uint32_t>(limit) : 0);
  std::uint64_t last = 0;
  for (bool first = true;; first = false) {
    TROUPE_ASSIGN_OR_RETURN(auto reply, session.Ask(request));
    for (const auto& event : reply.events()) last = std::max(last, event.sequence());
    if (first && limit == 0 && !session.json()) PrintGone(session, reply);
    KeepShown(reply, kind, first ? limit : 0);
    if (session.json() && !follow) return session.PrintJson(reply), absl::OkStatus();
    session.json() ? PrintEventsJson(session, reply) : PrintEvents(session, reply);
    if (!follow) {
      if (reply.events().empty()) session.out() << "no events\n";
      return absl::OkStatus();
    }
    if (session.console().Sleep(kFollowPeriod) != Console::Wake::kTimeout) {
      session.console().ClearInterrupt();
      if (session.console().in_is_terminal()) session.console().err() << std::endl;  // behind the echoed ^C
      return absl::OkStatus();
    }
    // Before the first event there is nothing to be after; a limit with 0 would ask for the newest again.
    request.mutable_list_events()->set_after(last);
    request.mutable_list_events()->set_limit(static_cast<std::uint32_t>(kMostEvents));
  }
}

}  // namespace

std::vector<Verb> WatchVerbs() {
  return {
      {.name = "top",
       .summary = "The cluster live: GPUs, nodes, functions",
       .arguments = {{.name = "--every", .kind = Kind::kDuration, .help = "time between two looks (1s)"},
                     {.name = "--count",
                      .kind = Kind::kNumber,
                      .help = "looks until it ends; 0: until q or Ctrl-C"}},
       .run = Top},
      {.name = "events",
       .summary = "What happened: members, workers, functions",
       .arguments = {{.name = "--follow", .kind = Kind::kFlag, .help = "wait for more, until Ctrl-C"},
                     {.name = "--kind",
                      .help = "only of this kind, such as swap or worker-down; all: of every kind; else all "
                              "but swaps"},
                     {.name = "--limit",
                      .kind = Kind::kNumber,
                      .help = "the newest so many (20); 0: all that are kept"}},
       .run = Events},
  };
}

}  // namespace troupe::shell
