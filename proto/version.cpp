#include "proto/version.hpp"

#include "absl/strings/str_cat.h"
#include "proto/commit.hpp"  // made by the build
#include "proto/formats.hpp"

namespace troupe::proto {

std::string VersionText(const std::string& program) {
  return absl::StrCat(program, " ", kRelease, "\ncommit ", kCommit, "\nformats: metadata ", kMetadataFormat,
                      ", backup ", kBackupFormat, ", model ", kModelFormat, ", worker ring ", kRingFormat,
                      ", tensor fetch ", kTensorFetchFormat);
}

}  // namespace troupe::proto
