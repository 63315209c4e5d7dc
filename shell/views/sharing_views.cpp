#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/share_ladder.hpp"
#include "proto/gpu_sharing.hpp"
#include "shell/text/cat.hpp"
#include "shell/views.hpp"

namespace troupe::shell {

namespace {

// "24 %", "2 GiB", "8"; "-" where no number applies.
std::string ValueOf(const proto::AppliedSetting& setting) {
  if (setting.value() == 0) return "-";
  const auto* field = proto::FindSharingField(setting.name());
  if (field != nullptr && field->unit == "%") return Cat(setting.value(), " %");
  if (field != nullptr && field->unit == "B") return FormatBytes(Bytes(setting.value()));
  return Cat(setting.value());
}

std::string SourceOf(const proto::AppliedSetting& setting) {
  auto source = absl::AsciiStrToLower(proto::AppliedSetting::Source_Name(setting.source()));
  return setting.reason().empty() ? source : Cat(source, ": ", Printable(setting.reason()));
}

}  // namespace

std::string SharingLines(const proto::FunctionStatus& function) {
  std::string out;
  for (const auto& setting : function.sharing())
    absl::StrAppendFormat(&out, "\n%-11s%-15s%-11s%s", out.empty() ? "sharing" : "",
                          Printable(setting.name()), ValueOf(setting), SourceOf(setting));
  return out;
}

std::string DescribeSettings(const proto::FunctionStatus& function, const std::vector<std::string>& names) {
  std::vector<std::string> settings;
  for (const auto& setting : function.sharing())
    if (std::find(names.begin(), names.end(), setting.name()) != names.end())
      settings.push_back(Cat(setting.name(), " ", ValueOf(setting),
                             setting.reason().empty() ? "" : Cat(" (", Printable(setting.reason()), ")")));
  return absl::StrJoin(settings, ", ");
}

std::string SmLines(std::uint32_t percent, const proto::AdminReply& gpus) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<std::string>> found;
  for (const auto& gpu : gpus.gpus()) {
    const auto& worker = gpu.worker();
    if (worker.share_sms().empty()) continue;
    const std::span<const std::uint32_t> shares(worker.share_sms().data(),
                                                static_cast<std::size_t>(worker.share_sms_size()));
    found[{NearestShare(shares, worker.sms(), percent), worker.sms()}].push_back(
        Cat(gpu.node(), "/", gpu.gpu().index()));
  }
  std::string out;
  for (const auto& [share, where] : found)
    Append(&out, "\n", out.empty() ? "SM share   " : "           ", share.first, " of ", share.second,
           " SMs on ", Printable(absl::StrJoin(where, ", ")));
  return out;
}

}  // namespace troupe::shell
