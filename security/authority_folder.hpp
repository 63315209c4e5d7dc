// AUTHORITY FOLDER: a certificate authority on disk, and what it has issued and revoked. One folder, 0700, on
// a machine that only operators reach:
//
//   ca.pem       the authority's certificate; every daemon and shell gets a copy
//   ca-key.pem   its key, 0600; a reader of it can join the cluster with any role
//   issued.tsv   what was issued: a certificate is written here before it is handed out
//   revoked.pem  the signed list of revoked certificates; every daemon and shell gets a copy
//
// Each file is replaced in one step, so that a crash leaves the old one or the new one. One process at a
// time: a lock, given back by the kernel when its holder ends.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "security/certificate_authority.hpp"
#include "security/identity.hpp"

namespace troupe::security {

struct IssuedEntry {
  Identity identity;
  std::vector<std::string> hosts;
  absl::Time not_before, not_after;
  absl::Time revoked = absl::InfiniteFuture();

  [[nodiscard]] bool is_revoked() const { return revoked != absl::InfiniteFuture(); }
};

class AuthorityFolder {
 public:
  // A new authority in `folder`, which is made; AlreadyExists when there is one.
  static absl::Status Init(const std::string& folder, std::string_view name, absl::Time now,
                           absl::Duration validity);
  // NotFound, with the command that makes one, when there is no authority.
  static absl::StatusOr<AuthorityFolder> Open(const std::string& folder);
  AuthorityFolder(AuthorityFolder&& other) noexcept;
  AuthorityFolder& operator=(AuthorityFolder&&) = delete;
  ~AuthorityFolder();

  // Writes ca.pem, certificate.pem, key.pem (0600) and revoked.pem into `out`, which is made (0700) when it
  // is not there; a certificate that is there is replaced. AlreadyExists when `out` has the certificate of
  // another holder.
  absl::StatusOr<IssuedEntry> Issue(const CertificateRequest& request, const std::string& out);
  // One more certificate like the newest one of `name`, with another end.
  absl::StatusOr<IssuedEntry> Renew(std::string_view name, absl::Time now, absl::Duration validity,
                                    const std::string& out);
  // `which`: a serial, or a name: all certificates of that name which have not ended. What was revoked now;
  // NotFound when nothing is of that name.
  absl::StatusOr<std::vector<IssuedEntry>> Revoke(std::string_view which, absl::Time now);
  // Oldest first.
  [[nodiscard]] const std::vector<IssuedEntry>& issued() const { return issued_; }
  [[nodiscard]] std::string revocations_path() const { return folder_ + "/revoked.pem"; }

 private:
  AuthorityFolder(std::string folder, int lock, CertificateAuthority authority)
      : folder_(std::move(folder)), lock_(lock), authority_(std::move(authority)) {}
  absl::Status ReadIssued();
  [[nodiscard]] absl::Status WriteIssued() const;

  std::string folder_;
  int lock_;  // a descriptor; -1: moved from
  CertificateAuthority authority_;
  std::vector<IssuedEntry> issued_;
};

}  // namespace troupe::security
