// FP8 weights and their scales.
#include <algorithm>
#include <bit>
#include <string>

#include "tools/synthetic/calibration.hpp"
#include "tools/synthetic/deviates.hpp"
#include "tools/synthetic/elements.hpp"
#include "tools/synthetic/philox.hpp"

namespace tools::synthetic {
namespace {

using model::CatalogTensor;

constexpr int64_t kBlockLen = 128;

int64_t num_blocks(int64_t len) {
  return (len + kBlockLen - 1) / kBlockLen;
}

// The part of a tensor that is zero. Null if there is none.
const ZeroRegion* zero_region(const Fixture& fixture, const CatalogTensor& tensor) {
  const std::string kind = kind_of(tensor);
  for (const ZeroRegion& region : fixture.zeros) {
    if (region.kind == kind && (region.layer < 0 || region.layer == tensor.layer) &&
        (region.expert < 0 || region.expert == tensor.expert)) {
      return &region;
    }
  }
  return nullptr;
}

bool contains(const ZeroRegion* region, int64_t row, int64_t col) {
  return region != nullptr && region->row_begin <= row && row < region->row_end && region->col_begin <= col &&
         col < region->col_end;
}

// The row of a projection into the residual stream that is zero, so that the channel stays as the embedding left it. -1: none.
int64_t silent_row(const Fixture& fixture, const CatalogTensor& tensor) {
  const std::string kind = kind_of(tensor);
  return fixture.underflow && (kind.ends_with("down_proj") || kind.ends_with("o_proj")) ? fixture.underflow->channel
                                                                                        : -1;
}

// Index of the element of a 128-block that holds the block's largest code.
int64_t largest_of_block(
    Draws& draws, const CatalogTensor& tensor, int64_t block_row, int64_t block_col, int64_t silent) {
  const int64_t num_cols = tensor.shape[1];
  const int64_t block_idx = block_row * num_blocks(num_cols) + block_col;
  const int64_t height = std::min(kBlockLen, tensor.shape[0] - block_row * kBlockLen);
  const int64_t width = std::min(kBlockLen, num_cols - block_col * kBlockLen);
  int64_t row = block_row * kBlockLen + draws.bits(2 * block_idx) % height;
  if (row == silent) {
    row = row == block_row * kBlockLen ? row + 1 : row - 1;
  }
  return row * num_cols + block_col * kBlockLen + draws.bits(2 * block_idx + 1) % width;
}

}  // namespace

std::vector<uint8_t> fp8_codes(
    const Fixture& fixture, uint64_t seed, const CatalogTensor& tensor, int64_t first, int64_t count) {
  std::vector<uint8_t> codes(static_cast<size_t>(count));
  Draws draws(seed, tensor.name);
  const auto code_of_bits = normal_codes();
  for (int64_t i = 0; i < count; ++i) {
    codes[static_cast<size_t>(i)] = code_of_bits[draws.bits(first + i)];
  }
  if (count == 0) {
    return codes;
  }
  const int64_t num_cols = tensor.shape[1];
  const int64_t first_row = first / num_cols;
  const int64_t last_row = (first + count - 1) / num_cols;
  const int64_t silent = silent_row(fixture, tensor);
  Draws places(seed, tensor.name + "#largest");
  for (int64_t block_row = first_row / kBlockLen; block_row <= last_row / kBlockLen; ++block_row) {
    for (int64_t block_col = 0; block_col * kBlockLen < num_cols; ++block_col) {
      const int64_t i = largest_of_block(places, tensor, block_row, block_col, silent) - first;
      if (i >= 0 && i < count) {
        auto& code = codes[static_cast<size_t>(i)];
        code = static_cast<uint8_t>((code & kSignBit) | kLargestCode);
      }
    }
  }
  const ZeroRegion* zeros = zero_region(fixture, tensor);
  for (int64_t row = first_row; (zeros != nullptr || silent >= 0) && row <= last_row; ++row) {
    for (int64_t col = 0; col < num_cols; ++col) {
      const int64_t i = row * num_cols + col - first;
      if (i >= 0 && i < count && (row == silent || contains(zeros, row, col))) {
        codes[static_cast<size_t>(i)] = 0;
      }
    }
  }
  return codes;
}

std::vector<float> fp8_scales(
    const Fixture& fixture, uint64_t seed, const CatalogTensor& weight, int64_t first, int64_t count) {
  const double std = distribution_of(weight, seed).std / normal_code_std();
  const ZeroRegion* zeros = zero_region(fixture, weight);
  const int64_t num_cols = num_blocks(weight.shape[1]);
  const bool is_single = num_blocks(weight.shape[0]) * num_cols == 1;
  Draws draws(seed, weight.scale);
  const int64_t parity = Draws(seed, weight.scale + "#parity").bits(0) % 2;
  std::vector<float> values;
  for (int64_t i = first; i < first + count; ++i) {
    const int64_t row = i / num_cols;
    const int64_t col = i % num_cols;
    if (contains(zeros, row * kBlockLen, col * kBlockLen)) {
      values.push_back(1e-4f / 448.0f);  // what the published quantiser gives a block of zeros
      continue;
    }
    // A checkerboard: the smallest of the large factors is 4.19 times the largest of the small ones.
    const double where = draws.uniform(i);
    const bool is_large = (row + col + parity) % 2 == 0;
    const double factor = is_single ? 0.95 + 0.1 * where : is_large ? 1.3 + 0.15 * where : 0.27 + 0.04 * where;
    // An odd last bit is no power of two.
    values.push_back(std::bit_cast<float>(std::bit_cast<uint32_t>(static_cast<float>(std * factor)) | 1));
  }
  return values;
}

}  // namespace tools::synthetic
