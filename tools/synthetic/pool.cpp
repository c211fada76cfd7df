#include "tools/synthetic/pool.hpp"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <string>
#include <thread>

#include "reference/numerics/bf16.hpp"
#include "reference/parallel.hpp"
#include "tools/synthetic/deviates.hpp"
#include "tools/synthetic/philox.hpp"

namespace tools::synthetic {
namespace {

constexpr int64_t kNumPlaces = int64_t{1} << 26;  // where a window may start
constexpr int64_t kLargestEvery = 1021;           // a prime, so that rows do not all have theirs in the same columns
constexpr int64_t kRunLen = 128;
constexpr int64_t kNumNormal = int64_t{1} << 16;

int num_threads() {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

// A well-mixed function of a tensor and a number (the finaliser of SplitMix64).
uint64_t mixed(uint64_t key, uint64_t number) {
  uint64_t bits = key + 0x9E3779B97F4A7C15 * (number + 1);
  bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9;
  bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB;
  return bits ^ (bits >> 31);
}

uint64_t key_of(uint64_t seed, const std::string& name) {
  return XXH3_64bits_withSeed(name.data(), name.size(), seed);
}

}  // namespace

model::TensorView WeightPool::fp8_codes(const model::CatalogTensor& tensor, int64_t first, int64_t count) const {
  std::call_once(made_, [&] {
    std::vector<uint8_t> pool(static_cast<size_t>(kNumPlaces + largest_));
    const auto codes = normal_codes();
    reference::share_ranges(static_cast<int64_t>(pool.size()), num_threads(), [&](int64_t begin, int64_t end) {
      Draws draws(seed_, "#pool");
      for (int64_t i = begin; i < end; ++i) {
        const uint8_t code = codes[draws.bits(i)];
        pool[static_cast<size_t>(i)] =
            i % kLargestEvery == 0 ? static_cast<uint8_t>((code & kSignBit) | kLargestCode) : code;
      }
    });
    fp8_ = std::make_shared<const std::vector<uint8_t>>(std::move(pool));
  });
  const auto place = static_cast<int64_t>(key_of(seed_, tensor.name) % kNumPlaces);
  CHECK(place + first + count <= static_cast<int64_t>(fp8_->size()));
  const auto window =
      std::span<const uint8_t>(*fp8_).subspan(static_cast<size_t>(place + first), static_cast<size_t>(count));
  return {model::DType::kF8E4M3, {count}, std::as_bytes(window), fp8_};
}

model::TensorView WeightPool::bf16_codes(const std::string& name, double std, int64_t first, int64_t count) const {
  std::vector<uint16_t> numbers(static_cast<size_t>(kNumNormal + kRunLen));
  Draws draws(seed_, "#pool.bf16");
  for (int64_t i = 0; i < static_cast<int64_t>(numbers.size()); ++i) {
    numbers[static_cast<size_t>(i)] =
        reference::encode_bf16(static_cast<float>(std * normal_deviates()[draws.bits(i)]));
  }
  const uint64_t key = key_of(seed_, name);
  const std::shared_ptr<uint16_t[]> codes(new uint16_t[static_cast<size_t>(count)]);
  reference::share_ranges(count, num_threads(), [&](int64_t begin, int64_t end) {
    for (int64_t i = first + begin; i < first + end;) {
      const int64_t run = i / kRunLen;
      const int64_t stop = std::min((run + 1) * kRunLen, first + end);
      const auto place = static_cast<int64_t>(mixed(key, static_cast<uint64_t>(run)) % kNumNormal);
      std::copy_n(numbers.begin() + place + i % kRunLen, stop - i, codes.get() + (i - first));
      i = stop;
    }
  });
  const auto bytes = std::as_bytes(std::span<const uint16_t>(codes.get(), static_cast<size_t>(count)));
  return {model::DType::kBF16, {count}, bytes, codes};
}

}  // namespace tools::synthetic
