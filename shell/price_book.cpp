#include "shell/price_book.hpp"

#include <yaml-cpp/yaml.h>

#include <cmath>
#include <map>
#include <vector>

#include "base/nearest.hpp"
#include "base/yaml_document.hpp"
#include "shell/text/cat.hpp"

namespace troupe::shell {

namespace {

absl::Status ErrorAt(const YAML::Node& node, const std::string& what) {
  return absl::InvalidArgumentError(Cat("line ", node.Mark().line + 1, ": ", what));
}

absl::Status ReadPrice(const YAML::Node& key, const YAML::Node& value, double& out) {
  double read = 0;
  if (!value.IsScalar() || !YAML::convert<double>::decode(value, read) || !std::isfinite(read) || read < 0)
    return ErrorAt(key, Cat("'", key.Scalar(), "' must be a number from 0 up, such as 2.40"));
  out = read;
  return absl::OkStatus();
}

}  // namespace

double GpuHours(const proto::UsageAmount& amount) {
  return static_cast<double>(amount.gpu_ns()) / 3.6e12;
}

double HostGibHours(const proto::UsageAmount& amount) {
  return static_cast<double>(amount.host_kib_ms()) / (1024.0 * 1024.0) / 3.6e6;
}

double GibMoved(const proto::UsageAmount& amount) {
  return static_cast<double>(amount.bytes_moved()) / (1024.0 * 1024.0 * 1024.0);
}

double PriceBook::CostOf(const proto::UsageAmount& amount) const {
  const double gib_hour = gpu_memory_gib > 0 ? gpu_hour / gpu_memory_gib * host_percent / 100 : 0;
  return GpuHours(amount) * gpu_hour + HostGibHours(amount) * gib_hour + GibMoved(amount) * gib_moved;
}

absl::StatusOr<PriceBook> ParsePriceBook(const std::string& yaml) {
  YAML::Node root;
  try {
    root = LoadOneDocument(yaml);
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(Cat("line ", error.mark.line + 1, ": ", error.msg));
  }
  if (!root.IsMap())
    return absl::InvalidArgumentError("line 1: a price book is a mapping of names to prices");
  PriceBook book;
  const std::map<std::string, double*> prices = {{"gpu_hour", &book.gpu_hour},
                                                 {"gpu_memory_gib", &book.gpu_memory_gib},
                                                 {"host_percent", &book.host_percent},
                                                 {"gib_moved", &book.gib_moved}};
  std::vector<std::string> known = {"currency"};
  for (const auto& [name, price] : prices) known.push_back(name);
  for (const auto& entry : root) {
    if (!entry.first.IsScalar()) return ErrorAt(entry.first, "a key is one word");
    const auto& key = entry.first.Scalar();
    if (const auto found = prices.find(key); found != prices.end()) {
      if (const auto read = ReadPrice(entry.first, entry.second, *found->second); !read.ok()) return read;
    } else if (key == "currency") {
      if (!entry.second.IsScalar()) return ErrorAt(entry.first, "'currency' must be one word, such as EUR");
      book.currency = entry.second.Scalar();
    } else {
      return ErrorAt(entry.first, Cat("a price book has no key '", key, "'", DidYouMean(key, known)));
    }
  }
  if (!root["gpu_hour"]) return absl::InvalidArgumentError("line 1: the price book lacks 'gpu_hour'");
  if (book.gpu_memory_gib <= 0)
    return absl::InvalidArgumentError(
        "line 1: the price book lacks 'gpu_memory_gib', from which the price of host memory follows");
  return book;
}

}  // namespace troupe::shell
