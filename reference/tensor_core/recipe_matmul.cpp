#include "reference/tensor_core/recipe_matmul.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <memory>
#include <type_traits>

#include "reference/numerics/bf16.hpp"
#include "reference/numerics/fp8.hpp"
#include "reference/numerics/reduce.hpp"
#include "reference/parallel.hpp"
#include "reference/tensor_core/linear_dot.hpp"
#include "reference/tensor_core/linear_recipes.hpp"
#include "reference/tensor_core/number_places.hpp"

namespace reference::tensor_core {
namespace {

static_assert(kBlockProducts == kBlockLen);

// Products of larger numbers may overflow along K (at most 2^20): those blocks take the definition.
constexpr int kLargestExponent = 100;
constexpr double kLargestSum = 0x1p110;
constexpr int kNoExponent = -127;  // of zero: below those of all numbers
constexpr int kUnpackedLen = 32;   // of Chain::kUnpackedPairs

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

// A product in chunks of as many outputs as a tile has: every row of x meets the weights of a block while they lie in a tile.
template <typename Real>
class RecipeMatmul {
 public:
  RecipeMatmul(const Recipe& recipe,
               const Path& path,
               Format format,
               const BlockedRows& x,
               const WeightMatrix& weight,
               const StepKernels& kernels,
               int num_threads)
      : recipe_(recipe),
        path_(path),
        format_(format),
        x_(x),
        weight_(weight),
        kernels_(kernels),
        functions_(functions_of(kernels)),
        rows_(static_cast<size_t>(x.num_blocks() * x.num_rows())) {
    for (int k = 0; k < kBlockProducts; ++k) {
      places_[static_cast<size_t>(k)] = static_cast<uint8_t>(place_of(path.chain, k));
    }
    parallel_for(x.num_blocks(), num_threads, [&](int64_t b) {
      for (int64_t m = 0; m < x.num_rows(); ++m) {
        fill_row(x.block(b) + m * kBlockLen, row_of(b, m));
      }
    });
    const auto num_steps = (x.len() + step_len() - 1) / step_len();
    split_len_ = (num_steps + recipe.chunks.num_splits - 1) / recipe.chunks.num_splits * step_len();
  }

  std::vector<float> run(int num_threads) const {
    std::vector<float> y(static_cast<size_t>(x_.num_rows() * weight_.out_dim()));
    constexpr int64_t kGroupCols = kChunksTogether * kCols;
    parallel_for((weight_.out_dim() + kGroupCols - 1) / kGroupCols, num_threads, [&](int64_t group) {
      run_group(group * kGroupCols, y);
    });
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
  // Of one row of x and every column of a chunk. `chain` is the running step. FP8: `part` is what it gave of the present promotion, `sum`
  // is f. BF16: `sum` is what earlier splits gave.
  struct State {
    alignas(64) std::array<Real, kCols> chain{};
    alignas(64) std::array<float, kCols> part{};
    alignas(64) std::array<float, kCols> sum{};
    double largest_chain = 0;  // of BF16: no number of `chain` is larger
  };
  // As many outputs as a tile has.
  struct Chunk {
    int64_t first = 0;  // output
    int64_t num_cols = 0;
    std::vector<State> states;  // [num_rows]
  };
  // What a thread needs for one chunk after the other.
  struct Scratch {
    Weights weights;
    std::vector<StepOutputs<Real>> for_kernel;  // of the rows that it takes in the present block
    std::vector<int64_t> for_definition;        // the other rows
  };
  // Chunks that meet a block of x one after the other, so that what it holds is fetched into the second cache once for all of them.
  static constexpr int64_t kChunksTogether = 4;

  static const StepFunctions<Real>& functions_of(const StepKernels& kernels) {
    if constexpr (std::is_same_v<Real, float>) {
      return kernels.of_float;
    } else {
      return kernels.of_double;
    }
  }

  [[nodiscard]] int64_t step_len() const { return path_.step.num_products; }
  [[nodiscard]] Row& row_of(int64_t b, int64_t m) { return rows_[static_cast<size_t>(b * x_.num_rows() + m)]; }
  [[nodiscard]] const Row& row_of(int64_t b, int64_t m) const {
    return rows_[static_cast<size_t>(b * x_.num_rows() + m)];
  }

  // The numbers of a row as the unit takes them: rounded to BF16 or E4M3 already, each in its place.
  [[nodiscard]] std::array<float, kBlockProducts> ordered(const float* numbers) const {
    std::array<float, kBlockProducts> in_place;
    if (format_ == Format::kBf16) {
      std::array<uint16_t, kBlockProducts> codes;
      simd::kernels().encode_bf16(numbers, kBlockLen, codes.data());
      std::ranges::transform(codes, in_place.begin(), [](uint32_t code) { return std::bit_cast<float>(code << 16); });
    } else if (path_.chain == Chain::kSteps) {
      std::copy_n(numbers, kBlockLen, in_place.begin());
    } else {
      for (size_t k = 0; k < kBlockProducts; ++k) {
        in_place[places_[k]] = numbers[k];
      }
    }
    return in_place;
  }

  void fill_row(const float* numbers, Row& row) const {
    const auto in_place = ordered(numbers);
    std::array<int, kBlockProducts> exponents;  // of numbers that are not zero
    const int smallest = smallest_exponent(seen_format(path_, format_));
    for (size_t k = 0; k < kBlockProducts; ++k) {
      row.numbers.value[k] = static_cast<Real>(in_place[k]);
      exponents[k] = in_place[k] == 0 ? kNoExponent : exponent_of(in_place[k], smallest);
    }
    const int largest = std::ranges::max(exponents);
    row.range = {.largest_exponent = largest, .finite = largest < 128};
    put_exponents(exponents, row.numbers);
    if constexpr (std::is_same_v<Real, float>) {
      for (size_t k = 0; k < kBlockProducts; ++k) {
        row.numbers.last_place[k] = last_place_of(in_place[k]);
        row.numbers.places_of_weights[k] = in_place[k] < 0 ? kCols : 0;
      }
    }
  }

  static void put_exponents(const std::array<int, kBlockProducts>& exponents, StepRow<float>& row) {
    const int largest = std::ranges::max(exponents);
    row.largest_exponent = largest + 127;
    row.largest_depth = 0;
    for (size_t k = 0; k < kBlockProducts; ++k) {
      const int depth = largest - exponents[k];
      const bool is_zero = exponents[k] == kNoExponent;
      row.depth[k] = static_cast<uint8_t>(is_zero ? 255 : depth);
      row.largest_depth = std::max(row.largest_depth, is_zero ? 0 : depth);
    }
  }
  static void put_exponents(const std::array<int, kBlockProducts>& exponents, StepRow<double>& row) {
    std::ranges::transform(exponents, row.exponent, [](int exponent) {
      return exponent == kNoExponent ? kZeroExponent : static_cast<int16_t>(exponent);
    });
  }

  // The numbers of columns [first, first + num_cols) in a block.
  void read_numbers(int64_t first, int64_t num_cols, int64_t b, int64_t len, Weights& w) const {
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
  }

  void fill_weights(int64_t first, int64_t num_cols, int64_t b, int64_t len, Weights& w) const {
    const bool is_whole = num_cols == kCols && len == kBlockLen;
    if (is_whole && path_.chain == Chain::kSteps && fill_from_codes(weight_.codes_at(first, b * kBlockLen), w)) {
      return;
    }
    read_numbers(first, num_cols, b, len, w);
    w.range = functions_.fill({.numbers = w.numbers.data(),
                               .places = places_.data(),
                               .smallest_exponent = smallest_exponent(seen_format(path_, format_))},
                              w.tile);
  }

  // False where the weight is stored as other codes, or the level unpacks none.
  bool fill_from_codes(const std::byte* codes, Weights& w) const {
    if constexpr (std::is_same_v<Real, float>) {
      if (format_ == Format::kE4m3 && kernels_.fill_from_e4m3 != nullptr) {
        const bool with_last_places = x_.num_rows() > kRowsWithoutPlaces;
        w.range = kernels_.fill_from_e4m3(
            reinterpret_cast<const uint8_t*>(codes), weight_.in_dim(), with_last_places, w.tile);
        return true;
      }
      if (format_ == Format::kBf16 && kernels_.fill_from_bf16 != nullptr && weight_.stores(WeightForm::kBf16)) {
        w.range = kernels_.fill_from_bf16(reinterpret_cast<const uint16_t*>(codes), weight_.in_dim(), w.tile);
        return true;
      }
    }
    return false;
  }

  [[nodiscard]] bool fits_kernel(const Row& row, const Weights& w, State& state) const {
    if (!row.range.finite || !w.range.finite) {
      state.largest_chain = HUGE_VAL;
      return false;
    }
    if (format_ == Format::kE4m3) {
      return true;
    }
    const int largest = row.range.largest_exponent + w.range.largest_exponent;
    state.largest_chain += std::ldexp(4.0 * kBlockProducts, largest);
    return largest <= kLargestExponent && state.largest_chain <= kLargestSum;
  }

  void sort_rows(int64_t b, Chunk& chunk, Scratch& scratch) const {
    scratch.for_kernel.clear();
    scratch.for_definition.clear();
    for (int64_t m = 0; m < x_.num_rows(); ++m) {
      const Row& row = row_of(b, m);
      State& state = chunk.states[static_cast<size_t>(m)];
      if (fits_kernel(row, scratch.weights, state)) {
        scratch.for_kernel.push_back({.x = &row.numbers, .c = state.chain.data()});
      } else {
        scratch.for_definition.push_back(m);
      }
    }
  }

  // Every row's chain = the steps over products [begin, end) of block b on top of it, those of one instruction sequence.
  void add_steps(int64_t b, int begin, int end, Chunk& chunk, const Scratch& scratch) const {
    functions_.steps({.begin = begin,
                      .end = end,
                      .step_len = static_cast<int>(step_len()),
                      .align_bits = path_.step.align_bits,
                      .result_bits = path_.step.result_bits,
                      .lowest_exponent = smallest_exponent(Format::kFp32) - path_.step.floor_below},
                     scratch.weights.tile,
                     scratch.for_kernel.data(),
                     static_cast<int64_t>(scratch.for_kernel.size()));
    const auto len = static_cast<size_t>(end - begin);
    for (const int64_t m : scratch.for_definition) {
      auto& chain = chunk.states[static_cast<size_t>(m)].chain;
      const auto a = codes_of(format_, {x_.block(b) + m * kBlockLen + begin, len});
      for (int n = 0; n < kCols; ++n) {
        const auto w = codes_of(format_, {scratch.weights.numbers.data() + n * kBlockLen + begin, len});
        Real& c = chain[static_cast<size_t>(n)];
        c = std::bit_cast<float>(path_dot(path_, format_, a, w, std::bit_cast<uint32_t>(static_cast<float>(c))));
      }
    }
  }

  // Whether the partial sums of a promotion are one chain, which then holds them.
  [[nodiscard]] bool keeps_partial_sums() const { return std::is_same_v<Real, float> && path_.chain == Chain::kSteps; }
  [[nodiscard]] const float* partial_sums(const State& state) const {
    if constexpr (std::is_same_v<Real, float>) {
      return keeps_partial_sums() ? state.chain.data() : state.part.data();
    } else {
      return state.part.data();
    }
  }

  // Every row's partial sums = those of products [begin, end), from zero.
  void set_partial_sums(int64_t b, int begin, int end, Chunk& chunk, const Scratch& scratch) const {
    const int len = path_.chain == Chain::kSteps ? end - begin : kUnpackedLen;
    for (int first = begin; first < end; first += len) {
      for (State& state : chunk.states) {
        state.chain.fill(0);
      }
      add_steps(b, first, first + len, chunk, scratch);  // whole pairs of FP16 steps: zeros beyond the end
      if (keeps_partial_sums()) {
        return;
      }
      for (State& state : chunk.states) {
        const bool is_first = first == begin;
        std::ranges::transform(state.part, state.chain, state.part.begin(), [=](float sum, Real c) {
          return is_first ? static_cast<float>(c) : sum + static_cast<float>(c);
        });
      }
    }
  }

  void add_fp8_block(int64_t b, int len, float w_scale, Chunk& chunk, const Scratch& scratch) const {
    for (int begin = 0; begin < len; begin += recipe_.promotion.every) {
      set_partial_sums(b, begin, std::min(begin + recipe_.promotion.every, len), chunk, scratch);
      for (int64_t m = 0; m < x_.num_rows(); ++m) {
        State& state = chunk.states[static_cast<size_t>(m)];
        kernels_.promote({.form = recipe_.promotion.form, .a_scale = x_.scales(b)[m], .b_scale = w_scale, .len = kCols},
                         partial_sums(state),
                         state.sum.data());
      }
    }
  }

  void add_bf16_block(int64_t b, int len, Chunk& chunk, const Scratch& scratch) const {
    for (int begin = 0; begin < len;) {
      const int64_t k = b * kBlockLen + begin;
      const int64_t to_split = (k / split_len_ + 1) * split_len_ - k;
      const int end = static_cast<int>(std::min<int64_t>(len, begin + to_split));
      add_steps(b, begin, end, chunk, scratch);
      const bool ends_split = end - begin == to_split || k + end - begin == x_.len();
      for (State& state : chunk.states) {
        if (!ends_split) {
          break;
        }
        const bool is_first = k / split_len_ == 0;
        std::ranges::transform(state.chain, state.sum, state.sum.begin(), [=](Real part, float sum) {
          return is_first ? static_cast<float>(part) : sum + static_cast<float>(part);
        });
        state.chain.fill(0);
      }
      begin = end;
    }
  }

  void add_block(int64_t b, Chunk& chunk, Scratch& scratch) const {
    const auto len = static_cast<int>(std::min<int64_t>(kBlockLen, x_.len() - b * kBlockLen));
    fill_weights(chunk.first, chunk.num_cols, b, len, scratch.weights);
    sort_rows(b, chunk, scratch);
    if (!scratch.for_definition.empty()) {
      read_numbers(chunk.first, chunk.num_cols, b, len, scratch.weights);
    }
    if (format_ == Format::kE4m3) {
      add_fp8_block(b, len, weight_.scale(chunk.first, b), chunk, scratch);  // a chunk never crosses a block of scales
    } else {
      add_bf16_block(b, len, chunk, scratch);
    }
  }

  void run_group(int64_t begin, std::vector<float>& y) const {
    std::vector<Chunk> chunks;
    for (int64_t first = begin; first < std::min(begin + kChunksTogether * kCols, weight_.out_dim()); first += kCols) {
      chunks.push_back({.first = first,
                        .num_cols = std::min<int64_t>(kCols, weight_.out_dim() - first),
                        .states = std::vector<State>(static_cast<size_t>(x_.num_rows()))});
    }
    const auto scratch = std::make_unique<Scratch>();
    for (int64_t b = 0; b < x_.num_blocks(); ++b) {
      for (Chunk& chunk : chunks) {
        add_block(b, chunk, *scratch);
      }
    }
    for (const Chunk& chunk : chunks) {
      for (int64_t m = 0; m < x_.num_rows(); ++m) {
        std::copy_n(chunk.states[static_cast<size_t>(m)].sum.begin(),
                    chunk.num_cols,
                    y.begin() + m * weight_.out_dim() + chunk.first);
      }
    }
  }

  const Recipe& recipe_;
  const Path& path_;
  Format format_;
  const BlockedRows& x_;
  const WeightMatrix& weight_;
  const StepKernels& kernels_;
  const StepFunctions<Real>& functions_;
  std::array<uint8_t, kBlockProducts> places_;
  int64_t split_len_ = 0;
  std::vector<Row> rows_;  // [num_blocks, num_rows]
};

template <typename Real>
bool fits(const StepRule& step) {
  return fits_sums<Real>(step.num_products, step.align_bits);
}

// What the kernels take: units that cut toward zero, whose steps are even, do not straddle blocks and ascend.
bool has_kernel(const Recipe& recipe, const Path& path, Format format) {
  const StepRule& step = path.step;
  const bool cuts = step.align == Rounding::kTowardZero && step.result == Rounding::kTowardZero;
  const bool fp8 = format == Format::kE4m3;
  const bool even = step.num_products % 2 == 0 && (!fp8 || recipe.promotion.every % 2 == 0);
  const bool steps_fit = fp8 ? path.chain == Chain::kSteps || recipe.promotion.every % kUnpackedLen == 0
                             : kBlockProducts % step.num_products == 0 && !recipe.chunks.descending;
  return cuts && even && steps_fit && (fits<float>(step) || fits<double>(step)) &&
         (fp8 || path.accumulator == Accumulator::kIntoUnit);
}

}  // namespace

StepSums step_sums(const Recipe& recipe, Format format) {
  const Path& path = linear_path(recipe, format);
  if (!has_kernel(recipe, path, format)) {
    return StepSums::kDefinition;
  }
  return fits<float>(path.step) ? StepSums::kIntegers : StepSums::kDouble;
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
    case StepSums::kIntegers:
      return RecipeMatmul<float>(recipe, path, format, x, weight, kernels, num_threads).run(num_threads);
    case StepSums::kDouble:
      return RecipeMatmul<double>(recipe, path, format, x, weight, kernels, num_threads).run(num_threads);
    case StepSums::kDefinition: break;
  }
  return recipe_matmul_plain(recipe, x, weight, num_threads);
}

}  // namespace reference::tensor_core
