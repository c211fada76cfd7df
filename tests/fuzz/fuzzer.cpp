// The entry that libFuzzer calls. Compiled once for each target, whose name is DSV3_FUZZ_TARGET.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/targets.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const fuzz::Target& kTarget = fuzz::target(DSV3_FUZZ_TARGET);
  (void)fuzz::takes(kTarget, {reinterpret_cast<const char*>(data), size});
  return 0;
}
