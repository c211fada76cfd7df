#include "tools/bench/machine.hpp"

#include <unistd.h>

#include <array>
#include <fstream>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace tools {
namespace {

using reference::simd::Level;

// Independent sums, so that the loop waits for no result: latency times throughput is 8 to 10 on the machines of the day.
constexpr int kNumSums = 12;

// The sums begin at different numbers: of equal ones the compiler would keep a single one, and the loop would then show how long a
// multiply-add takes in place of how many there are. 1 would stay 1 for ever, which it sees too.
constexpr float begin_of_sum(int i) {
  return static_cast<float>(i + 2);
}

// 12 KiB, of which no load crosses a line.
struct alignas(64) CachedNumbers {
  std::array<float, 16 * kNumSums * 16> numbers;

  CachedNumbers() { numbers.fill(0x1p-20f); }
  // Where the loads of a round begin, for vectors of `vec_len`.
  [[nodiscard]] const float* of_round(int64_t round, int64_t vec_len) const {
    return numbers.data() + round % 16 * kNumSums * vec_len;
  }
};

#ifdef __x86_64__
__attribute__((target("avx2,fma"))) float loads_avx2(const CachedNumbers& cached, int64_t num_rounds) {
  __m256 sums[kNumSums];
  for (auto& sum : sums) {
    sum = _mm256_setzero_ps();
  }
  const __m256 factor = _mm256_set1_ps(0.5f);
  for (int64_t i = 0; i < num_rounds; ++i) {
    const float* from = cached.of_round(i, 8);
#pragma GCC unroll 12
    for (int s = 0; s < kNumSums; ++s) {
      sums[s] = _mm256_fmadd_ps(factor, _mm256_load_ps(from + 8 * s), sums[s]);
    }
  }
  float total = 0;
  for (const auto& sum : sums) {
    total += _mm256_cvtss_f32(sum);
  }
  return total;
}

__attribute__((target("avx512f"))) float loads_avx512(const CachedNumbers& cached, int64_t num_rounds) {
  __m512 sums[kNumSums];
  for (auto& sum : sums) {
    sum = _mm512_setzero_ps();
  }
  const __m512 factor = _mm512_set1_ps(0.5f);
  for (int64_t i = 0; i < num_rounds; ++i) {
    const float* from = cached.of_round(i, 16);
#pragma GCC unroll 12
    for (int s = 0; s < kNumSums; ++s) {
      sums[s] = _mm512_fmadd_ps(factor, _mm512_load_ps(from + 16 * s), sums[s]);
    }
  }
  float total = 0;
  for (const auto& sum : sums) {
    total += _mm512_cvtss_f32(sum);
  }
  return total;
}

__attribute__((target("avx2,fma"))) float loop_avx2(int64_t num_rounds) {
  __m256 sums[kNumSums];
  for (int i = 0; i < kNumSums; ++i) {
    sums[i] = _mm256_set1_ps(begin_of_sum(i));
  }
  const __m256 factor = _mm256_set1_ps(0.999f);
  const __m256 summand = _mm256_set1_ps(0.001f);
  for (int64_t i = 0; i < num_rounds; ++i) {
#pragma GCC unroll 12
    for (auto& sum : sums) {
      sum = _mm256_fmadd_ps(sum, factor, summand);
    }
  }
  float total = 0;
  for (const auto& sum : sums) {
    total += _mm256_cvtss_f32(sum);
  }
  return total;
}

__attribute__((target("avx512f"))) float loop_avx512(int64_t num_rounds) {
  __m512 sums[kNumSums];
  for (int i = 0; i < kNumSums; ++i) {
    sums[i] = _mm512_set1_ps(begin_of_sum(i));
  }
  const __m512 factor = _mm512_set1_ps(0.999f);
  const __m512 summand = _mm512_set1_ps(0.001f);
  for (int64_t i = 0; i < num_rounds; ++i) {
#pragma GCC unroll 12
    for (auto& sum : sums) {
      sum = _mm512_fmadd_ps(sum, factor, summand);
    }
  }
  float total = 0;
  for (const auto& sum : sums) {
    total += _mm512_cvtss_f32(sum);
  }
  return total;
}

__attribute__((target("avx2"))) uint64_t operations_avx2(int64_t num_rounds) {
  using Vec = uint32_t __attribute__((vector_size(32)));  // as __m256i, which may alias, the sums would go to memory
  Vec sums[kNumSums];
  for (int i = 0; i < kNumSums; ++i) {
    sums[i] = Vec{} + static_cast<uint32_t>(i);
  }
  const Vec step = Vec{} + static_cast<uint32_t>(num_rounds);
  for (int64_t i = 0; i < num_rounds; ++i) {
#pragma GCC unroll 12
    for (auto& sum : sums) {
      sum += step;
    }
  }
  uint64_t joined = 0;
  for (const auto& sum : sums) {
    joined ^= sum[0];
  }
  return joined;
}

__attribute__((target("avx512f"))) uint64_t operations_avx512(int64_t num_rounds) {
  using Vec = uint32_t __attribute__((vector_size(64)));  // as __m512i, which may alias, the sums would go to memory
  Vec sums[kNumSums];
  for (int i = 0; i < kNumSums; ++i) {
    sums[i] = Vec{} + static_cast<uint32_t>(i);
  }
  const Vec step = Vec{} + static_cast<uint32_t>(num_rounds);
  for (int64_t i = 0; i < num_rounds; ++i) {
#pragma GCC unroll 12
    for (auto& sum : sums) {
      sum += step;
    }
  }
  uint64_t joined = 0;
  for (const auto& sum : sums) {
    joined ^= sum[0];
  }
  return joined;
}
#endif

uint64_t operations_baseline(int64_t num_rounds) {
  using Vec = uint32_t __attribute__((vector_size(16)));
  Vec sums[kNumSums];
  for (int i = 0; i < kNumSums; ++i) {
    sums[i] = Vec{} + static_cast<uint32_t>(i);
  }
  const Vec step = Vec{} + static_cast<uint32_t>(num_rounds);
  for (int64_t i = 0; i < num_rounds; ++i) {
#pragma GCC unroll 12
    for (auto& sum : sums) {
      sum += step;
    }
  }
  uint64_t joined = 0;
  for (const auto& sum : sums) {
    joined ^= sum[0];
  }
  return joined;
}

float loads_baseline(const CachedNumbers& cached, int64_t num_rounds) {
  using Vec = float __attribute__((vector_size(16), may_alias));
  Vec sums[kNumSums] = {};
  for (int64_t i = 0; i < num_rounds; ++i) {
    const float* from = cached.of_round(i, 4);
#pragma GCC unroll 12
    for (int s = 0; s < kNumSums; ++s) {
      sums[s] += *reinterpret_cast<const Vec*>(from + 4 * s);
    }
  }
  float total = 0;
  for (const auto& sum : sums) {
    total += sum[0];
  }
  return total;
}

float loop_baseline(int64_t num_rounds) {
  using Vec = float __attribute__((vector_size(16)));
  Vec sums[kNumSums];
  for (int i = 0; i < kNumSums; ++i) {
    sums[i] = Vec{} + begin_of_sum(i);
  }
  const Vec factor = {0.999f, 0.999f, 0.999f, 0.999f};
  const Vec summand = {0.001f, 0.001f, 0.001f, 0.001f};
  for (int64_t i = 0; i < num_rounds; ++i) {
#pragma GCC unroll 12
    for (auto& sum : sums) {
      sum = sum * factor + summand;
    }
  }
  float total = 0;
  for (const auto& sum : sums) {
    total += sum[0];
  }
  return total;
}

}  // namespace

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) {
      return line.substr(line.find(": ") + 2);
    }
  }
  return "unknown";
}

int64_t last_level_cache_bytes() {
  const int64_t bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return bytes > 0 ? bytes : int64_t{32} << 20;
}

float multiply_add_loop(Level level, int64_t num_rounds) {
#ifdef __x86_64__
  if (level == Level::kAvx2) {
    return loop_avx2(num_rounds);
  }
  if (level == Level::kAvx512) {
    return loop_avx512(num_rounds);
  }
#endif
  return loop_baseline(num_rounds);
}

float load_loop(Level level, int64_t num_rounds) {
  static_assert(kNumLoadsOfRound == kNumSums);
  static const CachedNumbers cached;
#ifdef __x86_64__
  if (level == Level::kAvx2) {
    return loads_avx2(cached, num_rounds);
  }
  if (level == Level::kAvx512) {
    return loads_avx512(cached, num_rounds);
  }
#endif
  return loads_baseline(cached, num_rounds);
}

uint64_t vector_operation_loop(Level level, int64_t num_rounds) {
  static_assert(kNumOperationsOfRound == kNumSums);
#ifdef __x86_64__
  if (level == Level::kAvx2) {
    return operations_avx2(num_rounds);
  }
  if (level == Level::kAvx512) {
    return operations_avx512(num_rounds);
  }
#endif
  return operations_baseline(num_rounds);
}

int64_t num_macs_of_round(Level level) {
  const int64_t vec_len = level == Level::kAvx512 ? 16 : level == Level::kAvx2 ? 8 : 4;
  return kNumSums * vec_len;
}

uint64_t read_all(std::span<const std::byte> bytes) {
  constexpr size_t kNumWords = 16;
  std::array<uint64_t, kNumWords> words{};
  const auto* data = reinterpret_cast<const uint64_t*>(bytes.data());
  const size_t count = bytes.size() / sizeof(uint64_t) / kNumWords * kNumWords;
  for (size_t i = 0; i < count; i += kNumWords) {
    for (size_t w = 0; w < kNumWords; ++w) {
      words[w] ^= data[i + w];
    }
  }
  uint64_t joined = 0;
  for (const uint64_t word : words) {
    joined ^= word;
  }
  return joined;
}

}  // namespace tools
