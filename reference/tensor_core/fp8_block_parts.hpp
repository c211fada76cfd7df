// What the forms of the fast FP8 block share: the numbers of the step, and the rounding mode.
#pragma once

#include <cfenv>

namespace reference::tensor_core::fp8_block {

inline constexpr int kStepLen = 32;
inline constexpr int kAlignBits = 13;
// Sums stay below 2^7 * 2^E (33 terms below 4 * 2^E each), so 2^(E + 10) keeps its exponent; its last place is 2^(E - 13).
inline constexpr int kAnchorShift = 23 - kAlignBits;
inline constexpr int kResultMask = static_cast<int>(0xFFFFFC00u);  // 13 of 23 fraction bits
inline constexpr int kExponentMask = 0x7F800000;
inline constexpr int kFractionBits = 23;

// Rounds toward zero while it lives. The kernels are called through pointers or marked noinline, so that no operation moves past it.
class RoundTowardZero {
 public:
  RoundTowardZero() : saved_(std::fegetround()) { std::fesetround(FE_TOWARDZERO); }
  ~RoundTowardZero() { std::fesetround(saved_); }
  RoundTowardZero(const RoundTowardZero&) = delete;
  RoundTowardZero& operator=(const RoundTowardZero&) = delete;

 private:
  int saved_;
};

}  // namespace reference::tensor_core::fp8_block
