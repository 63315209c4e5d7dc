#include "gpu/worker/meter_folder.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/worker/meter_page.hpp"
#include "transport/host_id.hpp"

namespace troupe::gpu {
namespace {

constexpr char kEnding[] = ".meter";

bool IsPageName(const std::string& name) {
  return name.ends_with(kEnding) && name.find('/') == std::string::npos;
}

}  // namespace

std::string NewMeterPath(const std::string& socket) {
  return absl::StrCat(socket, ".", absl::Hex(transport::UniqueId()), kEnding);
}

absl::StatusOr<std::vector<proto::MeterReading>> MeterFolder::Read() const {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(directory_, error), end; !error && it != end;
       it.increment(error)) {
    auto name = it->path().filename().string();
    if (IsPageName(name)) names.push_back(std::move(name));
  }
  if (error)
    return absl::UnavailableError(
        absl::StrCat("the meter pages in ", directory_, " cannot be listed: ", error.message()));
  std::sort(names.begin(), names.end());
  std::vector<proto::MeterReading> readings;
  for (const auto& name : names) {
    auto reading = ReadMeterPage(absl::StrCat(directory_, "/", name));
    auto& page = readings.emplace_back();
    const bool read = reading.ok();
    if (read) page = *std::move(reading);
    page.set_unread(!read);
    page.set_page(name);
  }
  return readings;
}

void MeterFolder::Remove(const std::string& page) const {
  std::error_code ignored;
  if (IsPageName(page)) std::filesystem::remove(absl::StrCat(directory_, "/", page), ignored);
}

}  // namespace troupe::gpu
