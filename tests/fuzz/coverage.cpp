// What tells libFuzzer where the code of a target that GCC compiled goes. GCC calls __sanitizer_cov_trace_pc in each block of
// the traced rooms (CMakeLists.txt). libFuzzer has a function of this name that only complains, so the linker takes the one
// below in its place (--wrap). It counts in a section that libFuzzer reads after each input as it reads clang's counters.
#include <array>
#include <cstdint>

namespace {

// An input reaches some thousand blocks; more counters would take longer to read than blocks that share one are worth.
constexpr unsigned kCounterBits = 16;
[[gnu::section("__libfuzzer_extra_counters"), gnu::used]] std::array<std::uint8_t, 1U << kCounterBits>
    counters;

}  // namespace

extern "C" [[gnu::no_sanitize("address,undefined")]] void __wrap___sanitizer_cov_trace_pc() {
  constexpr std::uint64_t kSpread = 0x9e3779b97f4a7c15;  // 2^64 divided by the golden ratio
  const auto block = reinterpret_cast<std::uint64_t>(__builtin_return_address(0));
  ++counters[block * kSpread >> (64 - kCounterBits)];
}

// GCC calls them where floating-point numbers are compared; libFuzzer does not define them.
extern "C" void __sanitizer_cov_trace_cmpf(float, float) {}
extern "C" void __sanitizer_cov_trace_cmpd(double, double) {}
