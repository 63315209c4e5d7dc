#include "sim/traces/generators.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace troupe::sim {

namespace {

constexpr double kMostRequests = 50e6;  // each takes 16 bytes
constexpr Duration kMinute = std::chrono::minutes(1);

Duration Scaled(Duration span, double share) {
  return Duration(static_cast<Duration::rep>(static_cast<double>(span.count()) * share));
}

void Sort(Workload& workload) {
  std::ranges::stable_sort(workload.arrivals);
}

// Calls `add` at the points of a Poisson process of `rate` per second in [0, length).
template <class Add>
void Poisson(double rate, Duration length, Random& random, Add add) {
  if (rate <= 0) return;
  for (double at = random.Exponential(1 / rate); at < ToSeconds(length); at += random.Exponential(1 / rate))
    add(FromSeconds(at));
}

void SpreadMinute(std::uint32_t count, Duration begin, Spread spread, double phase, Random& random,
                  const std::function<void(Duration)>& add) {
  if (count == 0) return;
  switch (spread) {
    case Spread::kUniform:
      for (std::uint32_t i = 0; i < count; ++i) add(begin + Scaled(kMinute, random.Uniform()));
      return;
    case Spread::kEven:
      for (std::uint32_t i = 0; i < count; ++i)
        add(begin + Scaled(kMinute, (static_cast<double>(i) + phase) / static_cast<double>(count)));
      return;
    case Spread::kPoisson:
      return Poisson(count / ToSeconds(kMinute), kMinute, random, [&](Duration at) { add(begin + at); });
  }
}

std::vector<double> Rates(const MadeWorkload& made) {
  std::vector<double> rates;
  double sum = 0;
  for (std::uint32_t i = 0; i < made.functions; ++i) {
    rates.push_back(std::pow(static_cast<double>(i + 1), -made.skew));
    sum += rates.back();
  }
  for (double& rate : rates) rate *= made.rate / sum;
  return rates;
}

// Ten times the rate in a tenth of the time: bursts of a second on average, all functions together.
std::vector<std::pair<Duration, Duration>> Bursts(Duration length, Random& random) {
  std::vector<std::pair<Duration, Duration>> bursts;
  for (double at = random.Exponential(9); at < ToSeconds(length);) {
    const double end = at + random.Exponential(1);
    bursts.emplace_back(FromSeconds(at), std::min(FromSeconds(end), length));
    at = end + random.Exponential(9);
  }
  return bursts;
}

// A fifth of the mean pause or nine fifths of it, alike often, exponential: now and then some calls together.
double Pause(double rate, Random& random) {
  const double mean = random.Below(2) == 0 ? 0.2 : 1.8;
  return random.Exponential(mean / rate);
}

}  // namespace

Workload SpreadCounts(const MinuteCounts& counts, Spread spread, Random& random) {
  Workload out;
  out.functions = counts.functions;
  out.length = kMinute * static_cast<Duration::rep>(counts.minutes());
  for (std::uint32_t function = 0; function < counts.functions.size(); ++function) {
    Random own = random.Fork();
    const double phase = own.Uniform();
    for (std::size_t minute = 0; minute < counts.minutes(); ++minute) {
      SpreadMinute(counts.counts[function][minute], kMinute * static_cast<Duration::rep>(minute), spread,
                   phase, own, [&](Duration at) {
                     out.arrivals.push_back({at, function});
                   });
    }
  }
  Sort(out);
  return out;
}

Workload MakeWorkload(const MadeWorkload& made, Random& random) {
  Workload out;
  out.length = made.length;
  const auto rates = Rates(made);
  const auto bursts = made.shape == Shape::kBursty ? Bursts(made.length, random)
                                                   : std::vector<std::pair<Duration, Duration>>();
  for (std::uint32_t function = 0; function < made.functions; ++function) {
    out.functions.push_back({absl::StrCat("f", function), {}});
    Random own = random.Fork();
    const double rate = rates[function];
    const auto add = [&](Duration at) { out.arrivals.push_back({at, function}); };
    switch (made.shape) {
      case Shape::kPoisson:
        Poisson(rate, made.length, own, add);
        break;
      case Shape::kSporadic:
        for (double at = Pause(rate, own); at < ToSeconds(made.length); at += Pause(rate, own))
          add(FromSeconds(at));
        break;
      case Shape::kPeriodic:
        for (double at = own.Uniform() / rate; at < ToSeconds(made.length); at += 1 / rate)
          add(FromSeconds(at));
        break;
      case Shape::kBursty:
        for (const auto& [begin, end] : bursts)
          Poisson(10 * rate, end - begin, own, [&, from = begin](Duration at) { add(from + at); });
        break;
      case Shape::kRamp:  // thinning of twice the rate
        Poisson(2 * rate, made.length, own, [&](Duration at) {
          if (own.Uniform() < ToSeconds(at) / ToSeconds(made.length)) add(at);
        });
        break;
    }
  }
  Sort(out);
  return out;
}

absl::StatusOr<MadeWorkload> ParseMadeWorkload(const std::string& text) {
  static const std::map<std::string, Shape> kShapes = {{"poisson", Shape::kPoisson},
                                                       {"periodic", Shape::kPeriodic},
                                                       {"bursty", Shape::kBursty},
                                                       {"sporadic", Shape::kSporadic},
                                                       {"ramp", Shape::kRamp}};
  const std::vector<std::string> words = absl::StrSplit(text, ' ', absl::SkipEmpty());
  const auto wrong = [](const std::string& word, const std::string& expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("the workload to make: found '", word, "', expected ", expected));
  };
  if (words.empty() || !kShapes.contains(words.front()))
    return wrong(words.empty() ? "" : words.front(), "poisson, periodic, bursty, sporadic or ramp");
  MadeWorkload made{.shape = kShapes.at(words.front())};
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::pair<std::string, std::string> item = absl::StrSplit(words[i], absl::MaxSplits('=', 1));
    const auto& [key, value] = item;
    if (key == "functions") {
      if (!absl::SimpleAtoi(value, &made.functions) || made.functions == 0 || made.functions > 100'000)
        return wrong(words[i], "functions=N with N from 1 to 100000");
    } else if (key == "rate") {
      if (!absl::SimpleAtod(value, &made.rate) || !(made.rate > 0) || made.rate > 1e6)
        return wrong(words[i], "rate=R, requests a second, more than 0 and at most 1e6");
    } else if (key == "length") {
      if (!ParseDuration(value, made.length) || made.length <= Duration())
        return wrong(words[i], "length=D, such as 90s or 10m");
    } else if (key == "skew") {
      if (!absl::SimpleAtod(value, &made.skew) || !(made.skew >= 0) || made.skew > 10)
        return wrong(words[i], "skew=S from 0 to 10");
    } else {
      return wrong(words[i], "functions=N, rate=R, length=D or skew=S");
    }
  }
  if (made.rate * ToSeconds(made.length) > kMostRequests)
    return wrong(text, absl::StrCat("rate and length that make at most ", kMostRequests, " requests"));
  return made;
}

}  // namespace troupe::sim
