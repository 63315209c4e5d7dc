// A certificate authority of a test's own, with the folders of the members to which it issued certificates;
// and an address of this machine that is not loopback, since only connections between hosts need
// certificates.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <array>
#include <memory>
#include <string>

#include "absl/time/clock.h"
#include "security/authority_folder.hpp"
#include "security/credentials.hpp"
#include "tests/temporary_directory.hpp"

namespace troupe::test {

// Empty when this machine has no such address.
inline std::string AddressOfThisMachine() {
  ifaddrs* found = nullptr;
  if (getifaddrs(&found) != 0) return "";
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(found, freeifaddrs);
  for (const ifaddrs* one = found; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    if ((one->ifa_flags & IFF_LOOPBACK) != 0 || (one->ifa_flags & IFF_UP) == 0) continue;
    std::array<char, INET_ADDRSTRLEN> text{};
    const auto* name = reinterpret_cast<const sockaddr_in*>(one->ifa_addr);
    return inet_ntop(AF_INET, &name->sin_addr, text.data(), text.size());
  }
  return "";
}

class TestAuthority {
 public:
  TestAuthority() {
    EXPECT_TRUE(security::AuthorityFolder::Init(ca(), "test", absl::Now(), absl::Hours(24)).ok());
  }
  [[nodiscard]] std::string ca() const { return directory_ / "ca"; }
  [[nodiscard]] std::string folder(const std::string& name) const { return directory_ / name; }

  // Issues a certificate for this machine's addresses and names, unless other hosts are given.
  security::IssuedEntry Issue(const std::string& name, security::Roles roles,
                              std::vector<std::string> hosts = {}, const std::string& out = "") {
    security::CertificateRequest request{roles, name, std::move(hosts), absl::Now() - absl::Minutes(5),
                                         absl::Now() + absl::Hours(1)};
    if (request.hosts.empty()) request.hosts = {"localhost", "127.0.0.1"};
    if (const auto address = AddressOfThisMachine(); !address.empty()) request.hosts.push_back(address);
    auto opened = security::AuthorityFolder::Open(ca());
    EXPECT_TRUE(opened.ok()) << opened.status();
    auto issued = opened->Issue(request, folder(out.empty() ? name : out));
    EXPECT_TRUE(issued.ok()) << issued.status();
    return issued.value_or(security::IssuedEntry());
  }
  [[nodiscard]] std::shared_ptr<security::Credentials> Credentials(const std::string& name) const {
    auto loaded = security::Credentials::Load(security::CredentialFiles::InFolder(folder(name)));
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return loaded.ok() ? *std::move(loaded) : nullptr;
  }
  std::shared_ptr<security::Credentials> Make(const std::string& name, security::Roles roles) {
    Issue(name, roles);
    return Credentials(name);
  }
  // Revokes the certificate and hands the list of revocations to each of `to`.
  void Revoke(const std::string& which, const std::vector<std::string>& to) {
    auto opened = security::AuthorityFolder::Open(ca());
    EXPECT_TRUE(opened.ok()) << opened.status();
    EXPECT_TRUE(opened->Revoke(which, absl::Now()).ok());
    const auto list = security::ReadSmallFile(opened->revocations_path(), security::Secrecy::kPublic);
    for (const auto& name : to)
      EXPECT_TRUE(security::ReplaceFile(folder(name) + "/revoked.pem", *list, 0644).ok());
  }

 private:
  TemporaryDirectory directory_;
};

}  // namespace troupe::test
