#include "simulator/lengths.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <numeric>

#include "model/check.hpp"
#include "tests/temp_dir.hpp"

namespace simulator {
namespace {

class LengthsFile : public testing::Test {
 protected:
  MeasuredLengths read(const std::string& text) {
    const auto path = directory_.path() / "lengths.csv";
    std::ofstream(path) << text;
    return read_lengths(path);
  }

 private:
  TempDir directory_;
};

// Prompts 100 and 300 with answers 10 and 30: means 200 and 20, both with a deviation of half the mean; while they decode, the long one is
// met 30 of 40 times, so the mean prompt is 250.
TEST_F(LengthsFile, MeansAndVariations_AreThoseOfTheRows) {
  const MeasuredLengths lengths = read("prompt_tokens,answer_tokens\n100,10\n300,30\n");
  EXPECT_EQ(lengths.mean_prompt_tokens, 200);
  EXPECT_EQ(lengths.mean_answer_tokens, 20);
  EXPECT_DOUBLE_EQ(lengths.shape.prompt_cv, 0.5);
  EXPECT_DOUBLE_EQ(lengths.shape.answer_cv, 0.5);
  EXPECT_DOUBLE_EQ(lengths.shape.decoding_prompt, 250.0 / 200);
  EXPECT_EQ(lengths.shape.prompt_parts, (std::vector<double>{0.5, 1.5}));
}

// 40 rows in 16 parts of two and a half.
TEST_F(LengthsFile, PartsOfManyRows_KeepTheMean) {
  std::string text = "id,isl,osl\n";
  for (int i = 1; i <= 40; ++i) {
    text += std::to_string(i) + "," + std::to_string(i) + ",5\n";
  }
  const auto& parts = read(text).shape.prompt_parts;
  ASSERT_EQ(parts.size(), 16U);
  EXPECT_NEAR(std::accumulate(parts.begin(), parts.end(), 0.0), 16, 1e-9);
  EXPECT_NEAR(parts.front(), (1 + 2 + 0.5 * 3) / 2.5 / 20.5, 1e-12);
}

TEST_F(LengthsFile, BadRows_AreNamed) {
  const auto message = [&](const std::string& text) -> std::string {
    try {
      read(text);
    } catch (const model::InputError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(message("isl,osl\n10,20\n0,5\n").find("lengths.csv:3: isl is '0'"), std::string::npos);
  EXPECT_NE(message("isl\n10\n").find("expected a column answer_tokens (or osl)"), std::string::npos);
  EXPECT_NE(message("isl,osl\n").find("no request"), std::string::npos);
}

// Equally likely parts of a log-normal: the mean stays, and none is below 0.
TEST(Lengths, LogNormalParts_HaveMeanOne) {
  const LengthShape shape = log_normal_lengths(1, 0);
  EXPECT_NEAR(std::accumulate(shape.prompt_parts.begin(), shape.prompt_parts.end(), 0.0), 5, 1e-12);
  EXPECT_EQ(log_normal_lengths(0, 2).prompt_parts, std::vector<double>{1});
}

}  // namespace
}  // namespace simulator
