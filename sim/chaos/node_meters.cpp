#include "sim/chaos/node_meters.hpp"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/usage_amount.hpp"
#include "proto/usage_key.hpp"

namespace troupe::sim {

namespace {

// What was counted between two looks.
proto::UsageAmount AmountOf(const proto::MeterCount& now, const proto::MeterCount& before = {}) {
  proto::UsageAmount amount;
  amount.set_gpu_ns(now.gpu_ns() - before.gpu_ns());
  amount.set_runs(now.runs() - before.runs());
  amount.set_bytes_moved(now.bytes_moved() - before.bytes_moved());
  return amount;
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
    for (const auto& [key, count] : counts) proto::AddTo(machine.lost[key], AmountOf(count, read[name][key]));
  }
  machine.meters->LosePages();
}

void NodeMeters::LoseFile(Machine& machine) {
  for (const auto& amount : machine.file.gathered()) proto::AddTo(machine.lost[PayerOf(amount)], amount);
  // The manager may have stored it, or may yet.
  for (const auto& amount : machine.file.open().amounts())
    proto::AddTo(machine.unsure[PayerOf(amount)], amount);
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
    for (const auto& [key, count] : machine->meters->counted())
      proto::AddTo(expected[key].counted, AmountOf(count));
    for (const auto& [key, sum] : machine->lost) proto::AddTo(expected[key].lost, sum);
    for (const auto& [key, sum] : machine->unsure) proto::AddTo(expected[key].unsure, sum);
  }
  return expected;
}

}  // namespace troupe::sim
