// The entry that libFuzzer calls. Compiled once for each target, whose name is DSV3_FUZZ_TARGET.
#include <time.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include "tests/fuzz/targets.hpp"

namespace {

// Seconds that this thread had a core: libFuzzer's own limit is by a clock on the wall, which a busy machine makes meaningless.
double cpu_s() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr double kMaxSeconds = 1;
  static const fuzz::Target& kTarget = fuzz::target(DSV3_FUZZ_TARGET);
  const double begin_s = cpu_s();
  (void)fuzz::takes(kTarget, {reinterpret_cast<const char*>(data), size});
  if (cpu_s() - begin_s > kMaxSeconds) {
    throw std::runtime_error("the reader took more than a second");
  }
  return 0;
}
