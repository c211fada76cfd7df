// Where the bits of an operand lie: its exponent, and the place of its lowest bit that is set.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "reference/tensor_core/step_block.hpp"

namespace reference::tensor_core {

// The exponent of a finite number as a unit sees it: a subnormal number keeps the smallest of its format.
inline int exponent_of(float number, int smallest) {
  const int field = static_cast<int>(std::bit_cast<uint32_t>(number) >> 23 & 0xFF);
  return std::max(field - 127, smallest);
}

// StepRow::last_place of an E4M3 number.
inline int8_t last_place_of(float number) {
  const auto bits = std::bit_cast<uint32_t>(number);
  const auto significand = static_cast<int32_t>((bits & 0x7FFFFF) | 0x800000);
  const auto lowest_bit = std::bit_cast<uint32_t>(static_cast<float>(significand & -significand));
  const int place = static_cast<int>(bits >> 23 & 0xFF) - 150 + static_cast<int>(lowest_bit >> 23) - 127;
  return static_cast<int8_t>(number == 0 ? kNoPlace : place);
}

}  // namespace reference::tensor_core
