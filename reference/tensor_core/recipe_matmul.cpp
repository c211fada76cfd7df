#include "reference/tensor_core/recipe_matmul.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <memory>

#include "reference/numerics/bf16.hpp"
#include "reference/numerics/fp8.hpp"
#include "reference/numerics/reduce.hpp"
#include "reference/parallel.hpp"
#include "reference/tensor_core/linear_dot.hpp"
#include "reference/tensor_core/linear_recipes.hpp"

namespace reference::tensor_core {
namespace {

static_assert(kBlockProducts == kBlockLen);

// Products of larger numbers may overflow along K (at most 2^20): those blocks take the definition.
constexpr int kLargestExponent = 100;
constexpr float kLargestSum = 0x1p110f;
constexpr int kUnpackedLen = 32;  // of Chain::kUnpackedPairs

bool is_quantised(const BlockedRows& x) {
  return x.scales(0) != nullptr;
}

uint32_t code_of(Format format, float number) {
  return format == Format::kE4m3 ? encode_f8_e4m3(number) : encode_bf16(number);
}

std::vector<uint32_t> codes_of(Format format, std::span<const float> numbers) {
  std::vector<uint32_t> codes;
  codes.reserve(numbers.size());
  std::ranges::transform(numbers, std::back_inserter(codes), [=](float number) { return code_of(format, number); });
  return codes;
}

// Where a number of a block lies in a tile: units that take the products of 32 in two halves find them in that order.
int place_of(Chain chain, int k) {
  if (chain == Chain::kSteps) {
    return k;
  }
  const int within = k % kUnpackedLen;
  return k - within + (within % 4 < 2 ? 0 : kUnpackedLen / 2) + within / 4 * 2 + within % 2;
}

// The format the unit sees.
Format seen_format(const Path& path, Format format) {
  return path.chain == Chain::kUnpackedPairs ? Format::kFp16 : format;
}

// The exponent of a finite number as the unit sees it: a subnormal number keeps the smallest of its format.
int exponent_of(const Path& path, Format format, float number) {
  const int field = static_cast<int>(std::bit_cast<uint32_t>(number) >> 23 & 0xFF);
  return std::max(field - 127, smallest_exponent(seen_format(path, format)));
}

// A row of x and the outputs of a tile, while K is walked.
template <typename Real>
class RecipeMatmul {
 public:
  RecipeMatmul(const Recipe& recipe,
               const Path& path,
               Format format,
               const BlockedRows& x,
               const WeightMatrix& weight,
               const StepFunctions<Real>& functions,
               PromoteKernel promote)
      : recipe_(recipe),
        path_(path),
        format_(format),
        x_(x),
        weight_(weight),
        functions_(functions),
        promote_(promote),
        rows_(static_cast<size_t>(x.num_blocks() * x.num_rows())) {
    for (int k = 0; k < kBlockProducts; ++k) {
      places_[static_cast<size_t>(k)] = static_cast<uint8_t>(place_of(path.chain, k));
    }
    for (int64_t b = 0; b < x.num_blocks(); ++b) {
      for (int64_t m = 0; m < x.num_rows(); ++m) {
        fill_row(x.block(b) + m * kBlockLen, row_of(b, m));
      }
    }
    const auto num_steps = (x.len() + step_len() - 1) / step_len();
    split_len_ = (num_steps + recipe.chunks.num_splits - 1) / recipe.chunks.num_splits * step_len();
  }

  std::vector<float> run(int num_threads) const {
    std::vector<float> y(static_cast<size_t>(x_.num_rows() * weight_.out_dim()));
    parallel_for(
        (weight_.out_dim() + kCols - 1) / kCols, num_threads, [&](int64_t chunk) { run_chunk(chunk * kCols, y); });
    return y;
  }

 private:
  using Tile = StepTile<Real>;
  static constexpr int kCols = Tile::kCols;

  struct Row {
    StepRow<Real> numbers;
    StepRange range;
  };
  struct Weights {
    alignas(64) std::array<float, kCols * kBlockLen> numbers;  // [kCols, 128]
    Tile tile;
    StepRange range;
  };
  // Of one row of x and every column of a chunk. FP8: sum is f, and chain is not used. BF16: chain is the running step, sum what earlier splits gave.
  struct State {
    alignas(64) std::array<Real, kCols> chain{};
    alignas(64) std::array<float, kCols> sum{};
  };

  [[nodiscard]] int64_t step_len() const { return path_.step.num_products; }
  [[nodiscard]] Row& row_of(int64_t b, int64_t m) { return rows_[static_cast<size_t>(b * x_.num_rows() + m)]; }
  [[nodiscard]] const Row& row_of(int64_t b, int64_t m) const {
    return rows_[static_cast<size_t>(b * x_.num_rows() + m)];
  }

  [[nodiscard]] float rounded(float number) const { return format_ == Format::kBf16 ? round_to_bf16(number) : number; }

  void fill_row(const float* numbers, Row& row) const {
    row.range.largest_exponent = -127;
    for (int k = 0; k < kBlockLen; ++k) {
      const float number = rounded(numbers[k]);
      const auto place = places_[static_cast<size_t>(k)];
      const int exponent = exponent_of(path_, format_, number);
      row.numbers.value[place] = static_cast<Real>(number);
      row.numbers.exponent[place] =
          number == 0 ? StepReal<Real>::kZeroExponent : static_cast<typename StepReal<Real>::Exponent>(exponent);
      row.range.finite = row.range.finite && std::isfinite(number);
      row.range.largest_exponent = std::max(row.range.largest_exponent, exponent);
    }
  }

  void fill_weights(int64_t first, int64_t num_cols, int64_t b, int64_t len, Weights& w) const {
    if (num_cols < kCols || len < kBlockLen) {
      w.numbers.fill(0);
    }
    for (int64_t n = 0; n < num_cols; n += simd::kPanelRows) {
      const PanelPlace place{
          .first_row = first + n, .num_rows = std::min(simd::kPanelRows, num_cols - n), .block = b, .len = len};
      PanelPlace next = place;
      next.first_row += simd::kPanelRows;
      weight_.read_panel(format_ == Format::kE4m3 ? WeightForm::kCodes : WeightForm::kBf16,
                         place,
                         next,
                         w.numbers.data() + n * kBlockLen);
    }
    w.range = functions_.fill({.numbers = w.numbers.data(),
                               .places = places_.data(),
                               .smallest_exponent = smallest_exponent(seen_format(path_, format_))},
                              w.tile);
  }

  [[nodiscard]] bool fits_kernel(const Row& row, const Weights& w, const State& state) const {
    return row.range.finite && w.range.finite &&
           row.range.largest_exponent + w.range.largest_exponent <= kLargestExponent &&
           std::ranges::all_of(state.chain, [](Real c) { return std::abs(c) <= kLargestSum; });
  }

  // c = the steps over products [begin, end) of the block, on top of c; those of one instruction sequence.
  void steps(const Row& row, const Weights& w, bool fits, const float* x, int begin, int end, Real* c) const {
    if (fits) {
      functions_.steps({.begin = begin,
                        .end = end,
                        .step_len = static_cast<int>(step_len()),
                        .align_bits = path_.step.align_bits,
                        .result_bits = path_.step.result_bits,
                        .lowest_exponent = smallest_exponent(Format::kFp32) - path_.step.floor_below},
                       row.numbers,
                       w.tile,
                       c);
      return;
    }
    const auto part = static_cast<size_t>(end - begin);
    const auto a = codes_of(format_, {x + begin, part});
    for (int n = 0; n < kCols; ++n) {
      const auto b = codes_of(format_, {w.numbers.data() + n * kBlockLen + begin, part});
      const uint32_t before = std::bit_cast<uint32_t>(static_cast<float>(c[n]));
      c[n] = std::bit_cast<float>(path_dot(path_, format_, a, b, before));
    }
  }

  // The partial sums of products [begin, end), from zero.
  void partial_sums(const Row& row,
                    const Weights& w,
                    bool fits,
                    const float* x,
                    int begin,
                    int end,
                    std::array<float, kCols>& t) const {
    alignas(64) std::array<Real, kCols> c{};
    if (path_.chain == Chain::kSteps || !fits) {
      steps(row, w, fits, x, begin, end, c.data());
      std::ranges::transform(c, t.begin(), [](Real sum) { return static_cast<float>(sum); });
      return;
    }
    t.fill(0);
    for (int first = begin; first < end; first += kUnpackedLen) {
      c.fill(0);
      steps(row, w, true, x, first, first + kUnpackedLen, c.data());
      std::ranges::transform(t, c, t.begin(), [](float sum, Real part) { return sum + static_cast<float>(part); });
    }
  }

  void add_fp8_block(int64_t b, int64_t m, const Weights& w, float w_scale, State& state) const {
    const Row& row = row_of(b, m);
    const bool fits = row.range.finite && w.range.finite;
    const float* x = x_.block(b) + m * kBlockLen;
    const auto len = static_cast<int>(std::min<int64_t>(kBlockLen, x_.len() - b * kBlockLen));
    for (int begin = 0; begin < len; begin += recipe_.promotion.every) {
      alignas(64) std::array<float, kCols> t;
      partial_sums(row, w, fits, x, begin, std::min(begin + recipe_.promotion.every, len), t);
      promote_({.form = recipe_.promotion.form, .a_scale = x_.scales(b)[m], .b_scale = w_scale, .len = kCols},
               t.data(),
               state.sum.data());
    }
  }

  void add_bf16_block(int64_t b, int64_t m, const Weights& w, State& state) const {
    const Row& row = row_of(b, m);
    const bool fits = fits_kernel(row, w, state);
    const float* x = x_.block(b) + m * kBlockLen;
    const auto len = static_cast<int>(std::min<int64_t>(kBlockLen, x_.len() - b * kBlockLen));
    for (int begin = 0; begin < len;) {
      const int64_t k = b * kBlockLen + begin;
      const int64_t to_split = (k / split_len_ + 1) * split_len_ - k;
      const int end = static_cast<int>(std::min<int64_t>(len, begin + to_split));
      steps(row, w, fits, x, begin, end, state.chain.data());
      const bool ends_split = end - begin == to_split || k + end - begin == x_.len();
      if (ends_split) {
        const bool is_first = k / split_len_ == 0;
        std::ranges::transform(state.chain, state.sum, state.sum.begin(), [=](Real part, float sum) {
          return is_first ? static_cast<float>(part) : sum + static_cast<float>(part);
        });
        state.chain.fill(0);
      }
      begin = end;
    }
  }

  void run_chunk(int64_t first, std::vector<float>& y) const {
    const int64_t num_cols = std::min<int64_t>(kCols, weight_.out_dim() - first);
    std::vector<State> states(static_cast<size_t>(x_.num_rows()));
    const auto w = std::make_unique<Weights>();
    for (int64_t b = 0; b < x_.num_blocks(); ++b) {
      fill_weights(first, num_cols, b, std::min<int64_t>(kBlockLen, x_.len() - b * kBlockLen), *w);
      const float w_scale = weight_.scale(first, b);  // a chunk never crosses a block of scales
      for (int64_t m = 0; m < x_.num_rows(); ++m) {
        State& state = states[static_cast<size_t>(m)];
        format_ == Format::kE4m3 ? add_fp8_block(b, m, *w, w_scale, state) : add_bf16_block(b, m, *w, state);
      }
    }
    for (int64_t m = 0; m < x_.num_rows(); ++m) {
      std::copy_n(states[static_cast<size_t>(m)].sum.begin(), num_cols, y.begin() + m * weight_.out_dim() + first);
    }
  }

  const Recipe& recipe_;
  const Path& path_;
  Format format_;
  const BlockedRows& x_;
  const WeightMatrix& weight_;
  StepFunctions<Real> functions_;
  PromoteKernel promote_;
  std::array<uint8_t, kBlockProducts> places_;
  int64_t split_len_ = 0;
  std::vector<Row> rows_;  // [num_blocks, num_rows]
};

// The condition of StepKernel.
template <typename Real>
bool holds(const StepRule& step) {
  return std::ldexp(1.0, StepReal<Real>::kFractionBits - step.align_bits) > 4.0 * step.num_products + 2;
}

// What the kernels take: units that cut toward zero, whose steps are even, do not straddle blocks and ascend.
bool has_kernel(const Recipe& recipe, const Path& path, Format format) {
  const StepRule& step = path.step;
  const bool cuts = step.align == Rounding::kTowardZero && step.result == Rounding::kTowardZero;
  const bool fp8 = format == Format::kE4m3;
  const bool even = step.num_products % 2 == 0 && (!fp8 || recipe.promotion.every % 2 == 0);
  const bool steps_fit = fp8 ? path.chain == Chain::kSteps || recipe.promotion.every % kUnpackedLen == 0
                             : kBlockProducts % step.num_products == 0 && !recipe.chunks.descending;
  return cuts && even && steps_fit && holds<double>(step) && (fp8 || path.accumulator == Accumulator::kIntoUnit);
}

}  // namespace

StepSums step_sums(const Recipe& recipe, Format format) {
  const Path& path = linear_path(recipe, format);
  if (!has_kernel(recipe, path, format)) {
    return StepSums::kDefinition;
  }
  const bool fits_float = format == Format::kE4m3 && path.chain == Chain::kSteps && holds<float>(path.step);
  return fits_float ? StepSums::kFloat : StepSums::kDouble;
}

std::vector<float> recipe_matmul_plain(const Recipe& recipe,
                                       const BlockedRows& x,
                                       const WeightMatrix& weight,
                                       int num_threads) {
  CHECK_EQ(x.len(), weight.in_dim());
  const Format format = is_quantised(x) ? Format::kE4m3 : Format::kBf16;
  const Path& path = linear_path(recipe, format);
  std::vector<std::vector<uint32_t>> rows(static_cast<size_t>(x.num_rows()));
  std::vector<std::vector<float>> scales(rows.size());
  for (int64_t b = 0; b < x.num_blocks(); ++b) {
    const auto len = static_cast<size_t>(std::min<int64_t>(kBlockLen, x.len() - b * kBlockLen));
    for (size_t m = 0; m < rows.size(); ++m) {
      const auto codes = codes_of(format, {x.block(b) + m * kBlockLen, len});
      rows[m].insert(rows[m].end(), codes.begin(), codes.end());
      if (is_quantised(x)) {
        scales[m].push_back(x.scales(b)[m]);
      }
    }
  }
  std::vector<float> y(rows.size() * static_cast<size_t>(weight.out_dim()));
  parallel_for(weight.out_dim(), num_threads, [&](int64_t n) {
    std::vector<float> numbers(static_cast<size_t>(weight.in_dim()));
    is_quantised(x) ? weight.code_row(n, numbers) : weight.bf16_row(n, numbers);
    const auto codes = codes_of(format, numbers);
    std::vector<float> w_scales;
    for (int64_t b = 0; is_quantised(x) && b < x.num_blocks(); ++b) {
      w_scales.push_back(weight.scale(n, b));
    }
    for (size_t m = 0; m < rows.size(); ++m) {
      y[m * static_cast<size_t>(weight.out_dim()) + static_cast<size_t>(n)] =
          is_quantised(x) ? fp8_linear_dot(recipe, path, format, rows[m], codes, scales[m], w_scales)
                          : linear_dot(recipe, path, format, rows[m], codes);
    }
  });
  return y;
}

std::vector<float> recipe_matmul(
    const Recipe& recipe, const BlockedRows& x, const WeightMatrix& weight, int num_threads, simd::Level level) {
  CHECK_EQ(x.len(), weight.in_dim());
  if (x.num_rows() == 0) {
    return {};
  }
  const Format format = is_quantised(x) ? Format::kE4m3 : Format::kBf16;
  const Path& path = linear_path(recipe, format);
  const StepKernels& kernels = step_kernels(level);
  switch (step_sums(recipe, format)) {
    case StepSums::kFloat:
      return RecipeMatmul<float>(recipe, path, format, x, weight, kernels.of_float, kernels.promote).run(num_threads);
    case StepSums::kDouble:
      return RecipeMatmul<double>(recipe, path, format, x, weight, kernels.of_double, kernels.promote).run(num_threads);
    case StepSums::kDefinition: break;
  }
  return recipe_matmul_plain(recipe, x, weight, num_threads);
}

}  // namespace reference::tensor_core
