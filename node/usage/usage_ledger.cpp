#include "node/usage/usage_ledger.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/usage_amount.hpp"
#include "proto/usage_key.hpp"

namespace troupe::node {

namespace {

// Functions and days of one statement; the others wait for the next one.
constexpr int kMostAmounts = 2000;
// Names in the totals of the metrics; what is used beyond is counted together, under no name.
constexpr std::size_t kMostTotals = 1000;
// A worker is not trusted: it cannot have computed more than this many runs at a time. A run is counted at its
// end, and a page may be older than this ledger's memory of it, so that some time is allowed beyond its age.
constexpr std::uint64_t kRunsAtATime = 64;
constexpr Duration kAllowance = std::chrono::minutes(10);

bool IsEmpty(const proto::UsageAmount& amount) {
  return amount.gpu_ns() == 0 && amount.runs() == 0 && amount.bytes_moved() == 0 && amount.host_kib_ms() == 0;
}

std::uint64_t Growth(std::uint64_t before, std::uint64_t now) {
  return now > before ? now - before : 0;
}

std::uint64_t Limit(Duration age) {
  return static_cast<std::uint64_t>((age + kAllowance).count()) * kRunsAtATime;
}

}  // namespace

UsageLedger::UsageLedger(proto::NodeUsage kept, bool fresh)
    : file_(std::move(kept)), fresh_(fresh), changed_(fresh) {
  for (const auto& amount : file_.gathered()) Gather(amount);
  for (const auto& kept_page : file_.pages()) {
    auto& page = pages_[kept_page.read().page()];
    page.age = Duration(kept_page.age_ns());
    for (const auto& count : kept_page.read().counts()) page.counts[count.key()] = count;
  }
  file_.clear_gathered();
  file_.clear_pages();
  saved_ = file_.sequence();
}

std::vector<std::string> UsageLedger::Read(const std::vector<proto::MeterReading>& pages, Duration elapsed,
                                           std::int64_t day) {
  std::vector<std::string> doubts;
  std::set<std::string> there;
  for (const auto& page : pages) {
    there.insert(page.page());
    if (!page.unread()) ReadPage(page, elapsed, day, doubts);
  }
  // A page that is gone was removed by this node, or went with the machine's memory.
  changed_ |= std::erase_if(pages_, [&](const auto& page) { return !there.contains(page.first); }) > 0;
  fresh_ = false;
  return doubts;
}

void UsageLedger::ReadPage(const proto::MeterReading& reading, Duration elapsed, std::int64_t day,
                           std::vector<std::string>& doubts) {
  const auto [known, is_new] = pages_.try_emplace(reading.page());
  auto& page = known->second;
  changed_ |= is_new;
  page.age += elapsed;
  page.closed = reading.closed();
  std::uint64_t counted = 0;
  for (const auto& [key, count] : page.counts) counted += count.gpu_ns();
  for (const auto& count : reading.counts()) {
    auto& before = page.counts[count.key()];
    proto::UsageAmount more;
    std::tie(*more.mutable_tenant(), *more.mutable_function()) = proto::SplitUsageKey(count.key());
    more.set_day(day);
    auto gpu = Growth(before.gpu_ns(), count.gpu_ns());
    const auto allowed = Growth(counted, Limit(page.age));
    if (gpu > allowed && !fresh_ && !std::exchange(page.doubted, true))
      doubts.push_back(absl::StrCat("the worker of page ", reading.page(), " counted ", gpu,
                                    " ns of GPU time for '", more.function(), "', and ", allowed,
                                    " ns is the most that it can have computed; the rest is not charged"));
    gpu = std::min(gpu, allowed);
    counted += gpu;
    more.set_gpu_ns(gpu);
    more.set_runs(Growth(before.runs(), count.runs()));
    more.set_bytes_moved(Growth(before.bytes_moved(), count.bytes_moved()));
    // A count that has fallen is not believed, and what it grows by afterwards is not charged again.
    before.set_key(count.key());
    before.set_gpu_ns(std::max(before.gpu_ns(), count.gpu_ns()));
    before.set_runs(std::max(before.runs(), count.runs()));
    before.set_bytes_moved(std::max(before.bytes_moved(), count.bytes_moved()));
    if (!fresh_) Add(more);
  }
}

void UsageLedger::AddHost(const proto::FunctionRecord& function, std::uint64_t kib_ms, std::int64_t day) {
  proto::UsageAmount more;
  more.set_tenant(function.tenant());
  more.set_function(function.key().name());
  more.set_day(day);
  more.set_host_kib_ms(kib_ms);
  Add(more);
}

void UsageLedger::Add(const proto::UsageAmount& more) {
  if (IsEmpty(more)) return;
  changed_ = true;
  Gather(more);
  std::pair name(more.tenant(), more.function());
  if (totals_.size() >= kMostTotals && !totals_.contains(name)) name = {};
  auto& total = totals_[name];
  total.set_tenant(name.first);
  total.set_function(name.second);
  AddTo(total, more);
}

void UsageLedger::Gather(const proto::UsageAmount& more) {
  auto& amount = gathered_[{more.tenant(), more.function(), more.day()}];
  amount.set_tenant(more.tenant());
  amount.set_function(more.function());
  amount.set_day(more.day());
  AddTo(amount, more);
}

void UsageLedger::MakeStatement() {
  auto& open = *file_.mutable_open();
  open.set_ledger(file_.ledger());
  open.set_sequence(file_.sequence() + 1);
  file_.set_sequence(open.sequence());
  while (!gathered_.empty() && open.amounts_size() < kMostAmounts) {
    *open.add_amounts() = std::move(gathered_.begin()->second);
    gathered_.erase(gathered_.begin());
  }
}

proto::NodeUsage UsageLedger::File() const {
  auto file = file_;
  for (const auto& [key, amount] : gathered_) *file.add_gathered() = amount;
  for (const auto& [name, page] : pages_) {
    auto& kept = *file.add_pages();
    kept.set_age_ns(page.age.count());
    kept.mutable_read()->set_page(name);
    for (const auto& [key, count] : page.counts) *kept.mutable_read()->add_counts() = count;
  }
  return file;
}

std::optional<proto::NodeUsage> UsageLedger::TakeFile() {
  if (saving_) return std::nullopt;
  const bool states = !file_.has_open() && !gathered_.empty();
  std::vector<std::string> closed;
  for (const auto& [name, page] : pages_)
    if (page.closed) closed.push_back(name);
  if (!changed_ && !states && closed.empty()) return std::nullopt;
  if (states) MakeStatement();
  leaving_ = std::move(closed);
  changed_ = false;
  saving_ = true;
  return File();
}

std::vector<std::string> UsageLedger::Saved(bool well) {
  saving_ = false;
  if (!well) {
    changed_ = true;
    return {};
  }
  // Nothing makes a statement while a file is being saved.
  saved_ = file_.sequence();
  return std::exchange(leaving_, {});
}

const proto::UsageStatement* UsageLedger::Open() const {
  return file_.has_open() && file_.open().sequence() <= saved_ ? &file_.open() : nullptr;
}

void UsageLedger::Stored(std::uint64_t sequence) {
  if (!file_.has_open() || sequence < file_.open().sequence()) return;
  file_.clear_open();
  changed_ = true;
}

}  // namespace troupe::node
