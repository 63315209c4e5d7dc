// The audit log, which says which client changed what: its lines, its file, and a disk that takes none.
#include "storage/audit_log.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "tests/temporary_directory.hpp"

namespace troupe::storage {
namespace {

AuditLine Line(const std::string& what, const std::string& who = "key/ci") {
  AuditLine line;
  line.unix_ns = 1'700'000'000'123'456'000;
  line.who = who;
  line.from = "10.0.0.5";
  line.action = "function.deploy";
  line.what = what;
  SetResult(absl::OkStatus(), line);
  return line;
}

class Audit : public testing::Test {
 protected:
  std::unique_ptr<FileAuditLog> Open(Bytes max_file = MiB(8), std::size_t files = 8) {
    FileAuditLog::Options options{
        .directory = directory_ / "audit", .max_file = max_file, .files = files, .say = {}};
    options.say = [this](const std::string& line) {
      const std::lock_guard lock(mutex_);
      said_ += line;
    };
    options.retry = std::chrono::milliseconds(1);
    auto log = FileAuditLog::Open(std::move(options));
    EXPECT_TRUE(log.ok()) << log.status();
    return *std::move(log);
  }
  // Appends a line and waits for the answer.
  absl::Status Append(FileAuditLog& log, const AuditLine& line) {
    std::optional<absl::Status> answer;
    log.Append(line, [&](absl::Status status) {
      const std::lock_guard lock(mutex_);
      answer = std::move(status);
      changed_.notify_all();
    });
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return answer.has_value(); });
    return *answer;
  }
  std::vector<AuditLine> Read(const AuditQuery& query = {.last = 1'000'000, .who = "", .what = ""}) {
    auto lines = ReadAudit(directory_ / "audit", query, damaged_);
    EXPECT_TRUE(lines.ok()) << lines.status();
    return lines.ok() ? *std::move(lines) : std::vector<AuditLine>();
  }
  [[nodiscard]] std::string Newest() const { return directory_ / "audit/audit.jsonl"; }
  std::string said() {
    const std::lock_guard lock(mutex_);
    return said_;
  }

  test::TemporaryDirectory directory_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string said_;
  std::size_t damaged_ = 0;
};

TEST_F(Audit, ALineIsOneJsonObject) {
  auto line = Line("function 'x' \"y\"\n\x01\xff end");
  line.number = 7;
  line.via = "gateway-1";
  SetResult(absl::NotFoundError("there is none"), line);
  const auto text = FormatAuditLine(line);
  EXPECT_EQ(
      text,
      R"({"number":7,"time":"2023-11-14T22:13:20.123456Z","who":"key/ci","from":"10.0.0.5","via":"gateway-1",)"
      R"("action":"function.deploy","what":"function 'x' \"y\"??? end","result":"NOT_FOUND",)"
      R"("message":"there is none"})"
      "\n");
  const auto back = ParseAuditLine(text);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(FormatAuditLine(*back), text);
  EXPECT_LT(FormatAuditLine(Line(std::string(1 << 20, 'x'))).size(), 2048U);
  for (const auto bad :
       {"", "{}", "[1]", "{\"number\":1}", "{\"number\":\"1\",\"time\":\"2023-11-14T22:13:20Z\"}"})
    EXPECT_FALSE(ParseAuditLine(bad).ok()) << bad;
}

TEST_F(Audit, AChangeIsToldByItsEndAndWithoutAnEndByItsBeginning) {
  const auto log = Open();
  const auto append = [&](std::uint64_t change, const std::string& what, bool begun) {
    auto line = Line(what);
    line.change = change;
    if (begun) line.result = kAuditBegun;
    EXPECT_TRUE(Append(*log, line).ok());
  };
  append(1, "lost", true);  // the manager was killed; the next one counts from 1 again
  append(1, "first", true);
  append(2, "second", true);
  append(2, "second version 3", false);
  append(1, "first version 1", false);
  append(3, "under way", true);
  std::vector<std::string> told;
  for (const auto& line : Read()) {
    told.push_back(line.what);
    EXPECT_EQ(line.message.empty(), line.result != kAuditBegun) << line.what;
  }
  EXPECT_EQ(told, (std::vector<std::string>{"lost", "second version 3", "first version 1", "under way"}));
  EXPECT_EQ(Read({.last = 2, .who = "", .what = "first"}).size(), 1U);
}

TEST_F(Audit, LinesAreThereWhenTheyAreAnsweredAndNumberedOnAfterARestart) {
  {
    const auto log = Open();
    EXPECT_TRUE(Append(*log, Line("a")).ok());
    EXPECT_EQ(Read().size(), 1U) << "the file is written while the daemon runs";
    EXPECT_TRUE(Append(*log, Line("b", "user/0")).ok());
  }
  struct stat found {};
  ASSERT_EQ(::stat(Newest().c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0600U);
  std::ofstream(Newest(), std::ios::app)
      << R"({"number":3,"time":"2023)";  // a line of a daemon that was killed
  {
    const auto log = Open();
    EXPECT_TRUE(Append(*log, Line("c", "key/cd")).ok());
  }
  const auto lines = Read();
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(damaged_, 0U);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(lines[i].number, i + 1);
  EXPECT_EQ(Read({.last = 1, .who = "", .what = ""}).front().what, "c");
  EXPECT_EQ(Read({.last = 9, .who = "key", .what = ""}).size(), 2U);
  EXPECT_EQ(Read({.last = 9, .who = "key/ci", .what = ""}).size(), 1U);
  EXPECT_EQ(Read({.last = 9, .who = "ke", .what = ""}).size(), 0U);
  EXPECT_EQ(Read({.last = 9, .who = "", .what = "b"}).front().who, "user/0");
}

TEST_F(Audit, FilesAreBoundedAndTheOldestGo) {
  const std::size_t size = FormatAuditLine(Line("123")).size();
  {
    const auto log = Open(Bytes(10 * size), 3);
    for (int i = 100; i < 200; ++i) ASSERT_TRUE(Append(*log, Line(std::to_string(i))).ok());
  }
  std::size_t files = 0, bytes = 0;
  for (const auto& file : std::filesystem::directory_iterator(directory_ / "audit")) {
    ++files;
    bytes += file.file_size();
  }
  EXPECT_EQ(files, 3U);
  EXPECT_LE(bytes, 3 * 11 * (size + 2));
  const auto lines = Read();
  ASSERT_GE(lines.size(), 20U);
  for (std::size_t i = 1; i < lines.size(); ++i) EXPECT_EQ(lines[i].number, lines[i - 1].number + 1);
  EXPECT_EQ(lines.back().what, "199");
  EXPECT_EQ(lines.back().number, 100U);
}

TEST_F(Audit, ManyThreadsGetOneLineEach) {
  const auto log = Open();
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 50; ++i) EXPECT_TRUE(Append(*log, Line(std::to_string(thread * 100 + i))).ok());
    });
  for (auto& thread : threads) thread.join();
  const auto lines = Read();
  ASSERT_EQ(lines.size(), 200U);
  std::set<std::string> what;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i].number, i + 1);
    what.insert(lines[i].what);
  }
  EXPECT_EQ(what.size(), 200U);
}

// A limit on the file's size stands for a full disk: the reserve is used up, and then no line can be written.
TEST_F(Audit, AFullDiskIsToldBeforeAChangeAndLosesNoLine) {
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const auto limit = [&](rlim_t size) {
    const rlimit now{size, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &now), 0);
  };
  const auto log = Open();
  EXPECT_TRUE(log->CanTake().ok());
  EXPECT_TRUE(Append(*log, Line("a")).ok());
  limit(std::filesystem::file_size(Newest()) + 10);
  const auto refused = Append(*log, Line("b"));
  EXPECT_FALSE(refused.ok());
  EXPECT_FALSE(log->CanTake().ok()) << "no further change may be made";
  EXPECT_NE(said().find("\"what\":\"b\""), std::string::npos) << "the daemon's log has the line: " << said();
  limit(before.rlim_cur);
  while (!log->CanTake().ok()) std::this_thread::yield();
  EXPECT_TRUE(Append(*log, Line("c")).ok());
  const auto lines = Read();
  EXPECT_EQ(damaged_, 0U);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[1].what, "b");
}

}  // namespace
}  // namespace troupe::storage
