// What actors may expect of any ModelRepository: the fake and the production form.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <memory>
#include <set>
#include <string>

#include "actors/seams/fake_model_repository.hpp"
#include "actors/seams/stored_model_repository.hpp"
#include "base/digest.hpp"
#include "storage/disk_model_repository.hpp"
#include "storage/model_objects.hpp"
#include "tests/temporary_directory.hpp"
#include "transport/fake_tensor_channel.hpp"
#include "transport/host_region.hpp"

namespace troupe::actors {
namespace {

namespace fs = std::filesystem;

class Repository {
 public:
  virtual ~Repository() = default;
  virtual ModelRepository& get() = 0;
  // Makes a model whose objects are in the repository.
  virtual proto::FunctionRecord AddModel(const std::string& name) = 0;
  // Makes an ONNX file that can be imported once it has been received.
  virtual void ExpectImport(const std::string& onnx_digest) = 0;
  // From now on no file can be imported.
  virtual void EndImports() {}
  virtual void LoseObject(const std::string&) {}
  [[nodiscard]] virtual std::size_t HostCopies() const = 0;
  // The bytes that were made ready to be sent and not yet released.
  [[nodiscard]] virtual Bytes unreleased() const = 0;
};

class Fake final : public Repository {
 public:
  ModelRepository& get() override { return repository_; }
  proto::FunctionRecord AddModel(const std::string& name) override {
    proto::FunctionRecord record;
    record.set_model_digest(Sha256Hex("model " + name));
    record.set_weights_digest(Sha256Hex("weights " + name));
    record.set_weights_bytes(5000);
    record.set_model_bytes(100);
    repository_.AddModel(Sha256Hex("onnx " + name), record);
    return record;
  }
  void ExpectImport(const std::string& onnx_digest) override {
    proto::FunctionRecord record;
    record.set_model_digest(Sha256Hex("imported"));
    record.set_weights_digest(Sha256Hex("imported weights"));
    record.set_model_bytes(1);
    record.set_weights_bytes(4000);
    record.add_inputs()->set_name("image");
    record.add_outputs()->set_name("probabilities");
    repository_.AddModel(onnx_digest, record);
  }
  [[nodiscard]] std::size_t HostCopies() const override { return repository_.host_copies(); }
  [[nodiscard]] Bytes unreleased() const override { return {}; }

 private:
  FakeModelRepository repository_;
};

class Stored final : public Repository {
 public:
  Stored() {
    auto objects = storage::DiskModelRepository::At(directory_ / "models");
    EXPECT_TRUE(objects.ok()) << objects.status();
    objects_ = *std::move(objects);
    auto host = storage::HostSegments::Create({.name = "repository-contract", .budget = MiB(4)});
    EXPECT_TRUE(host.ok()) << host.status();
    host_ = *std::move(host);
    const char* build = std::getenv("TROUPE_BUILD_DIR");
    StoredModelRepository::Options options;
    fs::create_symlink(
        fs::absolute(fs::path(build == nullptr ? "build/release" : build) / "bin/troupe-import"),
        directory_ / "importer");
    options.import_program = directory_ / "importer";
    options.work_directory = directory_ / "work";
    repository_ =
        std::make_unique<StoredModelRepository>(std::move(options), *objects_, host_.get(), channel_);
  }
  ~Stored() override {
    repository_.reset();
    objects_.reset();
  }
  ModelRepository& get() override { return *repository_; }
  proto::FunctionRecord AddModel(const std::string& name) override {
    std::string weights(5000, 'w');
    weights += name;
    proto::Model model;
    model.set_format_version(1);
    model.set_name(name);
    model.set_weights_bytes(weights.size());
    model.set_weights_digest(Sha256Hex(weights));
    const auto file = directory_ / "weights";
    std::ofstream(file, std::ios::binary | std::ios::trunc) << weights;
    const auto digest = storage::PutModel(*objects_, model, file);
    EXPECT_TRUE(digest.ok()) << digest.status();
    proto::FunctionRecord record;
    record.set_model_digest(*digest);
    record.set_weights_digest(model.weights_digest());
    record.set_weights_bytes(weights.size());
    record.set_model_bytes(model.ByteSizeLong());
    return record;
  }
  void ExpectImport(const std::string&) override {}
  void EndImports() override { fs::remove(directory_ / "importer"); }
  void LoseObject(const std::string& digest) override { EXPECT_TRUE(objects_->Remove(digest).ok()); }
  [[nodiscard]] std::size_t HostCopies() const override {
    const auto usage = repository_->host_usage();
    EXPECT_EQ(usage.models == 0, usage.used == Bytes(0)) << "a copy takes room, and only a copy does";
    return usage.models;
  }
  [[nodiscard]] Bytes unreleased() const override { return channel_.used(); }

 private:
  test::TemporaryDirectory directory_;
  std::unique_ptr<storage::DiskModelRepository> objects_;
  std::unique_ptr<storage::HostSegments> host_;
  transport::FakeTensorChannel channel_{transport::FakeTensorChannel::NewWorld(), MiB(4)};
  std::unique_ptr<StoredModelRepository> repository_;
};

class ModelRepositoryContract : public ::testing::TestWithParam<bool> {
 protected:
  ModelRepositoryContract() {
    if (GetParam()) {
      made_ = std::make_unique<Stored>();
    } else {
      made_ = std::make_unique<Fake>();
    }
  }
  ModelRepository& repository() { return made_->get(); }

  template <class T, class Ask>
  absl::StatusOr<T> Wait(Ask ask) {
    auto promise = std::make_shared<std::promise<absl::StatusOr<T>>>();
    auto future = promise->get_future();
    ask([promise](absl::StatusOr<T> value) { promise->set_value(std::move(value)); });
    if (future.wait_for(std::chrono::seconds(100)) != std::future_status::ready)
      return absl::DeadlineExceededError("never answered");
    return future.get();
  }
  absl::StatusOr<std::uint64_t> Receive(std::uint64_t offset, const std::string& data, bool last = false,
                                        const std::string& digest = "") {
    return Wait<std::uint64_t>(
        [&](auto done) { repository().Receive("upload", offset, data, last, digest, done); });
  }
  absl::StatusOr<proto::FetchReply> Read(const std::string& digest, std::uint64_t offset,
                                         std::uint64_t length) {
    proto::FetchObject part;
    part.set_digest(digest);
    part.set_offset(offset);
    part.set_length(length);
    return Wait<proto::FetchReply>([&](auto done) { repository().Read(part, done); });
  }
  // Of an object of 300,000 bytes that is being received.
  absl::StatusOr<proto::FetchReply> ReadReceived(const std::string& digest, std::uint64_t offset,
                                                 std::uint64_t length) {
    proto::FetchObject part;
    part.set_digest(digest);
    part.set_offset(offset);
    part.set_length(length);
    return Wait<proto::FetchReply>(
        [&](auto done) { repository().ReadReceived("upload", 300'000, part, done); });
  }
  absl::StatusOr<std::string> Load(const proto::TensorRef& ref, const std::string& sha256) {
    return Wait<std::string>(
        [&](auto done) { repository().Load(ref, sha256, std::chrono::seconds(10), done); });
  }
  absl::StatusOr<proto::RangeDigest> Digest(const std::string& digest, std::uint64_t offset,
                                            std::uint64_t length) {
    proto::DigestRange range;
    range.set_digest(digest);
    range.set_offset(offset);
    range.set_length(length);
    return Wait<proto::RangeDigest>([&](auto done) { repository().Digest(range, done); });
  }
  // Reads the object as a cache does it: part by part, each released.
  std::string ReadWhole(const std::string& digest, std::uint64_t length) {
    std::string bytes;
    std::uint64_t total = 1;
    while (bytes.size() < total) {
      const auto part = Read(digest, bytes.size(), length);
      EXPECT_TRUE(part.ok()) << part.status();
      if (!part.ok()) break;
      total = part->total();
      const auto data = Load(part->data(), "");
      EXPECT_TRUE(data.ok()) << data.status();
      if (!data.ok() || data->empty()) break;
      bytes += *data;
      repository().Release(part->release());
    }
    return bytes;
  }
  absl::StatusOr<proto::HostCopy> Adopt(const proto::FunctionRecord& function, const std::string& key = {}) {
    return Wait<proto::HostCopy>([&](auto done) { repository().Adopt(function, key, done); });
  }

  std::unique_ptr<Repository> made_;
};

std::string Content(std::size_t size) {
  std::string bytes(size, '\0');
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>((i * 7 + i / 256) % 256);
  return bytes;
}

TEST_P(ModelRepositoryContract, ARangeIsComparedWithTheDigestThatAnotherRepositorySays) {
  const auto bytes = Content(300'000);
  const auto digest = Sha256Hex(bytes);
  ASSERT_TRUE(Receive(0, bytes, true, digest).ok());
  const auto middle = Digest(digest, 100'000, 120'000);
  ASSERT_TRUE(middle.ok()) << middle.status();
  EXPECT_EQ(middle->total(), bytes.size());
  EXPECT_EQ(middle->sha256(), Sha256Hex(bytes.substr(100'000, 120'000)));
  EXPECT_EQ(Digest(digest, 250'000, 120'000)->sha256(), Sha256Hex(bytes.substr(250'000))) << "cut at the end";
  EXPECT_EQ(Digest(digest, 0, 0)->total(), bytes.size());
  EXPECT_EQ(Digest(digest, bytes.size() + 1, 1).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(Digest(Sha256Hex("no such object"), 0, 1).status().code(), absl::StatusCode::kNotFound);

  const auto part = Read(digest, 100'000, 120'000);
  ASSERT_TRUE(part.ok()) << part.status();
  EXPECT_EQ(Load(part->data(), middle->sha256()).value(), bytes.substr(100'000, 120'000));
  EXPECT_EQ(Load(part->data(), Sha256Hex("other bytes")).status().code(), absl::StatusCode::kDataLoss);
  repository().Release(part->release());
}

TEST_P(ModelRepositoryContract, AnObjectIsReceivedInPartsAndReadBackInParts) {
  const auto bytes = Content(300'000);
  const auto digest = Sha256Hex(bytes);
  EXPECT_EQ(*Receive(0, bytes.substr(0, 100'000)), 100'000u);
  EXPECT_FALSE(repository().Has(digest));
  EXPECT_EQ(*Receive(100'000, bytes.substr(100'000, 150'000)), 250'000u);
  EXPECT_EQ(*Receive(250'000, bytes.substr(250'000), true, digest), bytes.size());
  EXPECT_TRUE(repository().Has(digest));
  EXPECT_EQ(ReadWhole(digest, 120'000), bytes);
  EXPECT_EQ(ReadWhole(digest, 1'000'000), bytes);
  EXPECT_EQ(made_->unreleased(), Bytes(0));
}

TEST_P(ModelRepositoryContract, WhatHasComeOfAnObjectIsReadBeforeItIsWhole) {
  const auto bytes = Content(300'000);
  const auto digest = Sha256Hex(bytes);
  EXPECT_TRUE(absl::IsNotFound(ReadReceived(digest, 0, 1).status()));
  ASSERT_TRUE(Receive(0, bytes.substr(0, 100'000)).ok());
  const auto part = ReadReceived(digest, 20'000, 80'000);
  ASSERT_TRUE(part.ok()) << part.status();
  EXPECT_EQ(part->total(), bytes.size());
  EXPECT_EQ(Load(part->data(), Sha256Hex(bytes.substr(20'000, 80'000))).value(),
            bytes.substr(20'000, 80'000));
  repository().Release(part->release());
  EXPECT_TRUE(absl::IsNotFound(ReadReceived(digest, 20'000, 80'001).status()));
  ASSERT_TRUE(Receive(100'000, bytes.substr(100'000)).ok());
  const auto end = ReadReceived(digest, 290'000, 10'000);
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(Load(end->data(), "").value(), bytes.substr(290'000)) << "before the object is synced";
  repository().Release(end->release());
  ASSERT_TRUE(Receive(bytes.size(), "", true, digest).ok());
  EXPECT_TRUE(repository().Has(digest));
  EXPECT_EQ(ReadWhole(digest, 120'000), bytes);
  EXPECT_EQ(made_->unreleased(), Bytes(0));
}

TEST_P(ModelRepositoryContract, AnObjectWithoutBytesIsReceived) {
  ASSERT_TRUE(Receive(0, "").ok());
  ASSERT_TRUE(Receive(0, "", true, Sha256Hex("")).ok());
  EXPECT_TRUE(repository().Has(Sha256Hex("")));
}

TEST_P(ModelRepositoryContract, BytesOfAnotherDigestAreDataLossAndLeaveNothing) {
  const auto bytes = Content(1000);
  const auto digest = Sha256Hex("something else");
  ASSERT_TRUE(Receive(0, bytes.substr(0, 500)).ok());
  EXPECT_TRUE(absl::IsDataLoss(Receive(500, bytes.substr(500), true, digest).status()));
  EXPECT_FALSE(repository().Has(digest));
  EXPECT_FALSE(repository().Has(Sha256Hex(bytes)));
  EXPECT_TRUE(Receive(0, bytes, true, Sha256Hex(bytes)).ok()) << "the same upload may begin again";
}

TEST_P(ModelRepositoryContract, AGapIsRefusedAndAnUploadMayBeginAgain) {
  const auto bytes = Content(1000);
  ASSERT_TRUE(Receive(0, bytes.substr(0, 400)).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(Receive(500, bytes.substr(500)).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Receive(300, bytes.substr(300)).status()));
  ASSERT_TRUE(Receive(0, bytes.substr(0, 600)).ok());
  EXPECT_TRUE(Receive(600, bytes.substr(600), true, Sha256Hex(bytes)).ok());
  EXPECT_TRUE(repository().Has(Sha256Hex(bytes)));
}

TEST_P(ModelRepositoryContract, WhatIsNotThereIsNotFound) {
  const auto nothing = Sha256Hex("nothing");
  EXPECT_FALSE(repository().Has(nothing));
  EXPECT_TRUE(absl::IsNotFound(Read(nothing, 0, 10).status()));
  EXPECT_TRUE(absl::IsNotFound(Wait<proto::FunctionRecord>([&](auto done) {
                                 repository().Import({nothing}, "client", done);
                               }).status()));
  proto::FunctionRecord function;
  function.set_model_digest(nothing);
  function.set_weights_digest(nothing);
  EXPECT_TRUE(absl::IsNotFound(Adopt(function).status()));
  EXPECT_EQ(made_->HostCopies(), 0u);
}

TEST_P(ModelRepositoryContract, APartBehindTheEndIsOutOfRange) {
  const auto bytes = Content(1000);
  const auto digest = Sha256Hex(bytes);
  ASSERT_TRUE(Receive(0, bytes, true, digest).ok());
  EXPECT_TRUE(absl::IsOutOfRange(Read(digest, 1001, 1).status()));
  const auto tail = Read(digest, 990, 100);
  ASSERT_TRUE(tail.ok()) << tail.status();
  EXPECT_EQ(tail->data().inlined(), bytes.substr(990));
  repository().Release(tail->release());
  repository().Release(12345);  // a release of an unknown token has nothing to do
}

TEST_P(ModelRepositoryContract, ATensorIsKeptAsAnObjectOfItsDigest) {
  proto::TensorRef ref;
  ref.set_inlined(Content(2000));
  const auto digest = Wait<std::string>([&](auto done) { repository().Keep(ref, done); });
  ASSERT_TRUE(digest.ok()) << digest.status();
  EXPECT_EQ(*digest, Sha256Hex(ref.inlined()));
  EXPECT_TRUE(repository().Has(*digest));
  EXPECT_EQ(ReadWhole(*digest, 1500), ref.inlined());
}

TEST_P(ModelRepositoryContract, AdoptingTwiceGivesTheSameCopyAndDisowningFreesIt) {
  const auto one = made_->AddModel("one");
  const auto two = made_->AddModel("two");
  for (const auto& digest : repository().ObjectsOf(one)) EXPECT_TRUE(repository().Has(digest));
  const auto first = Adopt(one);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->weights().length(), one.weights_bytes());
  const auto again = Adopt(one);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->SerializeAsString(), first->SerializeAsString());
  EXPECT_EQ(made_->HostCopies(), 1u);
  const auto other = Adopt(two);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_NE(other->digest(), first->digest());
  EXPECT_EQ(made_->HostCopies(), 2u);
  repository().Disown(one.model_digest(), "");
  EXPECT_EQ(made_->HostCopies(), 1u);
  repository().Disown(one.model_digest(), "");  // the copy is gone already
  repository().Disown(two.model_digest(), "");
  repository().Disown(Sha256Hex("never adopted"), "");
  EXPECT_EQ(made_->HostCopies(), 0u);
  EXPECT_TRUE(Adopt(one).ok()) << "the objects of the disowned model are still there";
}

TEST_P(ModelRepositoryContract, AReceivedFileIsImportedAndCanBeAdopted) {
  std::ifstream file("examples/digits/digits.onnx", std::ios::binary);
  const std::string onnx{std::istreambuf_iterator<char>(file), {}};
  ASSERT_FALSE(onnx.empty());
  const auto digest = Sha256Hex(onnx);
  ASSERT_TRUE(Receive(0, onnx, true, digest).ok());
  made_->ExpectImport(digest);
  const auto record =
      Wait<proto::FunctionRecord>([&](auto done) { repository().Import({digest}, "client", done); });
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_EQ(record->onnx_digest(), digest);
  EXPECT_EQ(record->inputs_size(), 1);
  EXPECT_EQ(record->outputs_size(), 1);
  for (const auto& object : repository().ObjectsOf(*record)) EXPECT_TRUE(repository().Has(object));
  const auto copy = Adopt(*record);
  ASSERT_TRUE(copy.ok()) << copy.status();
  EXPECT_EQ(copy->weights().length(), record->weights_bytes());
  // Another function of the same file needs no import.
  made_->EndImports();
  const auto again =
      Wait<proto::FunctionRecord>([&](auto done) { repository().Import({digest}, "client", done); });
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->SerializeAsString(), record->SerializeAsString());
  // Nor does one where GPUs are larger than it has to be.
  const proto::StageWish larger{{Bytes(record->weights_bytes()), Bytes(record->weights_bytes())}};
  const auto fits = Wait<proto::FunctionRecord>([&](auto done) {
    repository().Import({digest, proto::PRECISION_FP32, larger}, "client", done);
  });
  ASSERT_TRUE(fits.ok()) << fits.status();
  EXPECT_EQ(fits->model_digest(), record->model_digest());
  if (!GetParam()) return;
  made_->LoseObject(record->weights_digest());
  ASSERT_FALSE(repository().Has(record->weights_digest()));
  EXPECT_FALSE(
      Wait<proto::FunctionRecord>([&](auto done) { repository().Import({digest}, "client", done); }).ok())
      << "a lost object is reported as present";
}

// What each stage reads is an input of the model, or an output of a stage before it.
TEST_P(ModelRepositoryContract, AFileIsImportedStageByStage) {
  std::ifstream file("examples/digits/digits.onnx", std::ios::binary);
  const std::string onnx{std::istreambuf_iterator<char>(file), {}};
  const auto digest = Sha256Hex(onnx);
  ASSERT_TRUE(Receive(0, onnx, true, digest).ok());
  made_->ExpectImport(digest);
  const auto import = [&](const proto::StageWish& stages) {
    return Wait<proto::FunctionRecord>([&](auto done) {
      repository().Import({digest, proto::PRECISION_FP32, stages}, "client", done);
    });
  };
  const auto whole = import({});
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->stage().count(), 0);
  std::set<std::string> values = {whole->inputs(0).name()};
  proto::StageWish wish{{Bytes(whole->weights_bytes() - 1), Bytes(whole->weights_bytes() * 3 / 4)}};
  std::uint32_t count = 2;
  proto::FunctionRecord last;
  for (; wish.number <= count; ++wish.number) {
    const auto stage = import(wish);
    ASSERT_TRUE(stage.ok()) << stage.status();
    EXPECT_EQ(stage->stage().number(), wish.number);
    count = stage->stage().count();
    EXPECT_LE(Bytes(stage->weights_bytes()), wish.bounds.most);
    for (const auto& input : stage->inputs()) EXPECT_TRUE(values.contains(input.name())) << input.name();
    for (const auto& output : stage->outputs()) values.insert(output.name());
    for (const auto& object : repository().ObjectsOf(*stage)) EXPECT_TRUE(repository().Has(object));
    last = *stage;
    // The first stage's import has made the others.
    if (wish.number == 1) made_->EndImports();
  }
  EXPECT_GE(count, 2);
  ASSERT_EQ(last.stage().model_outputs_size(), 1);
  EXPECT_EQ(last.stage().model_outputs(0), last.outputs(0).name());
}

INSTANTIATE_TEST_SUITE_P(Forms, ModelRepositoryContract, ::testing::Bool(),
                         [](const auto& form) { return form.param ? "Stored" : "Fake"; });

}  // namespace
}  // namespace troupe::actors
