#include "sim/chaos/node_meters.hpp"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/usage_key.hpp"

namespace troupe::sim {

namespace {

void AddTo(UsageSum& sum, const proto::UsageAmount& more) {
  sum.gpu_ns += more.gpu_ns();
  sum.runs += more.runs();
  sum.bytes_moved += more.bytes_moved();
}
void AddTo(UsageSum& sum, const UsageSum& more) {
  sum.gpu_ns += more.gpu_ns;
  sum.runs += more.runs;
  sum.bytes_moved += more.bytes_moved;
}
void AddTo(UsageSum& sum, const proto::MeterCount& more) {
  AddTo(sum, UsageSum{more.gpu_ns(), more.runs(), more.bytes_moved()});
}

std::string PayerOf(const proto::UsageAmount& amount) {
  return proto::UsageKey(amount.tenant(), amount.function());
}

}  // namespace

void NodeMeters::NewLedger(const std::string& name, Machine& machine) {
  machine.file = proto::NodeUsage();
  machine.file.set_ledger(absl::StrCat(name, "-ledger-", ++machine.ledgers));
}

void NodeMeters::Begin(const std::string& name, World::NodePlan& plan) {
  const auto machine = machines_[name] = std::make_shared<Machine>();
  NewLedger(name, *machine);
  plan.meters = machine->meters;
  plan.options.usage = machine->file;
  plan.options.usage_is_new = true;
  const Duration ahead = machines_.size() == 2 ? Duration(std::chrono::hours(1)) : Duration();
  auto& access = plan.options.metering;
  access.read = [this, name,
                 machine](const std::function<void(absl::StatusOr<actors::MeterAccess::Pages>)>& done) {
    std::set<std::string> open;
    for (const auto& worker : world_.node(name).workers) open.insert(worker->life.page);
    done(machine->meters->Read(open));
  };
  access.drop = [machine](const std::string& page) { machine->meters->Drop(page); };
  access.save = [machine](proto::NodeUsage usage, const std::function<void(absl::Status)>& done) {
    machine->file = std::move(usage);
    done(absl::OkStatus());
  };
  access.unix_now = [this, ahead] { return (world_.Now() + ahead).time_since_epoch().count(); };
}

void NodeMeters::LosePages(Machine& machine) {
  std::map<std::string, std::map<std::string, proto::MeterCount>> read;
  for (const auto& page : machine.file.pages())
    for (const auto& count : page.read().counts()) read[page.read().page()][count.key()] = count;
  for (const auto& [name, counts] : machine.meters->pages()) {
    for (const auto& [key, count] : counts) {
      const auto& before = read[name][key];
      AddTo(machine.lost[key], UsageSum{count.gpu_ns() - before.gpu_ns(), count.runs() - before.runs(),
                                        count.bytes_moved() - before.bytes_moved()});
    }
  }
  machine.meters->LosePages();
}

void NodeMeters::LoseFile(Machine& machine) {
  for (const auto& amount : machine.file.gathered()) AddTo(machine.lost[PayerOf(amount)], amount);
  // The manager may have stored it, or may yet.
  for (const auto& amount : machine.file.open().amounts()) AddTo(machine.unsure[PayerOf(amount)], amount);
}

void NodeMeters::Restart(const std::string& name, World::Kept kept) {
  auto& machine = *machines_.at(name);
  if (kept != World::Kept::kWorkers) LosePages(machine);
  const bool fresh = kept == World::Kept::kNothing;
  if (fresh) {
    LoseFile(machine);
    NewLedger(name, machine);
  }
  auto found = machine.file;
  if (forgets_) found.clear_pages();
  world_.AdjustNode(name, [&](World::NodePlan& plan) {
    plan.options.usage = found;
    plan.options.usage_is_new = fresh;
  });
}

std::map<std::string, ExpectedUsage> NodeMeters::Expected() const {
  std::map<std::string, ExpectedUsage> expected;
  for (const auto& [name, machine] : machines_) {
    for (const auto& [key, count] : machine->meters->counted()) AddTo(expected[key].counted, count);
    for (const auto& [key, sum] : machine->lost) AddTo(expected[key].lost, sum);
    for (const auto& [key, sum] : machine->unsure) AddTo(expected[key].unsure, sum);
  }
  return expected;
}

}  // namespace troupe::sim
