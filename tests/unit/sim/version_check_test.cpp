// The checker of versions that share requests, on histories that keep its rules and on ones that break each of them.
#include "sim/checkers/version_check.hpp"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace troupe::sim {
namespace {

using std::chrono::milliseconds;
using Asked = VersionOp::Kind;
using Became = VersionOp::Result;

class VersionCheck : public ::testing::Test {
 protected:
  // Two versions, of which the second answers.
  VersionCheck() {
    Do({.kind = Asked::kDeploy, .version = 1});
    Do({.kind = Asked::kDeploy, .version = 2});
  }
  [[nodiscard]] Time Now() { return Time{} + milliseconds(now_ += 100); }
  void Do(VersionOp op, std::optional<VersionParts> shown = {}, Became result = Became::kDone) {
    op.invoked = Now();
    op.result = result;
    if (result != Became::kUnknown) op.returned = Now();
    op.shown = std::move(shown);
    ops_.push_back(op);
  }
  void Canary(std::uint32_t percent) {
    Do({.kind = Asked::kCanary, .version = 2, .percent = percent},
       VersionParts{{1, 100 - percent}, {2, percent}});
  }
  // A request that names `version`, and the version that served it.
  void Serve(const std::string& by, const std::string& version = "") {
    const auto question = absl::StrCat("question ", ledger_.all().size());
    const auto number = ledger_.Asked(
        {.gateway = "gateway-1", .function = "f", .version = version, .question = question, .asked = Now()});
    ledger_.Answered(number, Now(), {.said = question, .version = by});
    sent_.push_back({question, by, "model " + by});
  }
  void ServeInTurn(const std::string& versions) {
    for (const char version : versions) Serve(std::string(1, version));
  }
  std::string Check() {
    const VersionRules rules{.function = "f",
                             .models = {{"1", "model 1"}, {"2", "model 2"}},
                             .requests = {.propagation = milliseconds(10)}};
    std::string all;
    for (const auto& line : CheckVersions(ledger_, ops_, sent_, rules)) all += line + "\n";
    return all;
  }
  [[nodiscard]] bool Finds(const std::string& text) { return Check().find(text) != std::string::npos; }

  int now_ = 0;
  std::vector<VersionOp> ops_;
  RequestLedger ledger_;
  std::vector<VersionSent> sent_;
};

TEST_F(VersionCheck, WhatTheManagerSaysIsServed) {
  ServeInTurn("222");
  Canary(25);
  ServeInTurn("112111211121");
  Do({.kind = Asked::kPromote}, VersionParts{{1, 0}, {2, 100}});
  ServeInTurn("222");
  Do({.kind = Asked::kRollBack}, VersionParts{{1, 100}, {2, 0}});
  ServeInTurn("111");
  Serve("2", "2");
  Do({.kind = Asked::kRemove, .version = 2});
  Do({.kind = Asked::kPromote, .version = 2}, {}, Became::kRefused);
  Do({.kind = Asked::kFollow}, VersionParts{{1, 0}});
  ServeInTurn("111");
  EXPECT_EQ(Check(), "");
}

TEST_F(VersionCheck, AVersionWithoutAPartIsFound) {
  Do({.kind = Asked::kParts, .parts = {{1, 100}, {2, 0}}}, VersionParts{{1, 100}, {2, 0}});
  ServeInTurn("12");
  EXPECT_TRUE(Finds("was served by version '2', which had no part")) << Check();
}

TEST_F(VersionCheck, WhatWasNotAnsweredMayBeDoneOrNot) {
  Do({.kind = Asked::kParts, .parts = {{1, 100}, {2, 0}}}, {}, Became::kUnknown);
  ServeInTurn("2221");
  EXPECT_EQ(Check(), "");
  Do({.kind = Asked::kLook}, VersionParts{{1, 0}, {2, 0}});
  ServeInTurn("1");
  EXPECT_TRUE(Finds("which had no part")) << "by then it has not been done: " << Check();
}

TEST_F(VersionCheck, UnevenPartsAreFound) {
  Canary(50);
  ServeInTurn("1212121");
  EXPECT_EQ(Check(), "");
  ServeInTurn("1");
  EXPECT_TRUE(Finds("requests in a row")) << Check();
}

TEST_F(VersionCheck, ARequestWithoutAVersionMayHaveBeenAnybodys) {
  Canary(50);
  ServeInTurn("121");
  ledger_.Answered(ledger_.Asked({.gateway = "gateway-1", .function = "f", .asked = Now()}), Now(),
                   {.code = absl::StatusCode::kResourceExhausted});
  ServeInTurn("121");
  EXPECT_EQ(Check(), "");
}

TEST_F(VersionCheck, AnAnswerThatDoesNotFollowIsFound) {
  Canary(25);
  Do({.kind = Asked::kPromote}, VersionParts{{1, 75}, {2, 100}});
  EXPECT_TRUE(Finds("does not follow")) << Check();
}

TEST_F(VersionCheck, OneStepBackIsRemembered) {
  Do({.kind = Asked::kPromote, .version = 1}, VersionParts{{1, 100}, {2, 0}});
  Do({.kind = Asked::kRollBack}, VersionParts{{1, 0}, {2, 100}});
  Do({.kind = Asked::kRollBack}, {}, Became::kRefused);
  EXPECT_EQ(Check(), "");
  Do({.kind = Asked::kRollBack}, VersionParts{{1, 100}, {2, 0}});
  EXPECT_TRUE(Finds("does not follow")) << Check();
}

TEST_F(VersionCheck, ARequestThatChangesItsVersionIsFound) {
  Serve("2");
  sent_.push_back({"question 0", "1", "model 1"});
  EXPECT_TRUE(Finds("'question 0' was sent to version 2 and then to version 1")) << Check();
}

TEST_F(VersionCheck, AnotherVersionsModelAndNameAreFound) {
  Serve("2");
  Serve("2", "1");
  sent_[0].model = "model 1";
  EXPECT_TRUE(Finds("'question 0' was sent to version 2 with another version's model")) << Check();
  EXPECT_TRUE(Finds("request 2 names version 1 and was served by version '2'")) << Check();
}

}  // namespace
}  // namespace troupe::sim
