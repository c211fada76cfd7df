// Tokens of the device's sampler against the reference's, which sorts: every filter, ties, penalties, many draws.
#include "gpu/kernels/sampler.cuh"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "reference/generate/sampler.hpp"
#include "tests/gpu/harness.hpp"

namespace gpu::DSV3_BACKEND {
namespace {

constexpr int kVocab = 509;

SamplerRow row_of(const model::Sampling& s, const model::DrawPlace& place) {
  return {.temperature = s.temperature,
          .top_p = s.top_p,
          .min_p = s.min_p,
          .repetition_penalty = s.repetition_penalty,
          .presence_penalty = s.presence_penalty,
          .frequency_penalty = s.frequency_penalty,
          .top_k = s.top_k,
          .seed = s.seed,
          .request = place.request,
          .position = place.position,
          .draw = place.draw};
}

const std::vector<model::Sampling> kWishes = {
    {.temperature = 0},
    {.temperature = 1, .seed = 3},
    {.temperature = 0.7, .top_k = 5, .seed = uint64_t{1} << 40},
    {.temperature = 1.5, .top_p = 0.6, .seed = 5},
    {.temperature = 1, .top_p = 0.05, .seed = 6},
    {.temperature = 1, .min_p = 0.2, .seed = 7},
    {.temperature = 2, .top_k = 40, .top_p = 0.8, .min_p = 0.01, .seed = 8},
    {.temperature = 1, .top_k = kVocab + 1, .top_p = 0.999999, .seed = 9},
    {.temperature = 0, .repetition_penalty = 3, .presence_penalty = 1, .frequency_penalty = 0.5},
    {.temperature = 1, .top_k = 30, .repetition_penalty = 1.3, .presence_penalty = -0.5, .frequency_penalty = 0.7},
};

// step > 0: logits are multiples of it, so that the filters cut through ties.
std::vector<float> random_logits(int64_t count, float step) {
  std::mt19937 engine(7);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    const float value = normal(engine);
    values.push_back(step > 0 ? std::round(value / step) * step : value);
  }
  return values;
}

class Sampler : public testing::TestWithParam<emulation::Order> {
 protected:
  // Every wish at `num_draws` positions.
  void compare(int num_draws, float step) {
    std::vector<SamplerRow> rows;
    std::vector<model::DrawPlace> places;
    for (const auto& wish : kWishes) {
      for (int i = 0; i < num_draws; ++i) {
        places.push_back({.request = (int64_t{1} << 33) + i, .position = 10 + i, .draw = static_cast<uint32_t>(i % 2)});
        rows.push_back(row_of(wish, places.back()));
      }
    }
    const auto num_rows = static_cast<int64_t>(rows.size());
    const auto logits = random_logits(num_rows * kVocab, step);
    const std::vector<int32_t> prompt{3, 17, 17, 400};
    const std::vector<int32_t> generated{17, 5, 5, 5, 508};
    std::vector<uint8_t> is_in_prompt(logits.size(), 0);
    std::vector<int32_t> num_generated(logits.size(), 0);
    for (int64_t row = 0; row < num_rows; ++row) {
      for (const int32_t id : prompt) {
        is_in_prompt[static_cast<size_t>(row * kVocab + id)] = 1;
      }
      for (const int32_t id : generated) {
        ++num_generated[static_cast<size_t>(row * kVocab + id)];
      }
    }
    Device device({.order = GetParam()});
    const Stream stream = device.create_stream();
    const Buffer<float> logit_buffer(device, stream, logits, "logits");
    const Buffer<SamplerRow> row_buffer(device, stream, rows, "rows");
    const Buffer<uint8_t> prompt_buffer(device, stream, is_in_prompt, "is_in_prompt");
    const Buffer<int32_t> generated_buffer(device, stream, num_generated, "num_generated");
    const Buffer<double> weights(device, stream, num_rows * kVocab, "weights");
    const Buffer<int32_t> tokens(device, stream, num_rows, "tokens");
    sampler(stream,
            {.logits = logit_buffer.data(),
             .rows = row_buffer.data(),
             .is_in_prompt = prompt_buffer.data(),
             .num_generated = generated_buffer.data(),
             .weights = weights.data(),
             .tokens = tokens.data(),
             .num_rows = num_rows,
             .vocab = kVocab});
    const auto got = tokens.download();
    std::set<int32_t> different;
    for (size_t r = 0; r < rows.size(); ++r) {
      const auto first = logits.begin() + static_cast<int64_t>(r) * kVocab;
      const std::vector<double> row(first, first + kVocab);
      const auto& wish = kWishes[r / static_cast<size_t>(num_draws)];
      ASSERT_EQ(got[r], reference::sample(wish, {prompt, generated}, row, places[r])) << "row " << r;
      different.insert(got[r]);
    }
    EXPECT_GT(different.size(), kWishes.size());  // the draws do decide
  }
};

TEST_P(Sampler, ChoosesTheReferencesTokens) {
  compare(4, 0);
}
TEST_P(Sampler, CutsTiesAsTheReference) {
  compare(2, 1);
}

INSTANTIATE_TEST_SUITE_P(Orders, Sampler, testing::ValuesIn(kOrders));

}  // namespace
}  // namespace gpu::DSV3_BACKEND
