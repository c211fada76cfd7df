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

bool dequantize_e4m3(const StoredPanel& stored, int64_t len, float scale, float* out, int64_t out_stride) {
  constexpr float kLeast = 0x1p-50f;  // times the smallest code 2^-9, and
  constexpr float kMost = 0x1p50f;    // times the largest, 448: in [kSmallestExact, kLargestExact)
  const auto* codes = static_cast<const uint8_t*>(stored.codes);
  E4m3Range range;
  const bool is_usual = scale >= kLeast && scale <= kMost;
  for (int64_t r = 0; r < stored.num_rows && is_usual; ++r) {
    ask_for<uint8_t>(stored, r, len);
    decode_row(codes + r * stored.stride, len, out + r * out_stride, range, ScaledToBf16{scale});
  }
  if (is_usual && !range.has_nan()) {
    return true;
  }
  bool all_exact = true;
  for (int64_t r = 0; r < stored.num_rows; ++r) {
    decode_e4m3(codes + r * stored.stride, len, out + r * out_stride);
    all_exact = scale_to_bf16(out + r * out_stride, len, scale) && all_exact;
  }
  return all_exact;
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

using Doubles = double __attribute__((vector_size(32)));
using Longs = uint64_t __attribute__((vector_size(32)));
using Floats = float __attribute__((vector_size(16)));  // as many
using Masks = int32_t __attribute__((vector_size(16)));

// exp(x) within 2^-49 relative, |x| <= 100: x = k ln 2 + r, |r| <= 0.35, Taylor to r^13.
inline void exp_near(const Doubles& x, Doubles& result) {
  constexpr double kAligner = 0x1.8p52;  // its ulp is 1
  const Doubles aligned = x * 0x1.71547652b82fep+0 + kAligner;
  const Doubles k = aligned - kAligner;
  const Doubles r = (x - k * 0x1.62e42fee00000p-1) - k * 0x1.a39ef35793c76p-33;
  Doubles sum = r * (1.0 / 6227020800.0) + 1.0 / 479001600.0;
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
  result = sum * (Doubles)(((Longs)aligned + 1023) << 52);
}

inline void silu_near(const Doubles& x, Doubles& result) {
  const auto is_negative = x < 0.0;
  Doubles e;
  exp_near(is_negative ? x : -x, e);
  result = x * ((is_negative ? e : Doubles{} + 1.0) / (1.0 + e));
}

// out = near(x) rounded to float where that is certain: both ends of an interval wider than the error round alike. Elsewhere, and
// outside `least` <= |x| <= 80 where near() or the margin may not hold, exact(x).
template <typename Near, typename Exact>
inline void round_or_refine(const float* x, int64_t len, float* out, float least, Near near, Exact exact) {
  constexpr int kChunk = 32;
  constexpr int kNumFloats = 4;
  for (int64_t begin = 0; begin < len; begin += kChunk) {
    const int count = len - begin < kChunk ? static_cast<int>(len - begin) : kChunk;
    float in[kChunk] = {};
    float rounded[kChunk];
    int32_t uncertain[kChunk];
    Masks any = {};
    __builtin_memcpy(in, x + begin, static_cast<size_t>(count) * sizeof(float));
    for (int i = 0; i < count; i += kNumFloats) {
      Floats number;
      __builtin_memcpy(&number, in + i, sizeof(number));
      const auto magnitude = (Floats)((Masks)number & static_cast<int32_t>(kMagnitude));
      const Masks inside = (magnitude >= least) & (magnitude <= 80.0f);
      Doubles y;
      near(__builtin_convertvector(inside ? number : Floats{} + 1.0f, Doubles), y);
      const Doubles margin = y * 0x1p-45;
      const Floats low = __builtin_convertvector(y - margin, Floats);
      const Floats high = __builtin_convertvector(y + margin, Floats);
      const Masks doubtful = ~inside | (low != high);
      any |= doubtful;
      __builtin_memcpy(rounded + i, &low, sizeof(low));
      __builtin_memcpy(uncertain + i, &doubtful, sizeof(doubtful));
    }
    uint64_t halves[2];
    __builtin_memcpy(halves, &any, sizeof(any));
    for (int i = 0; (halves[0] | halves[1]) != 0 && i < count; ++i) {
      rounded[i] = uncertain[i] != 0 ? exact(in[i]) : rounded[i];
    }
    __builtin_memcpy(out + begin, rounded, static_cast<size_t>(count) * sizeof(float));
  }
}

void exponentials(const float* x, int64_t len, float* out) {
  round_or_refine(
      x,
      len,
      out,
      0.0f,
      [](const Doubles& v, Doubles& result) { exp_near(v, result); },
      [](float v) { return exp_f32(v); });
}

void silus(const float* x, int64_t len, float* out) {
  round_or_refine(
      x,
      len,
      out,
      0x1p-100f,
      [](const Doubles& v, Doubles& result) { silu_near(v, result); },
      [](float v) { return silu_f32(v); });
}
