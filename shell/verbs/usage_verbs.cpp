// `usage`: what tenants and functions used, and what it costs.
#include <optional>
#include <string>

#include "absl/time/civil_time.h"
#include "absl/time/clock.h"
#include "base/status.hpp"
#include "shell/exit_code.hpp"
#include "shell/inputs/files.hpp"
#include "shell/price_book.hpp"
#include "shell/session.hpp"
#include "shell/text/cat.hpp"
#include "shell/verbs/all_verbs.hpp"
#include "shell/views.hpp"

namespace troupe::shell {

namespace {

absl::StatusOr<proto::ListUsage::By> ByOf(const std::string& text) {
  if (text.empty() || text == "function") return proto::ListUsage::FUNCTION;
  if (text == "tenant") return proto::ListUsage::TENANT;
  if (text == "day") return proto::ListUsage::DAY;
  return UsageError(Cat("--by ", Printable(text), ": must be tenant, function or day"));
}

// The days of a month of UTC, counted from 1970-01-01.
absl::Status SetDays(const std::string& text, proto::ListUsage& wish) {
  absl::CivilMonth month(absl::ToCivilMonth(absl::Now(), absl::UTCTimeZone()));
  if (!text.empty() && (text.size() != 7 || !absl::ParseCivilTime(text, &month)))
    return UsageError(Cat("--month ", Printable(text), ": must be a year and a month such as 2026-11"));
  const absl::CivilDay epoch(1970, 1, 1);
  wish.set_first_day(absl::CivilDay(month) - epoch);
  wish.set_last_day(absl::CivilDay(month + 1) - epoch - 1);
  return absl::OkStatus();
}

absl::Status Usage(Session& session, const Arguments& arguments) {
  proto::AdminRequest request;
  auto& wish = *request.mutable_list_usage();
  TROUPE_ASSIGN_OR_RETURN(const auto by, ByOf(arguments.Text("--by")));
  wish.set_by(by);
  TROUPE_RETURN_IF_ERROR(SetDays(arguments.Text("--month"), wish));
  std::optional<PriceBook> prices;
  if (const auto& path = arguments.Text("--prices"); !path.empty()) {
    TROUPE_ASSIGN_OR_RETURN(const auto yaml, ReadFile(path, MiB(1)));
    auto parsed = ParsePriceBook(yaml);
    if (!parsed.ok()) return UsageError(Cat(Printable(path), ", ", std::string(parsed.status().message())));
    prices = *std::move(parsed);
  }
  TROUPE_ASSIGN_OR_RETURN(const auto reply, session.Ask(request));
  const auto* book = prices ? &*prices : nullptr;
  if (session.json() && book != nullptr) {
    session.out() << UsageJson(reply, *book);
  } else if (session.json()) {
    session.PrintJson(reply);
  } else if (arguments.Has("--csv")) {
    session.out() << UsageCsv(reply, book);
  } else {
    session.out() << UsageTable(reply, by, book).Render(session.style());
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<Verb> UsageVerbs() {
  return {
      {.name = "usage",
       .summary = "What tenants and functions used in a month",
       .arguments = {{.name = "--by", .help = "one line for each: tenant, function (default) or day"},
                     {.name = "--month", .help = "YYYY-MM, in UTC (default: this month)"},
                     {.name = "--prices", .kind = Kind::kFile, .help = "price book (YAML): adds the cost"},
                     {.name = "--csv", .kind = Kind::kFlag, .help = "comma-separated, with exact amounts"}},
       .run = Usage}};
}

}  // namespace troupe::shell
