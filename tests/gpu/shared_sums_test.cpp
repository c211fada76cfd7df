// Sums that ranks share: parts of K are one binary tree, whichever blocks and ranks have them.
#include <gtest/gtest.h>

#include "gpu/kernels/add_parts.cuh"
#include "gpu/kernels/bf16_linear.cuh"
#include "gpu/kernels/fp8_linear.cuh"
#include "gpu/kernels/fp8_linear_sm90.cuh"
#include "mutants/add_parts_in_order.cuh"
#include "mutants/add_parts_last_left_out.cuh"
#include "mutants/add_parts_left_over.cuh"
#include "mutants/add_parts_stride.cuh"
#include "tests/gpu/harness.hpp"

namespace gpu::DSV3_BACKEND {
namespace {

constexpr int64_t kOut = 72;
constexpr int64_t kIn = 1024;
constexpr int64_t kBlocks = kIn / kScaleBlockLen;

// Columns [first, first + len) of row-major [rows, kIn], in elements.
template <typename T>
std::vector<T> columns(const std::vector<T>& matrix, int64_t row_len, int64_t first, int64_t len) {
  std::vector<T> part;
  for (auto row = matrix.begin(); row != matrix.end(); row += row_len) {
    part.insert(part.end(), row + first, row + first + len);
  }
  return part;
}

// Where a linear writes.
struct Results {
  Results(Device& device, Stream stream, int64_t num_tokens, int num_splits)
      : y(device, stream, num_tokens * kOut, "y"),
        partial_sums(device, stream, num_splits * num_tokens * kOut, "partial_sums"),
        arrivals(device,
                 stream,
                 std::vector<int32_t>(static_cast<size_t>(linear_num_tiles(num_tokens, kOut)), 0),
                 "arrivals") {}

  Buffer<float> y;
  Buffer<float> partial_sums;
  Buffer<int32_t> arrivals;
};

// y = x W^T on [first_block, first_block + num_blocks) of K; FP32, unrounded.
class Fp8 {
 public:
  explicit Fp8(int64_t num_tokens, bool by_wgmma = false) : num_tokens_(num_tokens), by_wgmma_(by_wgmma) {
    auto [codes, scales] = quantized(random_bf16(num_tokens * kIn, 2, 3), kIn, num_tokens);
    x_ = std::move(codes);
    x_scale_ = std::move(scales);
    auto [weight, weight_scale] = quantized(random_bf16(kOut * kIn, 1, 4), kIn, kOut);
    weight_ = std::move(weight);
    weight_scale_.assign(weight_scale.begin(), weight_scale.begin() + kBlocks);
  }

  [[nodiscard]] std::vector<float> run(int64_t first_block, int64_t num_blocks, int num_splits, int num_parts) const {
    Device device{Options{}};
    const Stream stream = device.create_stream();
    const int64_t first = first_block * kScaleBlockLen;
    const int64_t len = num_blocks * kScaleBlockLen;
    const Buffer<fp8_e4m3> x(device, stream, columns(x_, kIn, first, len), "x");
    const Buffer<float> x_scale(
        device,
        stream,
        {x_scale_.begin() + first_block * num_tokens_, x_scale_.begin() + (first_block + num_blocks) * num_tokens_},
        "x_scale");
    const Buffer<fp8_e4m3> weight(device, stream, columns(weight_, kIn, first, len), "weight");
    const Buffer<float> weight_scale(
        device,
        stream,
        {weight_scale_.begin() + first_block, weight_scale_.begin() + first_block + num_blocks},
        "weight_scale");
    const Results to(device, stream, num_tokens_, num_splits);
    if (by_wgmma_) {
      fp8_linear_sm90(stream,
                      {.x = x.data(),
                       .x_scale = x_scale.data(),
                       .weight = weight.data(),
                       .weight_scale = weight_scale.data(),
                       .y_f32 = to.y.data(),
                       .num_tokens = num_tokens_,
                       .x_scale_stride = num_tokens_,
                       .out_dim = kOut,
                       .in_dim = len,
                       .num_parts = num_parts});
      device.synchronize(stream);
      return to.y.download();
    }
    fp8_linear(stream,
               {.x = x.data(),
                .x_scale = x_scale.data(),
                .weight = weight.data(),
                .weight_scale = weight_scale.data(),
                .y_f32 = to.y.data(),
                .partial_sums = to.partial_sums.data(),
                .arrivals = to.arrivals.data(),
                .num_tokens = num_tokens_,
                .x_scale_stride = num_tokens_,
                .out_dim = kOut,
                .in_dim = len,
                .num_splits = num_splits,
                .num_parts = num_parts});
    device.synchronize(stream);
    return to.y.download();
  }

 private:
  int64_t num_tokens_;
  bool by_wgmma_;
  std::vector<fp8_e4m3> x_;
  std::vector<float> x_scale_;  // [blocks, tokens]
  std::vector<fp8_e4m3> weight_;
  std::vector<float> weight_scale_;  // [blocks]: one row of scale blocks
};

// By fp8_linear_sm90, which never cuts K over blocks.
class Fp8Sm90 : public Fp8 {
 public:
  explicit Fp8Sm90(int64_t num_tokens) : Fp8(num_tokens, true) {}
};

class Bf16 {
 public:
  explicit Bf16(int64_t num_tokens)
      : num_tokens_(num_tokens), x_(random_bf16(num_tokens * kIn, 2, 3)), weight_(random_bf16(kOut * kIn, 1, 4)) {}

  [[nodiscard]] std::vector<float> run(int64_t first_block, int64_t num_blocks, int num_splits, int num_parts) const {
    Device device{Options{}};
    const Stream stream = device.create_stream();
    const int64_t first = first_block * kScaleBlockLen;
    const int64_t len = num_blocks * kScaleBlockLen;
    const Buffer<half16> x(device, stream, columns(x_, kIn, first, len), "x");
    const Buffer<half16> weight(device, stream, columns(weight_, kIn, first, len), "weight");
    const Results to(device, stream, num_tokens_, num_splits);
    bf16_linear(stream,
                {.x = x.data(),
                 .weight = weight.data(),
                 .y_f32 = to.y.data(),
                 .partial_sums = to.partial_sums.data(),
                 .arrivals = to.arrivals.data(),
                 .num_tokens = num_tokens_,
                 .x_stride = len,
                 .y_stride = kOut,
                 .out_dim = kOut,
                 .in_dim = len,
                 .num_splits = num_splits,
                 .num_parts = num_parts});
    device.synchronize(stream);
    return to.y.download();
  }

 private:
  int64_t num_tokens_;
  std::vector<half16> x_;
  std::vector<half16> weight_;
};

using AddLauncher = void (*)(Stream, const AddPartsArguments&);

std::vector<half16> added(const std::vector<float>& parts, int num_parts, AddLauncher launcher = add_parts) {
  Device device{Options{}};
  const Stream stream = device.create_stream();
  const Buffer<float> values(device, stream, parts, "parts");
  const auto count = static_cast<int64_t>(parts.size()) / num_parts;
  const Buffer<half16> sum(device, stream, count, "sum");
  launcher(stream, {.parts = values.data(), .sum = sum.data(), .count = count, .num_parts = num_parts});
  device.synchronize(stream);
  return sum.download();
}

template <typename Linear>
class SharedSums : public testing::Test {};
template <typename Linear>
class SharedSumsOfRanks : public testing::Test {};
using Linears = testing::Types<Fp8, Bf16>;
using AllLinears = testing::Types<Fp8, Fp8Sm90, Bf16>;
TYPED_TEST_SUITE(SharedSums, Linears);
TYPED_TEST_SUITE(SharedSumsOfRanks, AllLinears);

TYPED_TEST(SharedSums, DoNotDependOnWhichBlocksHaveTheParts) {
  for (const int64_t num_tokens : {1, 3, 20, 40}) {
    const TypeParam linear(num_tokens);
    const auto whole = linear.run(0, kBlocks, 1, 8);
    for (const int num_splits : {2, 4, 8}) {
      EXPECT_EQ(linear.run(0, kBlocks, num_splits, 8), whole) << num_tokens << " tokens, " << num_splits;
    }
    EXPECT_NE(linear.run(0, kBlocks, 1, 1), whole);  // another order: the numbers tell
  }
}

TYPED_TEST(SharedSumsOfRanks, DoNotDependOnWhichRanksHaveThem) {
  const TypeParam linear(5);
  const auto whole = linear.run(0, kBlocks, 1, 8);
  EXPECT_NE(linear.run(0, kBlocks, 1, 1), whole);  // another order: the numbers tell
  const auto rounded = added(whole, 1);
  for (const int num_ranks : {2, 4, 8}) {
    std::vector<float> parts;
    for (int rank = 0; rank < num_ranks; ++rank) {
      const int64_t share = kBlocks / num_ranks;
      const auto part = linear.run(rank * share, share, 1, 8 / num_ranks);
      parts.insert(parts.end(), part.begin(), part.end());
    }
    const auto sum = added(parts, num_ranks);
    EXPECT_EQ(std::memcmp(sum.data(), rounded.data(), sum.size() * sizeof(half16)), 0) << num_ranks;
  }
}

// 2^24 + 1 is lost in FP32, 2^24 + 2 is not.
TEST(AddParts, IsABalancedTree) {
  constexpr float kLarge = 0x1p24F;
  EXPECT_EQ(added({kLarge, 1, 1, 1}, 4)[0].bits, added({kLarge, 2}, 2)[0].bits);
  // BF16 hides the last bits, so they are made to be all there is: (2^24 + 1) + (1 - 2^24) = 1, (2^24 - 2^24) + (1 + 1) would be 2.
  EXPECT_EQ(model::decode_bf16(added({kLarge, 1, 1, -kLarge}, 4)[0].bits), 1);
  EXPECT_EQ(model::decode_bf16(added({kLarge, -kLarge, 1, 1}, 4)[0].bits), 2);
  // Three: the pair, then what is left, shortest first: 1 + (2^24 - 2^24).
  EXPECT_EQ(model::decode_bf16(added({kLarge, -kLarge, 1}, 3)[0].bits), 1);
  EXPECT_EQ(model::decode_bf16(added({1, kLarge, -kLarge}, 3)[0].bits), 0);
}

// Kernels with one line changed. Expected: the sums above, of two elements that differ.
TEST(AddPartsMutants, GiveOtherSums) {
  constexpr float kLarge = 0x1p24F;
  const auto is_right = [](AddLauncher launcher) {
    const auto of_four = added({kLarge, 7, 1, 8, -kLarge, 9, 1, 10}, 4, launcher);  // (2^24 + 1) + (1 - 2^24)
    const auto of_three = added({kLarge, 7, -kLarge, 8, 1, 9}, 3, launcher);
    const auto value = [](half16 v) { return model::decode_bf16(v.bits); };
    return value(of_four[0]) == 1 && value(of_four[1]) == 34 && value(of_three[0]) == 1 && value(of_three[1]) == 24;
  };
  EXPECT_TRUE(is_right(add_parts));
  EXPECT_FALSE(is_right(add_parts_in_order::add_parts)) << "parts that overwrite one another";
  EXPECT_FALSE(is_right(add_parts_last_left_out::add_parts)) << "the last rank left out";
  EXPECT_FALSE(is_right(add_parts_stride::add_parts)) << "elements of another place";
  EXPECT_FALSE(is_right(add_parts_left_over::add_parts)) << "only the longest subtree";
}

TEST(SharedSums, PartsThatAreNoTree_AreRefused) {
  const Fp8 linear(1);
  for (const auto& [num_splits, num_parts] : {std::pair{1, 3}, {3, 8}, {4, 2}, {1, 16}}) {
    EXPECT_THROW((void)linear.run(0, kBlocks, num_splits, num_parts), ArgumentError) << num_splits << " " << num_parts;
  }
  EXPECT_THROW((void)linear.run(0, 3, 1, 2), ArgumentError);  // three blocks are no two parts
}

}  // namespace
}  // namespace gpu::DSV3_BACKEND
