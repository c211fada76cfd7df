// The loops of step_block.hpp, compiled once for each level of vector instructions. The including file has defined, in its anonymous
// namespace: Packs<Real> (vector types of 32 bytes) and fused(x, w, sum) = x * w + sum.
// NOTE: no function of the standard library here (reference/simd/kernels_avx2.cpp says why).

// The largest exponent of each output: that of a product, of c, or the lowest.
template <typename Real>
inline void align_to(const StepSpan& span,
                     const typename StepReal<Real>::Exponent* largest,
                     const Real* c,
                     Real* anchor) {
  using Bits = typename Packs<Real>::BitsOfOne;
  constexpr int kFractionBits = StepReal<Real>::kFractionBits;
  constexpr int kBias = sizeof(Real) == 4 ? 127 : 1023;
  constexpr Bits kFieldMask = 2 * kBias + 1;
  for (int n = 0; n < StepTile<Real>::kCols; ++n) {
    Bits bits = 0;
    __builtin_memcpy(&bits, &c[n], sizeof(bits));
    const Bits field = (bits >> kFractionBits) & kFieldMask;
    const Bits of_c = field == 0 ? Bits{-20000} : field - kBias < -126 ? Bits{-126} : field - kBias;
    Bits e = largest[n] > of_c ? largest[n] : of_c;
    e = e > span.lowest_exponent ? e : span.lowest_exponent;
    bits = (e - span.align_bits + kFractionBits + kBias) << kFractionBits;
    __builtin_memcpy(&anchor[n], &bits, sizeof(bits));
  }
}

// The exact sum cut to the result's fraction bits, and to FP32's last place below its normal numbers.
template <typename Real>
inline typename Packs<Real>::Number cut(const StepSpan& span, typename Packs<Real>::Number sum) {
  using Number = typename Packs<Real>::Number;
  using Bits = typename Packs<Real>::Bits;
  const Bits sign = (Bits)sum & (Bits{} + Packs<Real>::kSignBit);
  Number magnitude = (Number)((Bits)sum ^ sign);
  if constexpr (sizeof(Real) == 8) {
    const Real last_place = power_of_two(52 - 126 - span.result_bits);
    magnitude = magnitude < 0x1p-126 ? (magnitude + last_place) - last_place : magnitude;
  }
  const typename Packs<Real>::BitsOfOne keep =
      ~((typename Packs<Real>::BitsOfOne{1} << (StepReal<Real>::kFractionBits - span.result_bits)) - 1);
  return (Number)(((Bits)magnitude & (Bits{} + keep)) | sign) + Number{};  // no minus zero
}

// Runs under rounding toward zero, which the caller has set: hence no inlining.
template <typename Real>
__attribute__((noinline)) void run_steps(const StepSpan& span,
                                         const StepRow<Real>& x,
                                         const StepTile<Real>& tile,
                                         Real* c) {
  using Number = typename Packs<Real>::Number;
  using Exponents = typename Packs<Real>::Exponents;
  using Exponent = typename StepReal<Real>::Exponent;
  constexpr int kCols = StepTile<Real>::kCols;
  constexpr int kPacks = 4;
  constexpr int kPackLen = kCols / kPacks;
  const auto load = [](const Real* p) __attribute__((always_inline)) {
    return *reinterpret_cast<const Number*>(p);
  };
  for (int begin = span.begin; begin < span.end; begin += span.step_len) {
    const int end = begin + span.step_len < span.end ? begin + span.step_len : span.end;
    Exponents largest = Exponents{} + static_cast<Exponent>(2 * StepReal<Real>::kZeroExponent);
    for (int k = begin; k < end; ++k) {
      const Exponents sum = *reinterpret_cast<const Exponents*>(tile.exponent[k]) + x.exponent[k];
      largest = sum > largest ? sum : largest;
    }
    alignas(32) Exponent largest_of[kCols];
    *reinterpret_cast<Exponents*>(largest_of) = largest;
    alignas(32) Real anchor[kCols];
    align_to<Real>(span, largest_of, c, anchor);
    Number above[kPacks];
    Number below[kPacks];
    for (int i = 0; i < kPacks; ++i) {
      const Number before = load(c + kPackLen * i);
      above[i] = load(anchor + kPackLen * i) + (before > 0 ? before : Number{});
      below[i] = (before > 0 ? Number{} : before) - load(anchor + kPackLen * i);
    }
    for (int k = begin; k < end; ++k) {
      const StepOperands<Real> w = operands_of(tile, k, x.value[k]);
      const Number value = x.value[k] - Number{};
      for (int i = 0; i < kPacks; ++i) {
        above[i] = fused(value, load(w.to_above + kPackLen * i), above[i]);
        below[i] = fused(value, load(w.to_below + kPackLen * i), below[i]);
      }
    }
    for (int i = 0; i < kPacks; ++i) {
      *reinterpret_cast<Number*>(c + kPackLen * i) = cut<Real>(span, above[i] + below[i]);
    }
  }
}
