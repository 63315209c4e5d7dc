#include "security/pem_files.hpp"

#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <string.h>
#include <unistd.h>

#include "absl/cleanup/cleanup.h"

#include "absl/strings/str_format.h"
#include "base/status.hpp"
#include "security/text.hpp"

namespace troupe::security {

namespace {

// A key with a passphrase is not asked for one: a daemon has no terminal.
int NoPassphrase(char*, int, int, void*) {
  return -1;
}

absl::Status CannotOpen(const std::string& path, int error) {
  const std::string text = Cat("cannot read ", path, ": ", strerror(error));
  if (error == ENOENT)
    return absl::NotFoundError(Cat(text, "; check the path, or make it with 'troupe ca issue'"));
  return absl::FailedPreconditionError(text);
}

absl::Status CheckSecret(const std::string& path, const struct stat& found) {
  if ((found.st_mode & 077) != 0)
    return absl::FailedPreconditionError(
        absl::StrFormat("the key file %s can be opened by other users (mode %04o); run 'chmod 600 %s'", path,
                        static_cast<unsigned>(found.st_mode & 07777), path));
  if (found.st_uid != ::geteuid() && found.st_uid != 0)
    return absl::FailedPreconditionError(absl::StrFormat(
        "the key file %s belongs to the user with id %u; it must belong to the user of this program", path,
        found.st_uid));
  return absl::OkStatus();
}

bool WriteAll(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const auto written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return ::fsync(file) == 0;
}

absl::Status WriteTo(const std::string& path, std::string_view bytes, mode_t mode) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
  if (file < 0 && errno == EEXIST)
    return absl::AlreadyExistsError(Cat(path, " exists already and is not overwritten"));
  if (file < 0) return absl::FailedPreconditionError(Cat("cannot write ", path, ": ", strerror(errno)));
  const bool written = ::fchmod(file, mode) == 0 && WriteAll(file, bytes);
  const int error = errno;
  ::close(file);
  if (written) return absl::OkStatus();
  ::unlink(path.c_str());
  return absl::FailedPreconditionError(Cat("cannot write ", path, ": ", strerror(error)));
}

// True when the PEM text ended, rather than being damaged: OpenSSL reports both as an error.
bool OnlyEnded() {
  const auto error = ERR_peek_last_error();
  return ERR_GET_LIB(error) == ERR_LIB_PEM && ERR_GET_REASON(error) == PEM_R_NO_START_LINE;
}

}  // namespace

std::string TakeOpenSslErrors() {
  std::string out;
  while (const auto error = ERR_get_error()) {
    const char* reason = ERR_reason_error_string(error);
    Append(&out, out.empty() ? "" : "; ", reason == nullptr ? "an unnamed error" : reason);
  }
  return out.empty() ? "no reason given" : out;
}

BioPtr ReadOnlyBio(std::string_view text) {
  return BioPtr(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

std::string BioText(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return size <= 0 ? std::string() : std::string(data, static_cast<std::size_t>(size));
}

FileStamp StampOf(const std::string& path) {
  struct stat found {};
  if (path.empty() || ::stat(path.c_str(), &found) != 0) return {};
  return {found.st_dev, found.st_ino, found.st_size, found.st_mtim, found.st_ctim};
}

absl::StatusOr<std::string> ReadSmallFile(const std::string& path, Secrecy secrecy) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return CannotOpen(path, errno);
  const absl::Cleanup close = [file] { ::close(file); };
  struct stat found {};
  if (::fstat(file, &found) != 0) return CannotOpen(path, errno);
  if (!S_ISREG(found.st_mode))
    return absl::FailedPreconditionError(Cat("cannot read ", path, ": it is not a regular file"));
  if (secrecy == Secrecy::kSecret) TROUPE_RETURN_IF_ERROR(CheckSecret(path, found));
  std::string bytes;
  char block[16384];
  while (true) {
    const auto read = ::read(file, block, sizeof(block));
    if (read < 0 && errno == EINTR) continue;
    if (read < 0) return CannotOpen(path, errno);
    if (read == 0) return bytes;
    bytes.append(block, static_cast<std::size_t>(read));
    if (bytes.size() > kMaxPemBytes)
      return absl::FailedPreconditionError(Cat(path, " has more than 1 MiB, so it is not a PEM file"));
  }
}

absl::StatusOr<std::vector<X509Ptr>> ParseCertificates(std::string_view pem, std::string_view source) {
  ERR_clear_error();
  const auto bio = ReadOnlyBio(pem);
  std::vector<X509Ptr> found;
  while (auto* one = PEM_read_bio_X509(bio.get(), nullptr, NoPassphrase, nullptr)) found.emplace_back(one);
  if (!found.empty() && OnlyEnded()) {
    ERR_clear_error();
    return found;
  }
  return absl::InvalidArgumentError(
      Cat(source, " does not hold a certificate in PEM form (", TakeOpenSslErrors(), ")"));
}

absl::StatusOr<KeyPtr> ParseKey(std::string_view pem, std::string_view source) {
  ERR_clear_error();
  const auto bio = ReadOnlyBio(pem);
  KeyPtr key(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassphrase, nullptr));
  if (key != nullptr) return key;
  return absl::InvalidArgumentError(Cat(
      source, " does not hold a private key in PEM form without a passphrase (", TakeOpenSslErrors(), ")"));
}

absl::StatusOr<std::vector<CrlPtr>> ParseRevocations(std::string_view pem, std::string_view source) {
  ERR_clear_error();
  const auto bio = ReadOnlyBio(pem);
  std::vector<CrlPtr> found;
  while (auto* one = PEM_read_bio_X509_CRL(bio.get(), nullptr, NoPassphrase, nullptr))
    found.emplace_back(one);
  if (!found.empty() && OnlyEnded()) {
    ERR_clear_error();
    return found;
  }
  return absl::InvalidArgumentError(
      Cat(source, " does not hold a revocation list in PEM form (", TakeOpenSslErrors(), ")"));
}

absl::Status WriteNewFile(const std::string& path, std::string_view bytes, mode_t mode) {
  return WriteTo(path, bytes, mode);
}

absl::Status ReplaceFile(const std::string& path, std::string_view bytes, mode_t mode) {
  const std::string fresh = Cat(path, ".new");
  ::unlink(fresh.c_str());  // of a run that was killed here
  TROUPE_RETURN_IF_ERROR(WriteTo(fresh, bytes, mode));
  if (::rename(fresh.c_str(), path.c_str()) == 0) return absl::OkStatus();
  const int error = errno;
  ::unlink(fresh.c_str());
  return absl::FailedPreconditionError(Cat("cannot replace ", path, ": ", strerror(error)));
}

}  // namespace troupe::security
