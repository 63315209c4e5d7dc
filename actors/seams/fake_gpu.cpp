#include "actors/seams/fake_gpu.hpp"

#include <algorithm>
#include <utility>

namespace troupe::actors {

namespace {

class SimpleGpu final : public FakeGpu {
 public:
  SimpleGpu(FakeGpuRates rates, Timer timer) : rates_(rates), timer_(std::move(timer)) {}

  void Bring(const Load& load, Time now, Loaded done) override {
    const Time begin = std::max(now, link_free_);
    link_free_ = begin + TransferTime(load.bytes, load.peer ? rates_.peer_link : rates_.link);
    ++loading_[load.digest];
    timer_(link_free_, [this, digest = load.digest, begin, done = std::move(done)] {
      if (--loading_[digest] == 0) loading_.erase(digest);
      done(begin);
    });
  }

  void Run(const std::string& digest, std::optional<Time> deadline, Time now, Ran done) override {
    RunFor(Duration(), digest, deadline, now, std::move(done));
  }

  void RunBatch(std::size_t requests, const std::string& digest, std::optional<Time> deadline, Time now,
                Ran done) override {
    RunFor(BatchTime(rates_.run, requests), digest, deadline, now, std::move(done));
  }

  void RunFor(Duration length, const std::string& digest, std::optional<Time>, Time now, Ran done) override {
    const Time begin = std::max({now, compute_free_, loading_.contains(digest) ? link_free_ : Time{}});
    compute_free_ = begin + (length > Duration() ? length : rates_.run);
    timer_(compute_free_, [begin, done = std::move(done)] { done(begin, Time{}); });
  }

 private:
  const FakeGpuRates rates_;
  const Timer timer_;
  std::map<std::string, int> loading_;
  Time link_free_{};
  Time compute_free_{};
};

}  // namespace

std::unique_ptr<FakeGpu> MakeSimpleGpu(FakeGpuRates rates, FakeGpu::Timer timer) {
  return std::make_unique<SimpleGpu>(rates, std::move(timer));
}

}  // namespace troupe::actors
