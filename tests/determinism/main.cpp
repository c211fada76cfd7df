// Prints the hash of every op of every small model in every mode of fixed bits, at each level of instructions that this machine has and
// with 1, 2 and 5 threads: "LEVEL THREADS MODEL MODE OP HASH". tools/check --determinism compares the lines of several builds.
#include <fmt/format.h>

#include <exception>

#include "reference/numerics/environment.hpp"
#include "tests/determinism/bits.hpp"

namespace determinism {
namespace {

void print_all() {
  for (const SmallModel& small : small_models()) {
    for (const Mode& mode : modes_of(small.weights->config())) {
      for (const auto level : reference::simd::supported_levels()) {
        for (const int num_threads : {1, 2, 5}) {
          const Bits bits = bits_of(*small.weights, mode.rules, {.level = level, .num_threads = num_threads});
          for (const auto& [op, hash] : bits) {
            fmt::print("{} {} {} {} {} {:016x}\n",
                       reference::simd::level_name(level),
                       num_threads,
                       small.name,
                       mode.name,
                       op,
                       hash);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace determinism

int main() {
  try {
    reference::check_float_environment();
    determinism::print_all();
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
}
