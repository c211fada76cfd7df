// The kernels that take one element after another: rounding, quantising, exp and silu. Included by kernel_bodies.hpp, inside the
// unnamed namespace of a level.

// As encode_bf16 of numerics/bf16.hpp; the code is the upper half.
inline uint32_t rounded_to_bf16(uint32_t bits) {
  const uint32_t rounded = bits + 0x7FFF + ((bits >> 16) & 1);
  return ((bits & kMagnitude) > kInfinity ? bits | 0x400000 : rounded) & 0xFFFF0000;
}

void encode_bf16(const float* values, int64_t len, uint16_t* codes) {
  for (int64_t i = 0; i < len; ++i) {
    codes[i] = static_cast<uint16_t>(rounded_to_bf16(bits_of(values[i])) >> 16);
  }
}

bool scale_to_bf16(float* values, int64_t len, float scale) {
  uint32_t extreme = 0;
  for (int64_t i = 0; i < len; ++i) {
    const uint32_t result = rounded_to_bf16(bits_of(values[i] * scale));
    values[i] = float_of(result);
    extreme |= is_extreme(result & kMagnitude);
  }
  return extreme == 0;
}

bool is_bf16(const float* values, int64_t len) {
  uint32_t other = 0;
  for (int64_t i = 0; i < len; ++i) {
    const uint32_t bits = bits_of(values[i]);
    other |= (bits & 0xFFFF) | is_extreme(bits & kMagnitude);
  }
  return other == 0;
}

float largest_magnitude(const float* x, int64_t len) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < len; ++i) {
    const uint32_t magnitude = bits_of(x[i]) & kMagnitude;
    largest = magnitude > largest ? magnitude : largest;
  }
  for (int64_t i = 0; largest > kInfinity && i < len; ++i) {
    if (x[i] != x[i]) {
      return x[i];
    }
  }
  return float_of(largest);
}

// The number that encode_f8_e4m3 would give a code for, by the same arithmetic without the branches.
inline float rounded_to_e4m3(float value) {
  constexpr uint32_t kMinNormal = 0x3C800000;          // 2^-6
  constexpr uint32_t kLastRoundingTo448 = 0x43E80000;  // 464
  constexpr float kAligner = 16384.0f;                 // its ulp is the step of the subnormal codes
  const uint32_t bits = bits_of(value);
  const uint32_t magnitude = bits & kMagnitude;
  const uint32_t clamped = magnitude < kLastRoundingTo448 ? magnitude : kLastRoundingTo448;
  const uint32_t normal = (clamped + 0x7FFFF + ((clamped >> 20) & 1)) & 0xFFF00000;
  const uint32_t subnormal = bits_of((float_of(magnitude) + kAligner) - kAligner);
  const uint32_t number = (magnitude >= kMinNormal ? normal : subnormal) | (bits & ~kMagnitude);
  return float_of(magnitude > kInfinity ? kInfinity | 0x400000 : number);
}

void quotients_to_e4m3(const float* x, int64_t len, float divisor, float* out) {
  for (int64_t i = 0; i < len; ++i) {
    out[i] = rounded_to_e4m3(x[i] / divisor);
  }
}

void products_to_e4m3(const float* x, int64_t len, float factor, float* out) {
  for (int64_t i = 0; i < len; ++i) {
    out[i] = rounded_to_e4m3(x[i] * factor);
  }
}

// exp(x) within 2^-49 relative, |x| <= 100: x = k ln 2 + r, |r| <= 0.35, Taylor to r^13.
inline double exp_near(double x) {
  constexpr double kAligner = 0x1.8p52;  // its ulp is 1
  const double aligned = x * 0x1.71547652b82fep+0 + kAligner;
  const double k = aligned - kAligner;
  const double r = (x - k * 0x1.62e42fee00000p-1) - k * 0x1.a39ef35793c76p-33;
  double sum = 1.0 / 6227020800.0;
  sum = sum * r + 1.0 / 479001600.0;
  sum = sum * r + 1.0 / 39916800.0;
  sum = sum * r + 1.0 / 3628800.0;
  sum = sum * r + 1.0 / 362880.0;
  sum = sum * r + 1.0 / 40320.0;
  sum = sum * r + 1.0 / 5040.0;
  sum = sum * r + 1.0 / 720.0;
  sum = sum * r + 1.0 / 120.0;
  sum = sum * r + 1.0 / 24.0;
  sum = sum * r + 1.0 / 6.0;
  sum = sum * r + 0.5;
  sum = sum * r + 1.0;
  sum = sum * r + 1.0;
  const uint64_t power = (__builtin_bit_cast(uint64_t, aligned) + 1023) << 52;
  return sum * __builtin_bit_cast(double, power);
}

inline double silu_near(double x) {
  const double e = exp_near(x < 0 ? x : -x);
  return x * ((x < 0 ? e : 1.0) / (1.0 + e));
}

// out = near(x) rounded to float where that is certain: both ends of an interval wider than the error round alike. Elsewhere, and
// outside `least` <= |x| <= 80 where near() or the margin may not hold, exact(x).
template <typename Near, typename Exact>
inline void round_or_refine(const float* x, int64_t len, float* out, float least, Near near, Exact exact) {
  constexpr int kChunk = 32;
  for (int64_t begin = 0; begin < len; begin += kChunk) {
    const int count = len - begin < kChunk ? static_cast<int>(len - begin) : kChunk;
    float in[kChunk] = {};
    float rounded[kChunk];
    uint32_t uncertain[kChunk];
    __builtin_memcpy(in, x + begin, static_cast<size_t>(count) * sizeof(float));
    uint32_t any = 0;
    for (int i = 0; i < kChunk; ++i) {
      const float magnitude = float_of(bits_of(in[i]) & kMagnitude);
      const bool inside = magnitude >= least && magnitude <= 80.0f;
      const double y = near(static_cast<double>(inside ? in[i] : 1.0f));
      const double margin = y * 0x1p-45;
      rounded[i] = static_cast<float>(y - margin);
      uncertain[i] =
          static_cast<uint32_t>(!inside) | static_cast<uint32_t>(rounded[i] != static_cast<float>(y + margin));
      any |= uncertain[i];
    }
    for (int i = 0; any != 0 && i < count; ++i) {
      rounded[i] = uncertain[i] != 0 ? exact(in[i]) : rounded[i];
    }
    __builtin_memcpy(out + begin, rounded, static_cast<size_t>(count) * sizeof(float));
  }
}

void exponentials(const float* x, int64_t len, float* out) {
  round_or_refine(
      x, len, out, 0.0f, [](double v) { return exp_near(v); }, [](float v) { return exp_f32(v); });
}

void silus(const float* x, int64_t len, float* out) {
  round_or_refine(
      x, len, out, 0x1p-100f, [](double v) { return silu_near(v); }, [](float v) { return silu_f32(v); });
}
