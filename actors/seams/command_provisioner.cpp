#include "actors/seams/command_provisioner.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "storage/durable_file.hpp"
#include "transport/liveness.hpp"
#include "transport/memory_file.hpp"

namespace troupe::actors {

namespace {

constexpr Duration kLook = std::chrono::milliseconds(100);
constexpr int kInput = 3;  // of the shell, which makes it the command's standard input
constexpr std::size_t kLastWords = 300;

absl::StatusOr<transport::UniqueFd> MakeFile(const char* name) {
  transport::UniqueFd file(memfd_create(name, MFD_CLOEXEC));
  if (!file.valid()) return transport::ErrnoStatus(errno, "cannot make a file in memory");
  return file;
}

// The end of what it wrote, as one line.
std::string LastWords(const transport::UniqueFd& file) {
  const off_t size = lseek(file.get(), 0, SEEK_END);
  const off_t from = size > static_cast<off_t>(kLastWords) ? size - static_cast<off_t>(kLastWords) : 0;
  std::string text(static_cast<std::size_t>(size > 0 ? size - from : 0), '\0');
  const ssize_t got = pread(file.get(), text.data(), text.size(), from);
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  for (char& c : text)
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) c = ' ';
  return std::string(absl::StripAsciiWhitespace(text));
}

}  // namespace

void CommandProvisioner::Carry(ProvisionOrder order, std::function<void(absl::Status)> done) {
  const auto posted = pool_.Post([this, order = std::move(order), done] { done(Run(order)); });
  if (!posted.ok()) done(posted);
}

absl::Status CommandProvisioner::Run(const ProvisionOrder& order) const {
  TROUPE_ASSIGN_OR_RETURN(const auto input, MakeFile("provision-order"));
  TROUPE_ASSIGN_OR_RETURN(const auto words, MakeFile("provision-words"));
  TROUPE_RETURN_IF_ERROR(storage::WriteAll(input, std::as_bytes(std::span(order.json)), "the order"));
  lseek(input.get(), 0, SEEK_SET);
  transport::SpawnOptions options;
  options.arguments = {"/bin/sh", "-c", absl::StrCat("{ ", command_, " \"$@\"; } <&", kInput), "provision",
                       order.action};
  if (!order.node.empty()) options.arguments.push_back(order.node);
  options.descriptors = {{input.get(), kInput}};
  options.log = words.get();
  TROUPE_ASSIGN_OR_RETURN(const auto child, transport::SpawnProcess(options));
  absl::StatusOr<transport::ProcessEnd> end = absl::DeadlineExceededError("");
  for (Duration spent{}; spent < timeout_ && !stopping_ && absl::IsDeadlineExceeded(end.status());
       spent += kLook)
    end = child.Wait(std::min(kLook, timeout_ - spent));
  const auto said = [&](const std::string& what) {
    const auto last = LastWords(words);
    return absl::StrCat("'", command_, " ", order.action, "': ", what, last.empty() ? "" : ": ", last);
  };
  if (absl::IsDeadlineExceeded(end.status())) {
    kill(-child.pid(), SIGKILL);  // its session is its own
    static_cast<void>(child.Wait(std::chrono::seconds(5)));
    if (stopping_) return absl::CancelledError(said("was killed, as the manager ends"));
    return absl::DeadlineExceededError(
        said(absl::StrCat("was killed, as it had not ended within ", FormatDuration(timeout_))));
  }
  TROUPE_RETURN_IF_ERROR(end.status());
  return end->clean() ? absl::OkStatus() : absl::UnavailableError(said(end->ToString()));
}

}  // namespace troupe::actors
