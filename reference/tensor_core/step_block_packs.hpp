// The vector types of step_block_bodies.hpp, in the compilers' own extension, which is lowered to whatever the file is compiled for.
// Included inside the anonymous namespace of each of those files.

template <typename Real>
struct Packs;
template <>
struct Packs<float> {
  typedef float Number __attribute__((vector_size(32), may_alias));
  typedef int32_t Bits __attribute__((vector_size(32)));
  typedef int8_t Exponents __attribute__((vector_size(32), may_alias));
  using BitsOfOne = int32_t;
  static constexpr int32_t kSignBit = INT32_MIN;
};
template <>
struct Packs<double> {
  typedef double Number __attribute__((vector_size(32), may_alias));
  typedef int64_t Bits __attribute__((vector_size(32)));
  typedef int16_t Exponents __attribute__((vector_size(32), may_alias));
  using BitsOfOne = int64_t;
  static constexpr int64_t kSignBit = INT64_MIN;
};

inline double power_of_two(int exponent) {
  const int64_t bits = static_cast<int64_t>(exponent + 1023) << 52;
  double value = 0;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}
