// Stored weights as numbers. Included by kernel_bodies.hpp, inside the unnamed namespace of a level.

using Bytes = uint8_t __attribute__((vector_size(kNumBytes)));
using Words = uint16_t __attribute__((vector_size(kNumBytes)));

// Collects the magnitudes seen, in lanes: the NaN code looks like 480 to widen_e4m3().
struct E4m3Range {
  Bytes largest = {};

  void see(const uint8_t* codes) {
    Bytes magnitudes;
    __builtin_memcpy(&magnitudes, codes, kNumBytes);
    magnitudes &= 0x7F;
    largest = magnitudes > largest ? magnitudes : largest;
  }
  [[nodiscard]] bool has_nan() const {
    const Bytes is_nan = (Bytes)(largest == 0x7F);
    uint64_t parts[kNumBytes / 8];
    __builtin_memcpy(parts, &is_nan, kNumBytes);
    return (parts[0] | parts[1] | parts[2] | parts[3]) != 0;
  }
};

// Likewise, for the question whether every number but 0 has a magnitude in [kSmallestExact, kLargestExact): the upper half of a
// float alone tells, and 0 wraps around to the largest number there is.
struct Bf16Range {
  Words largest = {};
  Words smallest_less_one = ~Words{};

  void see(const uint16_t* codes) {
    Words magnitudes;
    __builtin_memcpy(&magnitudes, codes, kNumBytes);
    magnitudes &= 0x7FFF;
    largest = magnitudes > largest ? magnitudes : largest;
    magnitudes -= 1;
    smallest_less_one = magnitudes < smallest_less_one ? magnitudes : smallest_less_one;
  }
  [[nodiscard]] bool has_exact_products() const {
    constexpr auto kSmallest = static_cast<uint16_t>(__builtin_bit_cast(uint32_t, kSmallestExact) >> 16);
    constexpr auto kLargest = static_cast<uint16_t>(__builtin_bit_cast(uint32_t, kLargestExact) >> 16);
    const Words outside = (Words)(largest >= kLargest) | (Words)(smallest_less_one < kSmallest - 1);
    uint64_t parts[kNumBytes / 8];
    __builtin_memcpy(parts, &outside, kNumBytes);
    return (parts[0] | parts[1] | parts[2] | parts[3]) == 0;
  }
};

using Bits = uint32_t __attribute__((vector_size(sizeof(Vec))));

// What becomes of a number between its decoding and its place.
struct AsItIs {
  [[nodiscard]] Vec operator()(Vec number) const { return number; }
};
// BF16(number * scale), for results that are neither NaN nor beyond the largest number.
struct ScaledToBf16 {
  float scale;
  [[nodiscard]] Vec operator()(Vec number) const {
    const Bits bits = (Bits)(number * scale);
    return (Vec)((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000);
  }
};

template <typename Convert>
inline void decode_codes(const uint8_t* codes, float* out, const Convert& convert) {
  alignas(64) Wide wide[kNumBytes];
  widen_e4m3(codes, wide);
  for (int i = 0; i < kNumBytes; i += kVecLen) {
    store(out + i, convert(load_wide(wide + i) * kWideFactor));
  }
}
template <typename Convert>
inline void decode_codes(const uint16_t* codes, float* out, const Convert& convert) {
  for (int i = 0; i < kNumBytes / 2; i += kVecLen) {
    store(out + i, convert(load_bf16(codes + i)));
  }
}

// Codes [len] of one row to `out`, seen by `range`. The last ones are padded with 0, which changes no range.
template <typename Code, typename Range, typename Convert = AsItIs>
inline void decode_row(const Code* codes, int64_t len, float* out, Range& range, const Convert& convert = {}) {
  constexpr auto kNumCodes = static_cast<int64_t>(kNumBytes / sizeof(Code));
  const int64_t whole_len = len - len % kNumCodes;
  for (int64_t i = 0; i < whole_len; i += kNumCodes) {
    range.see(codes + i);
    decode_codes(codes + i, out + i, convert);
  }
  if (whole_len < len) {
    Code last_codes[kNumCodes] = {};
    float last[kNumCodes];
    __builtin_memcpy(last_codes, codes + whole_len, static_cast<size_t>(len - whole_len) * sizeof(Code));
    range.see(last_codes);
    decode_codes(last_codes, last, convert);
    __builtin_memcpy(out + whole_len, last, static_cast<size_t>(len - whole_len) * sizeof(float));
  }
}

inline void put_nan(const uint8_t* codes, int64_t len, float* out) {
  for (int64_t i = 0; i < len; ++i) {
    out[i] = (codes[i] & 0x7F) == 0x7F ? __builtin_nanf("") : out[i];
  }
}

void decode_e4m3(const uint8_t* codes, int64_t len, float* out) {
  E4m3Range range;
  decode_row(codes, len, out, range);
  if (range.has_nan()) {
    put_nan(codes, len, out);
  }
}

bool decode_bf16(const uint16_t* codes, int64_t len, float* out) {
  Bf16Range range;
  decode_row(codes, len, out, range);
  return range.has_exact_products();
}

// Asks for the codes of a panel to come.
template <typename Code>
inline void ask_for(const StoredPanel& panel, int64_t r, int64_t len) {
  const char* next = static_cast<const char*>(panel.next) + r * panel.stride * static_cast<int64_t>(sizeof(Code));
  for (int64_t line = 0; line < len * static_cast<int64_t>(sizeof(Code)); line += 64) {
    __builtin_prefetch(next + line);
  }
}

void decode_e4m3_panel(const StoredPanel& stored, int64_t len, float* panel) {
  const auto* codes = static_cast<const uint8_t*>(stored.codes);
  E4m3Range range;
  for (int64_t r = 0; r < stored.num_rows; ++r) {
    ask_for<uint8_t>(stored, r, len);
    decode_row(codes + r * stored.stride, len, panel + r * kPanelLen, range);
  }
  for (int64_t r = 0; r < stored.num_rows && range.has_nan(); ++r) {
    put_nan(codes + r * stored.stride, len, panel + r * kPanelLen);
  }
}

bool decode_bf16_panel(const StoredPanel& stored, int64_t len, float* panel) {
  const auto* codes = static_cast<const uint16_t*>(stored.codes);
  Bf16Range range;
  for (int64_t r = 0; r < stored.num_rows; ++r) {
    ask_for<uint16_t>(stored, r, len);
    decode_row(codes + r * stored.stride, len, panel + r * kPanelLen, range);
  }
  return range.has_exact_products();
}
