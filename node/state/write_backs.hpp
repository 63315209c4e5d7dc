// WRITE-BACKS: states that a worker sends to the host, and their images until they are safe.
//
//   ordered -(the worker's answer)-> its images are saved, one by one -(of a run: other nodes have copies)-> the purpose's
//   part is told
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "node/runtimes/order_purposes.hpp"

namespace troupe::node {

struct Parts;

class WriteBacks {
 public:
  explicit WriteBacks(Parts& parts) : parts_(parts) {}

  void On(const WriteBackPurpose& purpose, const proto::WorkerOutcome& outcome);
  void On(ImageSaved& event);
  // A batch of a run that waited for other nodes has copies of its image there, or an error says why it does not count.
  void Copied(std::uint64_t number, const absl::Status& status);

  // `function`: whose state; none: of all functions of the model whose state is there.
  void Order(GpuIndex gpu, const ModelNumber& model, const StateNumber& function, WriteBackPurpose purpose);
  // A run counts as done when its state is safe: until then a worker that dies takes nothing with it.
  void SaveRun(const HeldStart& start, proto::WorkerOutcome run);
  // They were saved, and what they hold does not count: the files are again what they were.
  void Restore(const std::vector<ImagePtr>& images);
  // The image of a run of this state is being saved, or waits for other nodes. Until then the image before it stays in memory: the
  // file gets it back when the run does not count.
  [[nodiscard]] bool SavesRunOf(const StateNumber& state) const;

 private:
  struct Batch {
    WriteBackPurpose purpose{};
    GpuIndex gpu = 0;
    ModelNumber model{};   // in use until the batch ends; none: no model is
    std::size_t open = 0;  // images that are being saved
    absl::Status status{};
    std::vector<ImagePtr> images{};
    proto::ReleaseOrder slices{};  // of the worker; released when all are read
  };
  [[nodiscard]] bool Wants(const WriteBackPurpose& purpose, const proto::StateImage& image) const;
  void End(Batch batch);
  void Restored(const std::string& image);
  void RunSaved(const RunWrittenBack& purpose, const absl::Status& status,
                const std::vector<ImagePtr>& images);

  Parts& parts_;
  std::map<std::uint64_t, Batch> batches_;
  std::uint64_t last_batch_ = 0;
};

}  // namespace troupe::node
