#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>
#include <map>

#include "sim/traces/generators.hpp"
#include "sim/traces/trace_reader.hpp"

namespace troupe::sim {
namespace {

using std::chrono::minutes;
using testing::HasSubstr;

MinuteCounts Counts(const char* text) {
  auto trace = ParseTrace(text, "t.csv");
  EXPECT_TRUE(trace.ok()) << trace.status();
  return std::get<MinuteCounts>(*trace);
}

TEST(Trace, CountsOfAllThreeForms) {
  const auto lalb = Counts("rank,function,table1_model,m1,m2\n1,a,vgg19,3,0\n2,b,resnet18,1,2\n");
  ASSERT_EQ(lalb.functions.size(), 2u);
  EXPECT_EQ(lalb.functions[0].name, "a");
  EXPECT_EQ(lalb.functions[1].model, "resnet18");
  EXPECT_EQ(lalb.counts, (std::vector<std::vector<std::uint32_t>>{{3, 0}, {1, 2}}));
  const auto azure = Counts("HashFunction,HashOwner,1_minute,2_minute\r\nf,x,7,8\r\n\n");
  EXPECT_EQ(azure.counts, (std::vector<std::vector<std::uint32_t>>{{7, 8}}));
  EXPECT_EQ(azure.functions[0].model, "");
  EXPECT_EQ(Counts("func,m0,m1\n0,1,2\n").minutes(), 2u);
}

TEST(Trace, ArrivalsInAnyOrder) {
  const auto trace = ParseTrace("seconds,function,model\n2.5,b,m\n0,a,m\n1e1,b,m\n", "t.csv");
  ASSERT_TRUE(trace.ok()) << trace.status();
  const auto& arrivals = std::get<Workload>(*trace);
  ASSERT_EQ(arrivals.arrivals.size(), 3u);
  EXPECT_EQ(arrivals.arrivals[0].at, Duration());
  EXPECT_EQ(arrivals.functions[arrivals.arrivals[0].function].name, "a");
  EXPECT_EQ(arrivals.length, std::chrono::seconds(10));
}

TEST(Trace, WhatIsWrongIsToldWithItsPlace) {
  const std::map<std::string, std::string> wrong = {
      {"", "t.csv:1:1: found nothing"},
      {"a,b\n1,2\n", "t.csv:1:1: found 'a', expected a column called function"},
      {"function,x\na,2\n", "t.csv:1:11: found the end of the line, expected columns of minutes"},
      {"function,m1,m3\na,1,2\n", "t.csv:1:13: found 'm3', expected minute 2"},
      {"function,m1,m2\na,1,-2\n", "t.csv:2:5: found '-2', expected a number of requests"},
      {"function,m1,m2\na,1,\n", "t.csv:2:5: found '', expected a number of requests"},
      {"function,m1,m2\na,1,2\nb,1.5,2\n", "t.csv:3:3: found '1.5', expected a number of requests"},
      {"function,m1\na,99999999999\n", "t.csv:2:3: found '99999999999'"},
      {"function,m1,m2\na,1\n", "t.csv:2:4: found the end of the line, expected 3 cells as in line 1, not 2"},
      {"function,m1\na,1,2\n", "t.csv:2:5: found '2', expected 2 cells"},
      {"function,m1\na,1\n\na,2\n", "t.csv:4:1: found 'a', expected a function that line 2 does not have"},
      {"function,m1\n ,1\n", "t.csv:2:1: found ' ', expected a name"},
      {"seconds,function\n-1,a\n", "t.csv:2:1: found '-1', expected seconds"},
      {"seconds,function\nnan,a\n", "t.csv:2:1: found 'nan'"},
      {"seconds,function,model\n1,a,m\n2,a,n\n", "t.csv:3:5: found 'n', expected 'm'"},
  };
  for (const auto& [text, message] : wrong) {
    const auto trace = ParseTrace(text, "t.csv");
    EXPECT_EQ(trace.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(trace.status().message()), HasSubstr(message)) << text;
  }
  EXPECT_EQ(ReadTrace("/nowhere/at.all").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadTrace("a.csv.gz").status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(ParseSpread("sometimes").ok());
}

TEST(Trace, MayBeCompressed) {
  const std::string path = testing::TempDir() + "/trace.csv.gz";
  const std::string text = "function,m1\na,7\n";
  const auto file = gzopen(path.c_str(), "wb");
  ASSERT_EQ(gzwrite(file, text.data(), static_cast<unsigned>(text.size())), static_cast<int>(text.size()));
  gzclose(file);
  const auto trace = ReadTrace(path);
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(std::get<MinuteCounts>(*trace).counts[0][0], 7u);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 9);
  const auto cut = ReadTrace(path).status();
  EXPECT_EQ(cut.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(cut.message()), HasSubstr("cannot be unpacked")) << cut;
  std::filesystem::remove(path);
}

TEST(Generators, AMinutesRequestsStayInIt) {
  const auto counts = Counts("function,m1,m2,m3\na,40,0,7\nb,1,2,3\n");
  for (const Spread spread : {Spread::kUniform, Spread::kEven}) {
    Random random(3);
    const auto workload = SpreadCounts(counts, spread, random);
    EXPECT_EQ(workload.length, minutes(3));
    EXPECT_TRUE(std::ranges::is_sorted(workload.arrivals));
    std::vector<std::vector<std::uint32_t>> seen(2, std::vector<std::uint32_t>(3));
    for (const auto& [at, function] : workload.arrivals)
      ++seen.at(function).at(static_cast<std::size_t>(at / minutes(1)));
    EXPECT_EQ(seen, counts.counts);
  }
}

TEST(Generators, EvenArrivalsHaveEqualDistances) {
  Random random(1);
  const auto workload = SpreadCounts(Counts("function,m1\na,6\n"), Spread::kEven, random);
  for (std::size_t i = 1; i < workload.arrivals.size(); ++i)
    EXPECT_NEAR(ToSeconds(workload.arrivals[i].at - workload.arrivals[i - 1].at), 10, 1e-6);
}

TEST(Generators, AFunctionsArrivalsAreItsOwnAndTheSeeds) {
  const auto of_first = [](const char* text, std::uint64_t seed) {
    Random random(seed);
    std::vector<Duration> at;
    for (const auto& arrival : SpreadCounts(Counts(text), Spread::kPoisson, random).arrivals)
      if (arrival.function == 0) at.push_back(arrival.at);
    return at;
  };
  const auto one = of_first("function,m1\na,50\nb,1\n", 9);
  EXPECT_EQ(one, of_first("function,m1\na,50\nb,900\n", 9));
  EXPECT_NE(one, of_first("function,m1\na,50\nb,1\n", 10));
}

TEST(Generators, EveryShapeKeepsItsRate) {
  for (const char* shape : {"poisson", "periodic", "bursty", "sporadic", "ramp"}) {
    const auto made = ParseMadeWorkload(std::string(shape) + " functions=10 rate=50 length=2000s skew=0.5");
    ASSERT_TRUE(made.ok()) << made.status();
    Random random(4);
    const auto workload = MakeWorkload(*made, random);
    EXPECT_EQ(workload.functions.size(), 10u);
    // Bursts are few and of random lengths: the deviation of their sum is some 10 %.
    EXPECT_NEAR(static_cast<double>(workload.arrivals.size()), 100'000, 25'000) << shape;
    EXPECT_LT(workload.arrivals.back().at, made->length);
    std::vector<std::size_t> of(10);
    for (const auto& arrival : workload.arrivals) ++of.at(arrival.function);
    EXPECT_GT(of[0], 2 * of[9]) << shape;
  }
}

TEST(Generators, WrongWordsAreNamed) {
  for (const char* text :
       {"", "wavy", "poisson functions=0", "poisson rate=-1", "poisson rate=x", "bursty length=3",
        "poisson rate=1e6 length=1h", "ramp skew=nan", "ramp colour=red"}) {
    const auto made = ParseMadeWorkload(text);
    EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(made.status().message()), HasSubstr("expected"));
  }
}

}  // namespace
}  // namespace troupe::sim
