#include "shell/sharing_options.hpp"

#include <algorithm>
#include <string_view>

#include "base/quantity.hpp"
#include "proto/gpu_sharing.hpp"
#include "shell/exit_code.hpp"
#include "shell/text/cat.hpp"
#include "shell/text/text.hpp"

namespace troupe::shell {

namespace {

std::string OptionOf(const proto::SharingField& field) {
  std::string option = Cat("--", field.name);
  std::replace(option.begin(), option.end(), '_', '-');
  return option;
}

std::string HelpOf(std::string_view setting) {
  if (setting == "sm_partition")
    return "percent of a GPU's SMs that each of its runs takes, 'all', or 'auto': as its profile says";
  if (setting == "quota_request")
    return "percent of a window's GPU time that it is to get, 'none', or 'auto': what its load needs";
  if (setting == "quota_limit") return "percent of a window's GPU time that it gets at most, or 'none'";
  if (setting == "gpu_mem")
    return "GPU memory that its weights, runs and state take at most, like 2GiB, 'none', or 'auto': as its profile says";
  if (setting == "max_instances")
    return Cat("runs of it that compute on one GPU at a time, 1 to ", proto::kMostInstances,
               " at most, or 'auto'");
  if (setting == "min_instances")
    return Cat("instances that a function whose quota-request is auto has without any load, too, 1 to ",
               proto::kMostInstances, ", or 'none'");
  if (setting == "target_utilisation")
    return "percent of their time for which those instances are to be busy, or 'default'";
  return Cat("requests that one of its runs answers, 1 to ", proto::kMostBatch,
             " at most, 'default', or 'auto': as its profile says");
}

}  // namespace

std::vector<Argument> SharingArguments() {
  std::vector<Argument> arguments;
  for (const auto& field : proto::kSharingFields)
    arguments.push_back({.name = OptionOf(field), .kind = Kind::kText, .help = HelpOf(field.name)});
  return arguments;
}

absl::StatusOr<std::vector<std::string>> ReadSharing(const Arguments& arguments, proto::GpuSharing& sharing) {
  std::vector<std::string> settings;
  for (const auto& field : proto::kSharingFields) {
    const auto option = OptionOf(field);
    if (!arguments.Has(option)) continue;
    const Quantity quantity = QuantityOf(field);
    const auto value = ParseQuantity(arguments.Text(option), quantity);
    if (!value)
      return UsageError(
          Cat(option, " is '", Printable(arguments.Text(option)), "'; it is ", ExpectedOf(quantity)));
    proto::Declare(sharing, field, *value);
    settings.emplace_back(field.name);
  }
  return settings;
}

}  // namespace troupe::shell
