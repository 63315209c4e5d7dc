// `troupe usage`, and price books.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <fstream>

#include "shell/price_book.hpp"
#include "tests/temporary_directory.hpp"
#include "tests/unit/shell/fake_admin_client.hpp"

namespace troupe::shell {
namespace {

using testing::HasSubstr;
using testing::Not;
using Request = proto::AdminRequest;

constexpr char kPrices[] = "currency: EUR\ngpu_hour: 2.4\ngpu_memory_gib: 80\ngib_moved: 0.5\n";

// An hour of a GPU, ten GiB in the host region for an hour, two GiB moved.
proto::AdminReply OneFunction() {
  proto::AdminReply reply;
  auto& amount = *reply.add_usage();
  amount.set_tenant("acme");
  amount.set_function("digits");
  amount.set_runs(7);
  amount.set_gpu_ns(3'600'000'000'000);
  amount.set_host_kib_ms(10ull * 1024 * 1024 * 3'600'000);
  amount.set_bytes_moved(2ull << 30);
  return reply;
}

TEST(UsageVerbs, ATableOfTheMonthThatWasAskedFor) {
  Harness troupe;
  troupe.cluster.Answer(Request::kListUsage, OneFunction());
  EXPECT_EQ(troupe.Run("usage --by function --month 1970-02"), ExitCode::kOk) << troupe.err();
  const auto& wish = troupe.cluster.asked.at(0).list_usage();
  EXPECT_EQ(wish.first_day(), 31);
  EXPECT_EQ(wish.last_day(), 58);
  EXPECT_EQ(wish.by(), proto::ListUsage::FUNCTION);
  for (const char* word : {"acme", "digits", "3600000.000", "10.000000", "2.000000"})
    EXPECT_THAT(troupe.out(), HasSubstr(word));
  EXPECT_THAT(troupe.out(), Not(HasSubstr("COST")));
}

TEST(UsageVerbs, ExactAmountsWithTheirCost) {
  const test::TemporaryDirectory directory;
  std::ofstream(directory / "prices.yaml") << kPrices;
  Harness troupe;
  troupe.cluster.Answer(Request::kListUsage, OneFunction());
  EXPECT_EQ(troupe.Run("usage --csv --prices " + (directory / "prices.yaml")), ExitCode::kOk) << troupe.err();
  EXPECT_EQ(troupe.out(),
            "day,tenant,function,runs,gpu_ns,host_kib_ms,bytes_moved,cost\n"
            ",acme,digits,7,3600000000000,37748736000000,2147483648,3.430000000\n");
}

TEST(UsageVerbs, JsonHasTheCostOfEachAmount) {
  const test::TemporaryDirectory directory;
  std::ofstream(directory / "prices.yaml") << kPrices;
  Harness troupe;
  troupe.cluster.Answer(Request::kListUsage, OneFunction());
  EXPECT_EQ(troupe.Run("usage --json --prices " + (directory / "prices.yaml")), ExitCode::kOk)
      << troupe.err();
  const auto all = boost::json::parse(troupe.out()).as_object();
  const auto& amount = all.at("usage").as_array().at(0).as_object();
  EXPECT_EQ(amount.at("function").as_string(), "digits");
  EXPECT_EQ(amount.at("gpu_ns").as_string(), "3600000000000");
  EXPECT_NEAR(amount.at("cost").as_double(), 3.43, 1e-9);
  EXPECT_EQ(all.at("currency").as_string(), ParsePriceBook(kPrices)->currency);
}

TEST(UsageVerbs, WrongWordsAreNotSent) {
  Harness troupe;
  EXPECT_EQ(troupe.Run("usage --by node"), ExitCode::kUsage);
  EXPECT_THAT(troupe.err(), HasSubstr("tenant, function or day"));
  for (const std::string month : {"2026", "2026-13", "november", "2026-1"}) {
    EXPECT_NE(troupe.Run("usage --month " + month), ExitCode::kOk) << month;
    EXPECT_THAT(troupe.err(), HasSubstr("such as 2026-11")) << month;
  }
  EXPECT_TRUE(troupe.cluster.asked.empty());
}

TEST(PriceBooks, HostMemoryCostsTenPercentOfAGpusUnlessItIsSaid) {
  const auto book = ParsePriceBook(kPrices);
  ASSERT_TRUE(book.ok()) << book.status();
  EXPECT_NEAR(book->CostOf(OneFunction().usage(0)), 2.4 + 10 * 2.4 / 80 * 0.1 + 2 * 0.5, 1e-9);
  const auto dearer = ParsePriceBook(std::string(kPrices) + "host_percent: 20\n");
  ASSERT_TRUE(dearer.ok()) << dearer.status();
  EXPECT_NEAR(dearer->CostOf(OneFunction().usage(0)), 2.4 + 10 * 2.4 / 80 * 0.2 + 2 * 0.5, 1e-9);
}

TEST(PriceBooks, AMistakeIsNamedWithItsLine) {
  const auto error = [](const std::string& yaml) {
    return std::string(ParsePriceBook(yaml).status().message());
  };
  EXPECT_EQ(error("gpu_hour: 2\ngpu_memory_gb: 80\n"),
            "line 2: a price book has no key 'gpu_memory_gb'; did you mean 'gpu_memory_gib'?");
  EXPECT_THAT(error("currency: EUR\ngpu_hour: -1\n"), HasSubstr("line 2: 'gpu_hour' must be a number"));
  EXPECT_THAT(error("gpu_hour: .inf\n"), HasSubstr("line 1: 'gpu_hour' must be a number"));
  EXPECT_THAT(error("gpu_hour: [1]\n"), HasSubstr("line 1"));
  EXPECT_THAT(error("gpu_memory_gib: 80\n"), HasSubstr("lacks 'gpu_hour'"));
  EXPECT_THAT(error("gpu_hour: 1\n"), HasSubstr("lacks 'gpu_memory_gib'"));
  EXPECT_THAT(error("- gpu_hour\n"), HasSubstr("a mapping"));
  EXPECT_THAT(error("gpu_hour: {\n"), HasSubstr("line "));
}

}  // namespace
}  // namespace troupe::shell
