// EXTERNAL WEIGHTS: exporters write large ONNX models as a small file and weights in files beside it. They travel together, as
// a tar archive that is made while it is sent. The few fields of the model that matter are read by hand, so that the shell
// does not carry the ONNX library.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "actors/admin_client.hpp"
#include "base/units.hpp"

namespace troupe::shell {

// The largest ONNX file: protobuf ends there. Weights in files of their own do not count.
inline constexpr Bytes kMostModelFile = GiB(2);
// The most that is sent for one model.
inline constexpr Bytes kMostModel = GiB(64);

// What is sent for the ONNX file at `path`: the file as it is, or an archive of it and of the files beside it in which its
// tensors lie; the same bytes each time. The files stay open, and are read when they are sent. A location is followed only below
// the model's own folder, never through '..' or a symbolic link. InvalidArgument names the file and the reason. What is no
// protobuf message is sent as it is: to judge models is the import's work.
[[nodiscard]] absl::StatusOr<std::shared_ptr<const actors::UploadSource>> OpenModel(
    const std::string& path, Bytes most_file = kMostModelFile, Bytes most = kMostModel);

}  // namespace troupe::shell
