// CANONICAL FILES: a model on disk is a folder with two files, `model.pb` (proto::Model, serialised
// deterministically) and `weights.bin` (its weights blob). `troupe-import` writes them; the digest of
// model.pb names the model, and holds the digest of the weights, so one name answers for both. Needs no
// libonnx. Threads: any; every function blocks on the disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/ops/weights_output.hpp"
#include "proto/model.pb.h"

namespace troupe::gpu {

inline constexpr char kModelFile[] = "model.pb";
inline constexpr char kWeightsFile[] = "weights.bin";

struct CanonicalModel {
  proto::Model model;
  std::string digest;
  std::shared_ptr<const void> memory;  // 64-byte aligned; `weights` lies here: the file, mapped
  std::span<const std::byte> weights;
};

// The one byte string that stands for `model`, and its SHA-256.
[[nodiscard]] std::string SerializeModel(const proto::Model& model);
[[nodiscard]] std::string ModelDigest(const proto::Model& model);

// Writes both files into `folder`, which exists; model.pb comes last and under its name only when it is
// complete. Returns the model's digest. A full disk is marked (IsDiskFull). Nothing is synced: these are
// hand-over files.
[[nodiscard]] absl::StatusOr<std::string> WriteCanonical(const std::filesystem::path& folder,
                                                         const proto::Model& model,
                                                         std::span<const std::byte> weights);

// The same two files, opened before a jail in which no path can be opened. Unlike WriteCanonical, this leaves
// a part of model.pb under its name when it fails.
struct CanonicalDescriptors {
  int model = -1;
  int weights = -1;
};
// Creates or empties them, and never closes them. The weights can be read again where they were written.
[[nodiscard]] absl::StatusOr<CanonicalDescriptors> OpenCanonical(const std::filesystem::path& folder);
// The file of the model, to which its weights are in place already.
[[nodiscard]] absl::StatusOr<std::string> WriteModelFile(const CanonicalDescriptors& files,
                                                         const proto::Model& model);
[[nodiscard]] absl::StatusOr<std::string> WriteCanonical(const CanonicalDescriptors& files,
                                                         const proto::Model& model,
                                                         std::span<const std::byte> weights);

// Weights that go to the file, and are read where they lie in it.
class WeightsFile final : public WeightsOutput {
 public:
  // `descriptor` can be written and read, and outlives it.
  explicit WeightsFile(int descriptor) : descriptor_(descriptor) {}
  ~WeightsFile() override;
  WeightsFile(const WeightsFile&) = delete;
  WeightsFile& operator=(const WeightsFile&) = delete;
  absl::Status Append(std::span<const std::byte> bytes) override;
  absl::StatusOr<std::span<const std::byte>> Read() override;

 private:
  const int descriptor_;
  std::uint64_t size_ = 0;
  void* mapped_ = nullptr;
};

// Whether the bytes of the weights are compared with their digest, which takes as long as to read them.
enum class WeightsDigest {
  kChecked,
  kLeftToCaller,  // which looks at them anyway
};
// Reads and checks both files (digests, CheckModel). `digest` may be empty: then any sound model will do.
// NotFound for a missing file, DataLoss for one that does not match its digest, InvalidArgument for an
// unsound model.
[[nodiscard]] absl::StatusOr<CanonicalModel> ReadCanonical(const std::filesystem::path& folder,
                                                           const std::string& digest,
                                                           WeightsDigest check = WeightsDigest::kChecked);

}  // namespace troupe::gpu
