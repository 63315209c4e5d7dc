#include "gpu/device/memory_warmer.hpp"

#include <algorithm>
#include <cstddef>
#include <thread>
#include <utility>

#include "transport/steady_clock.hpp"

namespace troupe::gpu {

namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kPages = 16;  // at a time: 0.2 ms when they are fresh
// It takes a fifth of one processor's time at most.
constexpr int kRestPerWork = 4;
constexpr Duration kShortestRest = std::chrono::microseconds(100);

}  // namespace

// At the usual priority, and with pauses instead: a thread of idle priority gets no time on a busy machine, also not
// to end, and a process that is killed has ended when its last thread has. Page by page, not by madvise: a thread
// that the kernel puts aside in there may hold the lock that every other thread's page faults wait for.
MemoryWarmer::MemoryWarmer(std::shared_ptr<const transport::MemoryFile> memory) {
  std::thread([memory = std::move(memory), stopping = stopping_] {
    const std::size_t size = memory->size().count();
    for (std::size_t at = 0; at < size && !*stopping; at += kPages * kPage) {
      const Time begin = transport::SteadyNow();
      for (std::size_t page = at; page < std::min(at + kPages * kPage, size); page += kPage)
        __atomic_fetch_or(reinterpret_cast<unsigned char*>(memory->data() + page), 0, __ATOMIC_RELAXED);
      std::this_thread::sleep_for(std::max((transport::SteadyNow() - begin) * kRestPerWork, kShortestRest));
    }
  }).detach();
}

}  // namespace troupe::gpu
