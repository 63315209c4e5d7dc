#include "security/authority_folder.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status.hpp"
#include "security/certificate.hpp"
#include "security/pem_files.hpp"
#include "security/text.hpp"

namespace troupe::security {

namespace {

constexpr std::string_view kHeading = "# serial\troles\tname\thosts\tnot before\tnot after\n";
constexpr mode_t kPublic = 0644;
constexpr mode_t kSecret = 0600;

absl::Status MakeFolder(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return absl::OkStatus();
  return absl::FailedPreconditionError(Cat("cannot make the folder ", path, ": ", strerror(errno)));
}

bool Exists(const std::string& path) {
  return !(StampOf(path) == FileStamp{});
}

// The descriptor that holds the lock.
absl::StatusOr<int> Lock(const std::string& folder) {
  const std::string path = folder + "/lock";
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kSecret);
  if (file < 0) return absl::FailedPreconditionError(Cat("cannot open ", path, ": ", strerror(errno)));
  if (::flock(file, LOCK_EX | LOCK_NB) == 0) return file;
  ::close(file);
  return absl::FailedPreconditionError(
      Cat("another 'troupe ca' works in ", folder, "; try again when it has ended"));
}

std::string LineOf(const IssuedEntry& entry) {
  return Cat(entry.identity.serial, "\t", entry.identity.roles.ToString(), "\t", entry.identity.name, "\t",
             absl::StrJoin(entry.hosts, ","), "\t", absl::ToUnixSeconds(entry.not_before), "\t",
             absl::ToUnixSeconds(entry.not_after), "\n");
}

absl::StatusOr<IssuedEntry> EntryOf(const std::string& line) {
  const std::vector<std::string> fields = absl::StrSplit(line, '\t');
  IssuedEntry entry;
  std::int64_t from = 0, until = 0;
  if (fields.size() != 6 || !absl::SimpleAtoi(fields[4], &from) || !absl::SimpleAtoi(fields[5], &until))
    return absl::DataLossError("has a line that was not written by 'troupe ca'");
  entry.identity.serial = fields[0];
  for (const std::string& role : std::vector<std::string>(absl::StrSplit(fields[1], ", "))) {
    TROUPE_ASSIGN_OR_RETURN(const Role parsed, ParseRole(role));
    entry.identity.roles.Add(parsed);
  }
  entry.identity.name = fields[2];
  if (!fields[3].empty()) entry.hosts = absl::StrSplit(fields[3], ',');
  entry.not_before = absl::FromUnixSeconds(from);
  entry.not_after = absl::FromUnixSeconds(until);
  return entry;
}

// A folder has the certificate of one holder.
absl::Status CheckHolder(const std::string& path, const std::string& name) {
  if (!Exists(path)) return absl::OkStatus();
  TROUPE_ASSIGN_OR_RETURN(const auto pem, ReadSmallFile(path, Secrecy::kPublic));
  TROUPE_ASSIGN_OR_RETURN(const auto found, ParseCertificates(pem, path));
  const auto holder = IdentityOf(found.front().get());
  if (holder.ok() && holder->name == name) return absl::OkStatus();
  return absl::AlreadyExistsError(Cat(path, " is the certificate ", Describe(found.front().get()), "; give '",
                                      name, "' a folder of its own with --out"));
}

}  // namespace

AuthorityFolder::AuthorityFolder(AuthorityFolder&& other) noexcept
    : folder_(std::move(other.folder_)),
      lock_(std::exchange(other.lock_, -1)),
      authority_(std::move(other.authority_)),
      issued_(std::move(other.issued_)) {}

AuthorityFolder::~AuthorityFolder() {
  if (lock_ >= 0) ::close(lock_);
}

absl::Status AuthorityFolder::Init(const std::string& folder, std::string_view name, absl::Time now,
                                   absl::Duration validity) {
  TROUPE_RETURN_IF_ERROR(MakeFolder(folder));
  if (::chmod(folder.c_str(), 0700) != 0)
    return absl::FailedPreconditionError(
        Cat("cannot make the folder ", folder, " private: ", strerror(errno)));
  TROUPE_ASSIGN_OR_RETURN(const int lock, Lock(folder));
  const auto made = [&]() -> absl::Status {
    if (Exists(folder + "/ca.pem"))
      return absl::AlreadyExistsError(
          Cat(folder,
              " has a certificate authority already; its certificates would be worth nothing with "
              "another one. Choose another folder"));
    TROUPE_ASSIGN_OR_RETURN(const auto authority,
                            CertificateAuthority::Make(name, now - absl::Hours(1), now + validity));
    TROUPE_ASSIGN_OR_RETURN(const auto none, authority.RevocationList({}, now - absl::Hours(1)));
    TROUPE_RETURN_IF_ERROR(ReplaceFile(folder + "/ca-key.pem", authority.KeyPem(), kSecret));
    TROUPE_RETURN_IF_ERROR(ReplaceFile(folder + "/issued.tsv", kHeading, kSecret));
    TROUPE_RETURN_IF_ERROR(ReplaceFile(folder + "/revoked.pem", none, kPublic));
    return ReplaceFile(folder + "/ca.pem", authority.CertificatePem(), kPublic);  // last: now it is there
  }();
  ::close(lock);
  return made;
}

absl::StatusOr<AuthorityFolder> AuthorityFolder::Open(const std::string& folder) {
  if (!Exists(folder + "/ca.pem"))
    return absl::NotFoundError(Cat("there is no certificate authority in ", folder,
                                   "; name its folder with --ca, or make one with 'troupe ca init ", folder,
                                   "'"));
  TROUPE_ASSIGN_OR_RETURN(const auto certificate, ReadSmallFile(folder + "/ca.pem", Secrecy::kPublic));
  TROUPE_ASSIGN_OR_RETURN(const auto key, ReadSmallFile(folder + "/ca-key.pem", Secrecy::kSecret));
  TROUPE_ASSIGN_OR_RETURN(auto authority, CertificateAuthority::FromPem(certificate, key));
  TROUPE_ASSIGN_OR_RETURN(const int lock, Lock(folder));
  AuthorityFolder opened(folder, lock, std::move(authority));
  TROUPE_RETURN_IF_ERROR(opened.ReadIssued());
  return opened;
}

absl::Status AuthorityFolder::ReadIssued() {
  const std::string path = folder_ + "/issued.tsv";
  TROUPE_ASSIGN_OR_RETURN(const auto text, ReadSmallFile(path, Secrecy::kSecret));
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(text, '\n'))) {
    if (line.empty() || line.front() == '#') continue;
    auto entry = EntryOf(line);
    if (!entry.ok()) return absl::DataLossError(Cat(path, " ", entry.status().message()));
    issued_.push_back(*std::move(entry));
  }
  TROUPE_ASSIGN_OR_RETURN(const auto pem, ReadSmallFile(revocations_path(), Secrecy::kPublic));
  TROUPE_ASSIGN_OR_RETURN(const auto revoked, authority_.ReadRevocationList(pem));
  for (auto& entry : issued_)
    for (const auto& one : revoked)
      if (one.serial == entry.identity.serial) entry.revoked = one.at;
  return absl::OkStatus();
}

absl::Status AuthorityFolder::WriteIssued() const {
  std::string text(kHeading);
  for (const auto& entry : issued_) text += LineOf(entry);
  return ReplaceFile(folder_ + "/issued.tsv", text, kSecret);
}

absl::StatusOr<IssuedEntry> AuthorityFolder::Issue(const CertificateRequest& request,
                                                   const std::string& out) {
  TROUPE_RETURN_IF_ERROR(CheckName(request.name));
  TROUPE_RETURN_IF_ERROR(CheckHolder(out + "/certificate.pem", request.name));
  TROUPE_ASSIGN_OR_RETURN(const auto made, authority_.Issue(request));
  TROUPE_ASSIGN_OR_RETURN(const auto revoked, ReadSmallFile(revocations_path(), Secrecy::kPublic));
  IssuedEntry entry{
      {request.roles, request.name, made.serial}, request.hosts, request.not_before, request.not_after};
  // Before it is handed out: what exists can be revoked.
  issued_.push_back(entry);
  TROUPE_RETURN_IF_ERROR(WriteIssued());
  TROUPE_RETURN_IF_ERROR(MakeFolder(out));
  TROUPE_RETURN_IF_ERROR(ReplaceFile(out + "/ca.pem", authority_.CertificatePem(), kPublic));
  TROUPE_RETURN_IF_ERROR(ReplaceFile(out + "/revoked.pem", revoked, kPublic));
  TROUPE_RETURN_IF_ERROR(ReplaceFile(out + "/key.pem", made.key_pem, kSecret));
  TROUPE_RETURN_IF_ERROR(ReplaceFile(out + "/certificate.pem", made.certificate_pem, kPublic));
  return entry;
}

absl::StatusOr<IssuedEntry> AuthorityFolder::Renew(std::string_view name, absl::Time now,
                                                   absl::Duration validity, const std::string& out) {
  const auto newest = std::find_if(issued_.rbegin(), issued_.rend(), [&](const IssuedEntry& entry) {
    return entry.identity.name == name && !entry.is_revoked();
  });
  if (newest == issued_.rend())
    return absl::NotFoundError(
        Cat("no certificate of '", name, "' that is not revoked was issued here; see 'troupe ca list'"));
  return Issue(
      {newest->identity.roles, newest->identity.name, newest->hosts, now - absl::Minutes(5), now + validity},
      out);
}

absl::StatusOr<std::vector<IssuedEntry>> AuthorityFolder::Revoke(std::string_view which, absl::Time now) {
  std::vector<IssuedEntry> changed;
  bool known = false;
  std::vector<Revocation> list;
  for (auto& entry : issued_) {
    const bool meant = entry.identity.serial == which ||
                       (entry.identity.name == which && (entry.not_after > now || entry.is_revoked()));
    known = known || meant;
    if (meant && !entry.is_revoked()) {
      entry.revoked = now;
      changed.push_back(entry);
    }
    if (entry.is_revoked()) list.push_back({entry.identity.serial, entry.revoked});
  }
  if (!known)
    return absl::NotFoundError(Cat("no certificate with the serial or the name '", which,
                                   "' was issued here; see 'troupe ca list'"));
  if (changed.empty()) return changed;
  TROUPE_ASSIGN_OR_RETURN(const auto pem, authority_.RevocationList(list, now));
  TROUPE_RETURN_IF_ERROR(ReplaceFile(revocations_path(), pem, kPublic));
  return changed;
}

}  // namespace troupe::security
