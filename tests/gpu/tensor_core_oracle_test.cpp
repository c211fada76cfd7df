// The tensor core model against vectors that others measured on hardware: every bit, and no other parameters.
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "gpu/emulation/tensor_core.hpp"
#include "model/dtype.hpp"
#include "tests/shared_data.hpp"

namespace gpu::emulation {
namespace {

struct Measured {
  const char* file;
  TensorCoreStep step;
  OperandFormat format;
  bool adds_c = true;  // The H100 E4M3 rows hold the product alone: wgmma was told to ignore the accumulator.
};

struct Vector {
  std::vector<float> a;
  std::vector<float> b;
  float c = 0;
  uint32_t d = 0;
};

std::vector<float> operands(OperandFormat format, const std::string& digits) {
  const size_t width = format == OperandFormat::kE4m3 ? 2 : 4;
  std::vector<float> values;
  for (size_t i = 0; i + width <= digits.size(); i += width) {
    const auto code = static_cast<uint16_t>(std::stoul(digits.substr(i, width), nullptr, 16));
    values.push_back(format == OperandFormat::kE4m3 ? model::decode_f8_e4m3(static_cast<uint8_t>(code))
                                                    : model::decode_bf16(code));
  }
  return values;
}

std::vector<Vector> read(const Measured& measured, const std::filesystem::path& path) {
  std::vector<Vector> vectors;
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);  // header
  while (std::getline(in, line)) {
    std::vector<std::string> cells(1);
    for (const char letter : line) {
      if (letter == ',') {
        cells.emplace_back();
      } else if (letter != '\r') {
        cells.back() += letter;
      }
    }
    vectors.push_back(
        {operands(measured.format, cells.at(0)),
         operands(measured.format, cells.at(1)),
         measured.adds_c ? std::bit_cast<float>(static_cast<uint32_t>(std::stoul(cells.at(2), nullptr, 16))) : 0.0f,
         static_cast<uint32_t>(std::stoul(cells.at(3), nullptr, 16))});
  }
  return vectors;
}

size_t mismatches(const TensorCoreStep& step, OperandFormat format, const std::vector<Vector>& vectors) {
  size_t count = 0;
  for (const Vector& v : vectors) {
    count += std::bit_cast<uint32_t>(tensor_core_chain(step, format, v.a, v.b, v.c)) != v.d ? 1 : 0;
  }
  return count;
}

class MeasuredVectors : public testing::TestWithParam<Measured> {};

TEST_P(MeasuredVectors, AreReproduced_AndNotByOtherParameters) {
  const Measured measured = GetParam();
  const auto path = shared_data(std::string("oracle/tensor-core/") + measured.file);
  SKIP_UNLESS_THERE(path);
  const auto vectors = read(measured, *path);
  EXPECT_EQ(vectors.size(), 5000U);
  EXPECT_EQ(mismatches(measured.step, measured.format, vectors), 0U);
  for (const int change : {-1, 1}) {
    TensorCoreStep other = measured.step;
    other.fraction_bits += change;
    EXPECT_GT(mismatches(other, measured.format, vectors), 0U) << "fraction bits " << other.fraction_bits;
  }
  TensorCoreStep half = measured.step;
  half.products_per_step /= 2;
  EXPECT_GT(mismatches(half, measured.format, vectors), 0U) << "half the step";
}

INSTANTIATE_TEST_SUITE_P(Devices,
                         MeasuredVectors,
                         testing::Values(Measured{"a100_bf16_fp32.csv", kAmpere16Bit, OperandFormat::kBf16},
                                         Measured{"ada_bf16_fp32.csv", kAmpere16Bit, OperandFormat::kBf16},
                                         Measured{"h100_bf16_fp32.csv", kHopper16Bit, OperandFormat::kBf16},
                                         Measured{"ada_e4m3_fp32.csv", kAdaMmaFp8, OperandFormat::kE4m3},
                                         Measured{"h100_e4m3_fp32.csv", kHopperWgmmaFp8, OperandFormat::kE4m3, false}));

}  // namespace
}  // namespace gpu::emulation
