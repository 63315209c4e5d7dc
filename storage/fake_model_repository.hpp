// A model repository in memory, for tests and the simulator. It keeps the contract of ModelRepository, and
// can be made full or damaged.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "storage/model_repository.hpp"

namespace troupe::storage {

// Threads: any. Writers must not outlive it.
class FakeModelRepository final : public ModelRepository {
 public:
  [[nodiscard]] absl::StatusOr<std::unique_ptr<ObjectWriter>> Create() override;
  [[nodiscard]] absl::StatusOr<std::unique_ptr<ObjectWriter>> Continue(const std::string& part) override;
  [[nodiscard]] std::vector<PartInfo> Parts() const override;
  [[nodiscard]] absl::Status RemovePart(const std::string& part) override;
  [[nodiscard]] absl::StatusOr<ObjectBytes> Open(const std::string& digest) override;
  [[nodiscard]] bool Has(const std::string& digest) const override;
  [[nodiscard]] absl::Status Remove(const std::string& digest) override;
  [[nodiscard]] absl::StatusOr<std::vector<ObjectInfo>> Collect(const std::set<std::string>& kept,
                                                                Duration unused_for) override;
  [[nodiscard]] std::vector<ObjectInfo> List() const override;
  [[nodiscard]] Bytes UsedBytes() const override;

  // From now on the disk holds no more than this; what exceeds it fails as a full disk does.
  void SetCapacity(Bytes capacity);
  // Changes the object's bytes behind its back; the next Open finds out.
  void Damage(const std::string& digest);

 private:
  class Writer;
  struct Object {
    std::shared_ptr<const std::vector<std::byte>> bytes;
    bool damaged = false;
    mutable Time used{};  // when it was put, opened or asked for last
  };
  mutable std::mutex mutex_;
  std::map<std::string, Object> objects_;
  struct Part {
    std::vector<std::byte> bytes;
    Time used;
  };
  std::map<std::string, Part> parts_;
  Bytes used_;  // with what is being written
  Bytes capacity_ = Bytes(UINT64_MAX);
};

}  // namespace troupe::storage
