// Prints one 64-bit hash of every function, encoder and sum of reference/numerics over a fixed grid: builds of different compilers,
// flags and machines must print the same.
#include <xxhash.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <span>
#include <vector>

#include "reference/numerics/bf16.hpp"
#include "reference/numerics/environment.hpp"
#include "reference/numerics/fp8.hpp"
#include "reference/numerics/functions.hpp"
#include "reference/numerics/reduce.hpp"
#include "reference/numerics/round.hpp"

namespace {

using namespace reference;

class Digest {
 public:
  template <typename T>
  void add(T value) {
    const auto bytes = std::bit_cast<std::array<unsigned char, sizeof(T)>>(value);
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  uint64_t value() const { return XXH3_64bits(bytes_.data(), bytes_.size()); }

 private:
  std::vector<unsigned char> bytes_;
};

void add_functions_of_floats(Digest& digest) {
  constexpr uint64_t kStride = 65521;  // prime: every exponent with changing fractions
  for (uint64_t bits = 0; bits < 0x100000000; bits += kStride) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    for (const auto function : {exp_f32, log_f32, sigmoid_f32, silu_f32, rsqrt_f32, round_to_bf16, round_to_f8_e4m3}) {
      digest.add(function(x));
    }
    for (const auto function : {exp_f64, log_f64, sigmoid_f64, silu_f64, rsqrt_f64}) {
      digest.add(function(x));
    }
    digest.add(encode_bf16(x));
    digest.add(encode_f8_e4m3(x));
    if (x > 0.0f && std::isfinite(x)) {
      digest.add(round_up_to_power_of_two(x));
      digest.add(pow_f64(x, 0.37));
    }
    if (std::abs(x) < 0x1p18f) {
      digest.add(sin_f32(x));
      digest.add(cos_f32(x));
      digest.add(sin_f64(x));
      digest.add(cos_f64(x));
    }
  }
}

void add_roundings_of_doubles(Digest& digest) {
  constexpr uint64_t kStride = 0x0001'0003'0007'0012;
  uint64_t bits = 0;
  for (int i = 0; i < 65536; ++i, bits += kStride) {
    const double x = std::bit_cast<double>(bits);
    for (const model::DType dtype : {model::DType::kF32, model::DType::kBF16, model::DType::kF8E4M3}) {
      digest.add(std::isnan(x) ? 0.0 : round_to_format(dtype, x));
      digest.add(std::isnan(x) ? 0.0 : ulp_in_format(dtype, x));
    }
  }
}

template <typename T>
void add_sums(Digest& digest) {
  for (size_t len = 0; len < 2000; len += 7) {
    std::vector<T> a(len);
    std::vector<T> b(len);
    for (size_t k = 0; k < len; ++k) {
      a[k] = static_cast<T>(sin_f64(static_cast<double>(3 * k + len)));
      b[k] = static_cast<T>(cos_f64(static_cast<double>(5 * k + len)));
    }
    digest.add(sum_in_order<T>(a));
    digest.add(sum_of_squares_in_order<T>(a));
    digest.add(dot_in_order<T>(a, b));
    digest.add(block_dot<T>(std::span<const T>(a).first(len % 129), std::span<const T>(b).first(len % 129)));
  }
}

}  // namespace

int main() {
  check_float_environment();
  Digest digest;
  add_functions_of_floats(digest);
  add_roundings_of_doubles(digest);
  add_sums<float>(digest);
  add_sums<double>(digest);
  std::printf("%016llx\n", static_cast<unsigned long long>(digest.value()));
}
