// Rounding by its definition: the nearest of a table of numbers, the even one of two equally near. Slow, and shares nothing with the
// encoders it checks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace reference {

class NearestOfTable {
 public:
  // The non-negative numbers of the format, ascending, by code; even codes are the even numbers.
  explicit NearestOfTable(const std::vector<double>& numbers) {
    for (size_t code = 0; code + 1 < numbers.size(); ++code) {
      midpoints_.push_back((numbers[code] + numbers[code + 1]) / 2);  // exact for the formats of few bits
    }
  }

  // Code of the number nearest to magnitude >= 0.
  int64_t code_of(double magnitude) const {
    const auto midpoint = std::lower_bound(midpoints_.begin(), midpoints_.end(), magnitude);
    const int64_t code = midpoint - midpoints_.begin();
    const bool tie = midpoint != midpoints_.end() && *midpoint == magnitude;
    return tie && code % 2 == 1 ? code + 1 : code;
  }

 private:
  std::vector<double> midpoints_;
};

// From the definition of the format: bias 7, 3 fraction bits, 126 finite codes after 0.
inline NearestOfTable nearest_f8_e4m3() {
  std::vector<double> numbers;
  for (int exponent = 0; exponent < 16; ++exponent) {
    for (int fraction = 0; fraction < 8; ++fraction) {
      const double step = static_cast<double>(1 << std::max(exponent - 1, 0)) / 512.0;  // 2^-9 for codes 0..15
      numbers.push_back((exponent == 0 ? fraction : 8 + fraction) * step);
    }
  }
  numbers.pop_back();  // 0x7F is NaN
  return NearestOfTable(numbers);
}

// Bias 127, 7 fraction bits; the last entry stands for infinity and counts as 2^128 when rounding, IEEE 754 section 4.3.1.
inline NearestOfTable nearest_bf16() {
  std::vector<double> numbers;
  double step = 0x1p-133;
  for (int exponent = 0; exponent < 255; ++exponent) {
    for (int fraction = 0; fraction < 128; ++fraction) {
      numbers.push_back((exponent == 0 ? fraction : 128 + fraction) * step);
    }
    step *= exponent == 0 ? 1 : 2;
  }
  numbers.push_back(0x1p128);
  return NearestOfTable(numbers);
}

// Bias 15, 10 fraction bits; the last entry stands for infinity and counts as 2^16.
inline NearestOfTable nearest_fp16() {
  std::vector<double> numbers;
  double step = 0x1p-24;
  for (int exponent = 0; exponent < 31; ++exponent) {
    for (int fraction = 0; fraction < 1024; ++fraction) {
      numbers.push_back((exponent == 0 ? fraction : 1024 + fraction) * step);
    }
    step *= exponent == 0 ? 1 : 2;
  }
  numbers.push_back(0x1p16);
  return NearestOfTable(numbers);
}

}  // namespace reference
