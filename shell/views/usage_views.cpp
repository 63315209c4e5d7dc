#include <boost/json.hpp>

#include "absl/strings/str_format.h"
#include "absl/time/civil_time.h"
#include "shell/price_book.hpp"
#include "shell/text/cat.hpp"
#include "shell/views.hpp"

namespace troupe::shell {

namespace {

std::string DayText(std::int64_t day) {
  return absl::FormatCivilTime(absl::CivilDay(1970, 1, 1) + day);
}

std::string NameOr(const std::string& name, const char* otherwise) {
  return name.empty() ? otherwise : name;
}

}  // namespace

Table UsageTable(const proto::AdminReply& reply, proto::ListUsage::By by, const PriceBook* prices) {
  std::vector<std::string> headers;
  if (by == proto::ListUsage::DAY) headers.emplace_back("DAY");
  headers.emplace_back("TENANT");
  if (by != proto::ListUsage::TENANT) headers.emplace_back("FUNCTION");
  for (const char* header : {">RUNS", ">GPU MS", ">HOST GiB-H", ">MOVED GiB"}) headers.emplace_back(header);
  if (prices != nullptr)
    headers.push_back(Cat(">COST", prices->currency.empty() ? "" : " ", prices->currency));
  Table table(headers);
  for (const auto& amount : reply.usage()) {
    std::vector<Cell> row;
    if (by == proto::ListUsage::DAY) row.emplace_back(DayText(amount.day()));
    row.emplace_back(NameOr(amount.tenant(), "-"));
    if (by != proto::ListUsage::TENANT) row.emplace_back(NameOr(amount.function(), "(others)"));
    row.emplace_back(Cat(amount.runs()));
    row.emplace_back(absl::StrFormat("%.3f", static_cast<double>(amount.gpu_ns()) / 1e6));
    row.emplace_back(absl::StrFormat("%.6f", HostGibHours(amount)));
    row.emplace_back(absl::StrFormat("%.6f", GibMoved(amount)));
    if (prices != nullptr) row.emplace_back(absl::StrFormat("%.6f", prices->CostOf(amount)));
    table.Add(std::move(row));
  }
  return table;
}

std::string UsageCsv(const proto::AdminReply& reply, const PriceBook* prices) {
  std::string out = "day,tenant,function,runs,gpu_ns,host_kib_ms,bytes_moved";
  if (prices != nullptr) out += ",cost";
  out += '\n';
  for (const auto& amount : reply.usage()) {
    // Names of tenants and functions contain neither commas nor quotes.
    out += Cat(amount.day() == 0 ? "" : DayText(amount.day()), ",", Printable(amount.tenant()), ",",
               Printable(amount.function()), ",", amount.runs(), ",", amount.gpu_ns(), ",",
               amount.host_kib_ms(), ",", amount.bytes_moved());
    if (prices != nullptr) out += absl::StrFormat(",%.9f", prices->CostOf(amount));
    out += '\n';
  }
  return out;
}

std::string UsageJson(const proto::AdminReply& reply, const PriceBook& prices) {
  boost::json::array amounts;
  for (const auto& amount : reply.usage()) {
    amounts.push_back(boost::json::object{{"tenant", amount.tenant()},
                                          {"function", amount.function()},
                                          {"day", Cat(amount.day())},
                                          {"gpu_ns", Cat(amount.gpu_ns())},
                                          {"runs", Cat(amount.runs())},
                                          {"bytes_moved", Cat(amount.bytes_moved())},
                                          {"host_kib_ms", Cat(amount.host_kib_ms())},
                                          {"cost", prices.CostOf(amount)}});
  }
  const boost::json::object all = {{"currency", prices.currency}, {"usage", std::move(amounts)}};
  return boost::json::serialize(all) + "\n";
}

}  // namespace troupe::shell
