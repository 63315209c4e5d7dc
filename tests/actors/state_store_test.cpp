// The state images of functions in their files: a file that holds anything else is never loaded as a state.
#include "actors/node/state_store.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "storage/durable_file.hpp"
#include "tests/temporary_directory.hpp"

namespace troupe::actors {
namespace {

using testing::HasSubstr;

class StateStoreTest : public testing::Test {
 protected:
  StateStore Open() {
    return StateStore({.channel = nullptr, .directory = directory_.path(), .capacity = Bytes(100)});
  }
  static proto::StateImage Image(const std::string& function, const std::string& bytes) {
    proto::StateImage image;
    image.set_function(function);
    image.set_runs(7);
    auto& tensor = *image.add_tensors();
    *tensor.mutable_spec() = Spec(static_cast<std::int64_t>(bytes.size()));
    tensor.mutable_data()->set_inlined(bytes);
    return image;
  }
  static proto::TensorSpec Spec(std::int64_t size) {
    proto::TensorSpec spec;
    spec.set_name("s");
    spec.set_type(proto::UINT8);
    spec.add_shape(size);
    return spec;
  }
  static absl::StatusOr<node::ImagePtr> Save(StateStore& store, const proto::StateImage& image) {
    std::optional<absl::StatusOr<node::ImagePtr>> out;
    store.Save(nullptr, image, [&](auto kept) { out = std::move(kept); });
    return *out;
  }
  absl::StatusOr<node::ImagePtr> Load(const std::string& function, std::int64_t size) {
    StateStore store = Open();
    std::optional<absl::StatusOr<node::ImagePtr>> out;
    store.Load(nullptr, function, {Spec(size)}, [&](auto kept) { out = std::move(kept); });
    return *out;
  }
  std::string File(const std::string& function) { return StateFile(directory_.path(), function); }

  test::TemporaryDirectory directory_;
};

TEST_F(StateStoreTest, WhatWasSavedIsLoadedByTheNext) {
  StateStore store = Open();
  ASSERT_TRUE(Save(store, Image("f/1@5", "abcd")).ok());
  EXPECT_EQ(store.Find("f/1@5"), nullptr) << "the image is kept by its saver, not by the store";
  const auto loaded = Load("f/1@5", 4);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ((*loaded)->runs(), 7u);
  EXPECT_EQ((*loaded)->tensors(0).data().inlined(), "abcd");
  EXPECT_TRUE(absl::IsNotFound(Load("f/2@5", 4).status()));
  store.Forget(nullptr, "f/1@5");
  EXPECT_TRUE(absl::IsNotFound(Load("f/1@5", 4).status()));
}

TEST_F(StateStoreTest, WhatAnEarlierDaemonWasWritingGoesAndNothingElse) {
  StateStore store = Open();
  ASSERT_TRUE(Save(store, Image("f/1@5", "abcd")).ok());
  std::ofstream(File("f/1@5") + ".tmp") << "half";
  std::ofstream(File("g/1@5") + ".tmp") << "half";
  EXPECT_TRUE(storage::RemoveUnfinished(directory_.path()).ok());
  EXPECT_FALSE(std::filesystem::exists(File("f/1@5") + ".tmp"));
  EXPECT_FALSE(std::filesystem::exists(File("g/1@5") + ".tmp"));
  EXPECT_TRUE(Load("f/1@5", 4).ok());
  EXPECT_TRUE(absl::IsNotFound(storage::RemoveUnfinished(directory_ / "absent")));
}

TEST_F(StateStoreTest, NothingFromDiskIsTrusted) {
  StateStore store = Open();
  ASSERT_TRUE(Save(store, Image("f/1@5", "abcd")).ok());
  const auto refused = [&](const std::string& function, std::int64_t size) {
    const auto loaded = Load(function, size);
    EXPECT_TRUE(absl::IsDataLoss(loaded.status()));
    EXPECT_TRUE(std::filesystem::exists(File(function) + ".damaged"));
    EXPECT_FALSE(std::filesystem::exists(File(function)));
    return std::string(loaded.status().message());
  };
  std::filesystem::copy(File("f/1@5"), File("g/1@5"));
  EXPECT_THAT(refused("g/1@5", 4), HasSubstr("is of 'f/1@5'"));
  std::filesystem::copy(File("f/1@5"), directory_ / "aside");
  EXPECT_THAT(refused("f/1@5", 5), HasSubstr("other tensors than the function declares"));
  std::filesystem::copy(directory_ / "aside", File("f/1@5"));
  std::filesystem::resize_file(File("f/1@5"), std::filesystem::file_size(File("f/1@5")) - 1);
  EXPECT_THAT(refused("f/1@5", 4), HasSubstr("is damaged"));
  std::ofstream(File("f/1@5")) << "";
  EXPECT_THAT(refused("f/1@5", 4), HasSubstr("is damaged"));
}

// An image that was saved and does not count is not what the next daemon finds.
TEST_F(StateStoreTest, ARestoredFileIsTheImageThatCounts) {
  StateStore store = Open();
  const auto kept = Save(store, Image("f/1@5", "abcd"));
  ASSERT_TRUE(kept.ok());
  store.Keep(*kept);
  ASSERT_TRUE(Save(store, Image("f/1@5", "efgh")).ok());
  store.Restore(nullptr, "f/1@5");
  const auto loaded = Load("f/1@5", 4);
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ((*loaded)->tensors(0).data().inlined(), "abcd");
  ASSERT_TRUE(Save(store, Image("g/1@6", "abcd")).ok());
  store.Restore(nullptr, "g/1@6");
  EXPECT_TRUE(absl::IsNotFound(Load("g/1@6", 4).status())) << "the function had no image before";
}

// The image in memory is what the file gets back, so it goes only behind that.
TEST_F(StateStoreTest, AnImageThatIsUnloadedBehindARestoreIsInItsFile) {
  StateStore store = Open();
  store.Keep(*Save(store, Image("f/1@5", "good")));
  store.Save(nullptr, Image("f/1@5", "lost"), [&](const auto&) {
    store.Restore(nullptr, "f/1@5");
    store.Unload(nullptr, "f/1@5");
  });
  EXPECT_EQ(store.Find("f/1@5"), nullptr);
  const auto loaded = Load("f/1@5", 4);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ((*loaded)->tensors(0).data().inlined(), "good");
}

TEST_F(StateStoreTest, TheFileOfTheNewestSaveIsRestoredWhicheverSaveIsKept) {
  StateStore store = Open();
  const auto first = Save(store, Image("f/1@5", "abcd"));
  ASSERT_TRUE(Save(store, Image("f/1@5", "efgh")).ok());
  store.Keep(*first);
  store.Restore(nullptr, "f/1@5");
  const auto loaded = Load("f/1@5", 4);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ((*loaded)->tensors(0).data().inlined(), "abcd");
}

// --- files that move to another node ---

class MovedStateTest : public StateStoreTest {
 protected:
  static proto::FetchReply Part(StateStore& store, const std::string& function, std::uint64_t offset,
                                std::uint64_t length) {
    proto::FetchImage part;
    part.set_image(function);
    part.set_offset(offset);
    part.set_length(length);
    proto::FetchReply out;
    store.Read(nullptr, part, [&](proto::FetchReply reply) { out = std::move(reply); });
    return out;
  }
  static std::string Text(StateStore& store, const std::string& function) {
    std::string text;
    while (true) {
      const auto part = Part(store, function, text.size(), 10);
      EXPECT_EQ(part.code(), 0) << part.message();
      text += part.data().inlined();
      if (text.size() == part.total() || part.data().inlined().empty()) return text;
    }
  }
  static absl::Status Import(StateStore& store, const std::string& function, std::int64_t size,
                             std::string text) {
    absl::Status out = absl::UnknownError("it was not answered");
    store.Import(nullptr, function, {Spec(size)}, std::move(text), [&](const auto& status) { out = status; });
    return out;
  }
  StateStore Other(bool on_disk = true) {
    return StateStore(
        {.channel = nullptr, .directory = on_disk ? other_.path() : "", .capacity = Bytes(100)});
  }

  test::TemporaryDirectory other_;
};

TEST_F(MovedStateTest, AFileIsReadInPartsAndIsTheImageThere) {
  StateStore store = Open();
  ASSERT_TRUE(Save(store, Image("f/1@5#chat", "abcd")).ok());
  StateStore other = Other();
  ASSERT_EQ(Import(other, "f/1@5#chat", 4, Text(store, "f/1@5#chat")), absl::OkStatus());
  EXPECT_TRUE(std::filesystem::exists(StateFile(other_.path(), "f/1@5#chat")));
  std::optional<absl::StatusOr<node::ImagePtr>> loaded;
  other.Load(nullptr, "f/1@5#chat", {Spec(4)}, [&](auto image) { loaded = std::move(image); });
  ASSERT_TRUE(loaded && loaded->ok());
  EXPECT_EQ((**loaded)->runs(), 7u);
  EXPECT_EQ((**loaded)->tensors(0).data().inlined(), "abcd");
}

TEST_F(MovedStateTest, WithoutADirectoryItMovesFromMemoryToMemory) {
  StateStore store = Other(false);
  const auto kept = Save(store, Image("f/1@5#chat", "abcd"));
  ASSERT_TRUE(kept.ok());
  store.Keep(*kept);
  StateStore other = Other(false);
  ASSERT_EQ(Import(other, "f/1@5#chat", 4, Text(store, "f/1@5#chat")), absl::OkStatus());
  std::vector<std::string> listed;
  other.LoadWithSequences(nullptr, "f/1@5", {Spec(4)}, [&](auto, auto sequences) { listed = sequences; });
  EXPECT_THAT(listed, testing::ElementsAre("chat"));
}

TEST_F(MovedStateTest, WhatIsNotTheImageIsRefusedAndLeavesWhatWasThere) {
  StateStore store = Open();
  ASSERT_TRUE(Save(store, Image("f/1@5", "abcd")).ok());
  const auto text = Text(store, "f/1@5");
  StateStore other = Other();
  ASSERT_TRUE(Import(other, "f/1@5", 4, text).ok());
  auto wrong = text;
  wrong.back() ^= 1;
  EXPECT_TRUE(absl::IsDataLoss(Import(other, "f/1@5", 4, wrong)));
  EXPECT_TRUE(absl::IsDataLoss(Import(other, "f/1@5", 4, text.substr(0, 20))));
  EXPECT_TRUE(absl::IsDataLoss(Import(other, "f/1@5", 5, text))) << "another shape";
  EXPECT_TRUE(absl::IsDataLoss(Import(other, "g/1@5", 4, text))) << "another function";
  EXPECT_EQ(Text(other, "f/1@5"), text);
}

TEST_F(MovedStateTest, ARunThatDoesNotCountRestoresNothingOverWhatCameSince) {
  StateStore source = Open();
  ASSERT_TRUE(Save(source, Image("f/1@5", "abcd")).ok());
  StateStore store = Other();
  ASSERT_TRUE(Save(store, Image("f/1@5", "efgh")).ok());
  ASSERT_TRUE(Import(store, "f/1@5", 4, Text(source, "f/1@5")).ok());
  store.Restore(nullptr, "f/1@5");
  EXPECT_EQ(Text(store, "f/1@5"), Text(source, "f/1@5"));
}

TEST_F(MovedStateTest, OnlyPartsThatFitAMessageAreRead) {
  StateStore store = Open();
  ASSERT_TRUE(Save(store, Image("f/1@5", "abcd")).ok());
  EXPECT_EQ(Part(store, "f/1@5", 0, StateStore::kLongestPart + 1).code(),
            static_cast<int>(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(Part(store, "g/1@5", 0, 10).code(), static_cast<int>(absl::StatusCode::kNotFound));
  EXPECT_EQ(Part(store, "f/1@5", 1 << 20, 10).data().inlined(), "") << "behind its end";
}

}  // namespace
}  // namespace troupe::actors
