#include "node/usage/metering.hpp"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "node/parts.hpp"
#include "proto/usage_amount.hpp"
#include "proto/usage_key.hpp"

namespace troupe::node {

namespace {

// A statement that was not stored yet is told again so often.
constexpr Duration kRepeat = std::chrono::seconds(1);

std::int64_t Milliseconds(Time time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
}

}  // namespace

Metering::Metering(Parts& parts, const NodeSettings& settings) : parts_(parts) {
  if (settings.meters) ledger_.emplace(settings.usage, settings.usage_is_new);
}

void Metering::On(const Started&) {
  if (!ledger_) return;
  last_read_ = parts_.out.now();
  last_told_ = parts_.out.now() - kRepeat;
  parts_.out.Add(ReadMeters{});
}

void Metering::OnTimer() {
  parts_.out.Add(ReadMeters{});
}

void Metering::On(const MetersRead& event) {
  if (!ledger_) return;
  parts_.out.WakeAfter(Timer::kMeters, parts_.settings.read_meters_every);
  if (!event.pages.ok()) return;  // a page that was not seen would count as gone
  const auto now = parts_.out.now();
  unix_ns_ = event.unix_ns;
  const auto day = proto::DayOf(event.unix_ns);
  for (const auto& doubt : ledger_->Read(*event.pages, now - last_read_, day))
    parts_.out.Note("usage-refused", doubt);
  CountHost(day);
  last_read_ = now;
  Save();
}

// A copy is paid for by the functions of its model, in equal parts: what the region has beyond the copies, and what
// lies free in it, is not counted for any function.
void Metering::CountHost(std::int64_t day) {
  const auto elapsed = static_cast<std::uint64_t>(Milliseconds(parts_.out.now()) - Milliseconds(last_read_));
  if (elapsed == 0) return;
  const auto& functions = parts_.membership.view().functions();
  parts_.models.held().ForEach([&](const ModelNumber& copy, const HeldModel& model) {
    if (!parts_.copies.Usable(copy)) return;
    const auto kib = (model.copy.model().length() + model.copy.weights().length() + 1023) / 1024;
    std::map<std::string, const proto::FunctionRecord*>
        payers;  // by name; of each function its newest version
    if (const auto use = functions.models().find(copy->digest.text()); use != functions.models().end())
      for (const auto& [name, version] : use->second.functions)
        payers[name] = &functions.VersionsOf(name)->at(version);
    if (payers.empty()) payers[model.function.key().name()] = &model.function;
    const auto total = kib * elapsed;
    auto rest = total % payers.size();
    for (const auto& [name, record] : payers) {
      ledger_->AddHost(*record, total / payers.size() + (rest > 0 ? 1 : 0), day);
      rest -= rest > 0 ? 1 : 0;
    }
  });
}

void Metering::Save() {
  if (auto file = ledger_->TakeFile()) parts_.out.Add(SaveUsage{*std::move(file)});
}

void Metering::On(const UsageSaved& event) {
  if (!ledger_) return;
  const bool failed = !event.status.ok();
  if (failed && !std::exchange(failed_, failed))
    parts_.out.Note(
        "usage-not-saved",
        absl::StrCat("what functions used could not be written to disk, and is told to the manager when "
                     "it is: ",
                     event.status.message()));
  failed_ = failed;
  for (auto& page : ledger_->Saved(event.status.ok())) parts_.out.Add(DropMeter{std::move(page)});
}

void Metering::Report(std::uint64_t stored, proto::MemberReport& report) {
  if (!ledger_) return;
  ledger_->Stored(stored);
  report.set_usage_ledger(ledger_->name());
  report.set_unix_ns(unix_ns_);
  const auto* open = ledger_->Open();
  if (open == nullptr || parts_.out.now() - last_told_ < kRepeat) return;
  last_told_ = parts_.out.now();
  *report.mutable_usage() = *open;
}

void Metering::Describe(proto::NodeDescription& node) const {
  if (!ledger_) return;
  for (const auto& [name, total] : ledger_->totals()) *node.add_usage() = total;
}

std::string Metering::PayerOf(const HeldRequest& request) const {
  if (request.trial) return {};
  return PayerOf(parts_.models.FunctionOf(request.message), request.message.function().name());
}

std::string Metering::PayerOf(const proto::FunctionRecord* function, const std::string& name) const {
  if (!ledger_) return {};
  return proto::UsageKey(function == nullptr ? std::string() : function->tenant(), name);
}

}  // namespace troupe::node
