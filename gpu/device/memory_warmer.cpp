#include "gpu/device/memory_warmer.hpp"

#include <sched.h>

#include <cstddef>
#include <thread>
#include <utility>

namespace troupe::gpu {

MemoryWarmer::MemoryWarmer(std::shared_ptr<const transport::MemoryFile> memory) {
  std::thread([memory = std::move(memory), stopping = stopping_] {
    constexpr std::size_t kPage = 4096;
    const sched_param idle{};
    if (sched_setscheduler(0, SCHED_IDLE, &idle) != 0)
      return;  // at full priority it would do more harm than good
    // Page by page from here, not by madvise: a thread that the kernel puts aside in there may hold the lock
    // that every other thread's page faults wait for.
    for (std::size_t at = 0; at < memory->size().count() && !*stopping; at += kPage) {
      __atomic_fetch_or(reinterpret_cast<unsigned char*>(memory->data() + at), 0, __ATOMIC_RELAXED);
    }
  }).detach();
}

}  // namespace troupe::gpu
