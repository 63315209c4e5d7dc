// Pages in which workers count: what a reader sees while the worker lives, when it has ended, and when the page
// is not what it should be.
#include "gpu/worker/meter_page.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gpu/worker/meter_folder.hpp"
#include "gpu/worker/worker_meter.hpp"
#include "tests/temporary_directory.hpp"

namespace troupe::gpu::meter_page_test {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> Lines(const proto::MeterReading& page) {
  std::vector<std::string> lines;
  for (const auto& count : page.counts())
    lines.push_back(absl::StrCat(count.key(), ": ", count.gpu_ns(), " ns, ", count.runs(), " runs, ",
                                 count.bytes_moved(), " bytes"));
  return lines;
}

class MeterPageTest : public testing::Test {
 protected:
  std::unique_ptr<MeterWriter> Make(const std::string& name = "w.meter") {
    auto made = MeterWriter::Create(directory_.path() + "/" + name);
    EXPECT_TRUE(made.ok()) << made.status();
    return *std::move(made);
  }
  proto::MeterReading Read() {
    auto pages = MeterFolder(directory_.path()).Read();
    EXPECT_TRUE(pages.ok()) << pages.status();
    EXPECT_EQ(pages->size(), 1u);
    return pages->empty() ? proto::MeterReading() : pages->front();
  }
  troupe::test::TemporaryDirectory directory_;
};

TEST_F(MeterPageTest, CountsAreThereWhileTheWorkerLivesAndAfterwards) {
  auto writer = Make();
  writer->Count("t/f", milliseconds(2), 1, Bytes(10));
  writer->Count("/g", milliseconds(1), 1, Bytes(0));
  writer->Count("t/f", milliseconds(3), 1, Bytes(5));
  auto page = Read();
  EXPECT_FALSE(page.closed());
  EXPECT_EQ(page.page(), "w.meter");
  EXPECT_THAT(Lines(page),
              ElementsAre("t/f: 5000000 ns, 2 runs, 15 bytes", "/g: 1000000 ns, 1 runs, 0 bytes"));
  writer.reset();
  EXPECT_TRUE(Read().closed());
  EXPECT_EQ(Lines(Read()), Lines(page));
}

TEST_F(MeterPageTest, AnOrderWithoutAPayerIsNotCounted) {
  auto writer = Make();
  writer->Count("", milliseconds(2), 1, Bytes(10));
  EXPECT_THAT(Lines(Read()), IsEmpty());
}

TEST_F(MeterPageTest, WhatFindsNoSlotIsCountedWithoutAName) {
  auto writer = Make();
  for (std::size_t i = 1; i < MeterPage::kSlots; ++i)
    writer->Count(absl::StrCat("t/f", i), milliseconds(1), 1, Bytes(0));
  writer->Count("t/one-too-many", milliseconds(1), 1, Bytes(0));
  writer->Count(std::string(MeterSlot::kLongestKey + 1, 'x'), milliseconds(1), 1, Bytes(0));
  const auto page = Read();
  ASSERT_EQ(page.counts_size(), static_cast<int>(MeterPage::kSlots));
  EXPECT_EQ(page.counts(0).key(), "");
  EXPECT_EQ(page.counts(0).runs(), 2u);
}

TEST_F(MeterPageTest, AFileThatIsNotAPageHasNoCountsAndIsClosed) {
  std::ofstream(directory_.path() + "/short.meter") << "short";
  auto page = Read();
  EXPECT_THAT(Lines(page), IsEmpty());
  EXPECT_TRUE(page.closed());
  std::ofstream(directory_.path() + "/short.meter") << std::string(sizeof(MeterPage), 'x');
  page = Read();
  EXPECT_THAT(Lines(page), IsEmpty());
  EXPECT_TRUE(page.closed());
}

TEST_F(MeterPageTest, APageWithWildNumbersIsReadWithinItsBounds) {
  const auto path = directory_.path() + "/w.meter";
  {
    auto writer = Make();
    writer->Count("t/f", milliseconds(2), 1, Bytes(10));
  }
  auto bytes = std::vector<char>(sizeof(MeterPage));
  std::ifstream(path, std::ios::binary).read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  auto* page = reinterpret_cast<MeterPage*>(bytes.data());
  page->used.store(~std::uint64_t{0});
  page->slots[1].length.store(~std::uint64_t{0});
  page->slots[1].key[0] = '\n';
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  EXPECT_THAT(Lines(Read()), IsEmpty());
}

TEST_F(MeterPageTest, AFolderRemovesPagesAndNothingElse) {
  Make().reset();
  std::ofstream(directory_.path() + "/other") << "x";
  const MeterFolder folder(directory_.path());
  folder.Remove("other");
  folder.Remove("../" + std::filesystem::path(directory_.path()).filename().string() + "/w.meter");
  EXPECT_FALSE(Read().page().empty());
  folder.Remove("w.meter");
  EXPECT_THAT(*folder.Read(), IsEmpty());
  EXPECT_TRUE(std::filesystem::exists(directory_.path() + "/other"));
}

TEST_F(MeterPageTest, AFolderThatCannotBeListedIsAnError) {
  EXPECT_FALSE(MeterFolder(directory_.path() + "/none").Read().ok());
}

TEST_F(MeterPageTest, ARunPaysForItsShareOfTheMultiprocessors) {
  const std::shared_ptr<MeterWriter> writer = Make();
  const WorkerMeter meter(writer);
  const ShareLadder ladder(132, 8, 16);
  proto::WorkerOrder order;
  order.mutable_run()->set_meter("t/f");
  order.mutable_run()->mutable_sharing()->set_sm_partition(50);
  const auto payer = meter.PayerOf(order, ladder);
  EXPECT_EQ(payer.share.sms, ladder.For(50).sms);
  EXPECT_EQ(payer.share.of, 132u);
  proto::WorkerOutcome outcome;
  outcome.mutable_run()->set_compute_ns(132'000);
  outcome.set_bytes(7);
  meter.Count(payer, outcome);
  EXPECT_THAT(Lines(Read()),
              ElementsAre(absl::StrCat("t/f: ", payer.share.sms * 1000, " ns, 1 runs, 7 bytes")));
}

TEST_F(MeterPageTest, ARunDoesNotPayForWhatRunsBesideItHadOfTheGpu) {
  const std::shared_ptr<MeterWriter> writer = Make();
  const WorkerMeter meter(writer);
  proto::WorkerOrder order;
  order.mutable_run()->set_meter("t/f");
  const auto payer = meter.PayerOf(order, ShareLadder());
  proto::WorkerOutcome outcome;
  outcome.mutable_run()->set_compute_ns(1000);
  outcome.mutable_run()->set_others_ns(400);
  meter.Count(payer, outcome);
  outcome.mutable_run()->set_others_ns(1000);  // it counts as a run, however small its part was
  meter.Count(payer, outcome);
  EXPECT_THAT(Lines(Read()), ElementsAre("t/f: 600 ns, 2 runs, 0 bytes"));
}

TEST_F(MeterPageTest, CopiesOfATensorArePaidByItsFunction) {
  const std::shared_ptr<MeterWriter> writer = Make();
  const WorkerMeter meter(writer);
  proto::WorkerOrder exported, pulled;
  exported.mutable_export_tensor()->set_meter("t/f");
  pulled.mutable_pull()->set_meter("t/f");
  proto::WorkerOutcome outcome;
  outcome.set_bytes(100);
  meter.Count(meter.PayerOf(exported, ShareLadder()), outcome);
  meter.Count(meter.PayerOf(pulled, ShareLadder()), outcome);
  EXPECT_THAT(Lines(Read()), ElementsAre("t/f: 0 ns, 0 runs, 200 bytes"));
}

TEST_F(MeterPageTest, ARunThatDidNotComputePaysNothing) {
  const std::shared_ptr<MeterWriter> writer = Make();
  const WorkerMeter meter(writer);
  proto::WorkerOrder order;
  order.mutable_run()->set_meter("t/f");
  meter.Count(meter.PayerOf(order, ShareLadder()), proto::WorkerOutcome());
  EXPECT_THAT(Lines(Read()), IsEmpty());
}

}  // namespace
}  // namespace troupe::gpu::meter_page_test
