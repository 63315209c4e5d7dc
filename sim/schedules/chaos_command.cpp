#include "sim/schedules/chaos_command.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <mutex>
#include <ostream>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.hpp"

namespace troupe::sim {

namespace {

std::string Replay(std::uint64_t seed) {
  return absl::StrCat("troupe chaos-sim --seed ", seed);
}

// A schedule that ends the process says which one it was.
thread_local std::array<char, 64> last_words{};

extern "C" void OnAbort(int signal) {
  const auto written = ::write(STDERR_FILENO, last_words.data(), std::strlen(last_words.data()));
  static_cast<void>(written);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

struct Totals {
  FaultCounts fired{};
  std::uint64_t schedules = 0, broken = 0, requests = 0, served = 0, commands = 0, commits = 0, runs = 0;
  std::uint64_t stale = 0, undecided = 0, resumed = 0, repeated = 0;
  Duration slowest{};
  void Add(const ScheduleResult& result) {
    for (std::size_t i = 0; i < fired.size(); ++i) fired[i] += result.fired[i];
    ++schedules;
    broken += result.broken.empty() ? 0 : 1;
    requests += result.requests;
    served += result.served;
    commands += result.commands;
    commits += result.commits;
    runs += result.runs;
    stale += result.stale;
    undecided += result.undecided;
    resumed += result.resumed;
    repeated += result.repeated;
    slowest = std::max(slowest, result.recovered);
  }
};

void PrintBroken(std::ostream& out, const ScheduleResult& result) {
  out << "FAILED seed " << result.seed << ": " << result.what << "\n";
  for (const auto& step : result.last_steps) out << "    " << step << "\n";
  for (const auto& broken : result.broken) out << "  " << broken.checker << ": " << broken.line << "\n";
  out << "  replay: " << Replay(result.seed) << std::endl;  // a user who follows a long run sees it at once
}

std::vector<std::string> NamesOfFaults() {
  std::vector<std::string> names;
  for (const auto kind : AllFaultKinds()) names.emplace_back(Name(kind));
  names.emplace_back("torn-record");
  return names;
}

void PrintTotals(std::ostream& out, const Totals& totals) {
  out << absl::StrFormat(
      "%d schedules: %d requests, %d served; %d operators' commands; %d commits; %d runs\n", totals.schedules,
      totals.requests, totals.served, totals.commands, totals.commits, totals.runs);
  out << absl::StrFormat("slowest return to health: %s; stale requests: %d; histories left undecided: %d\n",
                         FormatDuration(totals.slowest), totals.stale, totals.undecided);
  out << absl::StrFormat(
      "runs that went on behind committed steps: %d; answers given again for their key: %d\n", totals.resumed,
      totals.repeated);
  out << "faults that fired:\n";
  const auto names = NamesOfFaults();
  for (std::size_t i = 0; i < names.size(); ++i)
    out << absl::StrFormat("  %-18s %d\n", names[i], totals.fired[i]);
}

class Schedules {
 public:
  Schedules(const ChaosCommand& command, Planted planted, std::ostream& out)
      : command_(command), planted_(planted), out_(out), next_(command.from) {}

  Totals Go() {
    std::signal(SIGABRT, OnAbort);
    {
      std::vector<std::jthread> pool;
      for (unsigned i = 1; i < command_.jobs; ++i) pool.emplace_back([this] { Work(); });
      Work();
    }
    return totals_;
  }

 private:
  void Work() {
    for (;;) {
      const auto seed = next_++;
      if (seed >= command_.from + command_.schedules) return;
      if (command_.interrupted && command_.interrupted()) return;
      absl::SNPrintF(last_words.data(), last_words.size(), "\nreplay: troupe chaos-sim --seed %d\n", seed);
      const auto result = RunSchedule({.seed = seed, .planted = planted_, .steps = command_.steps});
      const std::scoped_lock lock(mutex_);
      totals_.Add(result);
      if (!result.broken.empty() && planted_ == Planted::kNone) PrintBroken(out_, result);
      if (!result.broken.empty() && planted_ != Planted::kNone && totals_.broken == 1)
        out_ << "found with seed " << seed << ": " << result.broken[0].checker << ": "
             << result.broken[0].line << "\n";
    }
  }

  const ChaosCommand& command_;
  const Planted planted_;
  std::ostream& out_;
  std::atomic<std::uint64_t> next_;
  std::mutex mutex_;
  Totals totals_;
};

}  // namespace

absl::StatusOr<bool> RunChaos(const ChaosCommand& command, std::ostream& out) {
  TROUPE_ASSIGN_OR_RETURN(const auto planted, FindPlanted(command.planted));
  ChaosCommand all = command;
  if (command.seed) {
    all.from = *command.seed;
    all.schedules = 1;
  }
  const auto totals = Schedules(all, planted, out).Go();
  PrintTotals(out, totals);
  if (planted != Planted::kNone) {
    if (totals.broken == 0) out << "the planted error was not found\n";
    return totals.broken > 0;
  }
  bool good = totals.broken == 0;
  const auto names = NamesOfFaults();
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (totals.schedules < kEnoughForAllFaults || totals.fired[i] > 0) continue;
    out << "FAILED: the fault " << names[i] << " never fired\n";
    good = false;
  }
  return good;
}

}  // namespace troupe::sim
