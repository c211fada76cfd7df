// Tokens of the device's sampler against the reference's, which sorts: every filter, ties, penalties, many draws.
#include "gpu/kernels/sampler.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "mutants/sampler_last_largest.cuh"
#include "mutants/sampler_min_p.cuh"
#include "mutants/sampler_no_barrier_best.cuh"
#include "mutants/sampler_no_barrier_probes.cuh"
#include "mutants/sampler_no_barrier_scan.cuh"
#include "mutants/sampler_no_count.cuh"
#include "mutants/sampler_position.cuh"
#include "mutants/sampler_prompt_forgotten.cuh"
#include "mutants/sampler_slices.cuh"
#include "mutants/sampler_ties.cuh"
#include "mutants/sampler_top_k.cuh"
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

using Launcher = void (*)(Stream, const SamplerArguments&);

// Every wish at `num_draws` positions.
class Problem {
 public:
  Problem(int num_draws, float step) {
    for (const auto& wish : kWishes) {
      for (int i = 0; i < num_draws; ++i) {
        wishes_.push_back(wish);
        places_.push_back(
            {.request = (int64_t{1} << 33) + i, .position = 10 + i, .draw = static_cast<uint32_t>(i % 2)});
        rows_.push_back(row_of(wish, places_.back()));
      }
    }
    logits_ = random_logits(static_cast<int64_t>(rows_.size()) * kVocab, step);
    for (int32_t id = 0; id < kVocab; ++id) {
      if (id % 3 == 0) {
        prompt_.push_back(id);
      }
      if (id % 2 == 0) {
        generated_.insert(generated_.end(), static_cast<size_t>(1 + id % 3), id);
      }
    }
  }

  [[nodiscard]] std::vector<int32_t> by_reference() const {
    std::vector<int32_t> ids;
    for (size_t r = 0; r < rows_.size(); ++r) {
      const auto first = logits_.begin() + static_cast<int64_t>(r) * kVocab;
      const std::vector<double> row(first, first + kVocab);
      ids.push_back(reference::sample(wishes_[r], {prompt_, generated_}, row, places_[r]));
    }
    return ids;
  }

  [[nodiscard]] std::vector<int32_t> by_kernel(Launcher launcher, const emulation::Order& order) const {
    const auto num_rows = static_cast<int64_t>(rows_.size());
    std::vector<uint8_t> is_in_prompt(logits_.size(), 0);
    std::vector<int32_t> num_generated(logits_.size(), 0);
    for (int64_t row = 0; row < num_rows; ++row) {
      for (const int32_t id : prompt_) {
        is_in_prompt[static_cast<size_t>(row * kVocab + id)] = 1;
      }
      for (const int32_t id : generated_) {
        ++num_generated[static_cast<size_t>(row * kVocab + id)];
      }
    }
    Device device({.order = order});
    const Stream stream = device.create_stream();
    const Buffer<float> logits(device, stream, logits_, "logits");
    const Buffer<SamplerRow> rows(device, stream, rows_, "rows");
    const Buffer<uint8_t> prompt(device, stream, is_in_prompt, "is_in_prompt");
    const Buffer<int32_t> generated(device, stream, num_generated, "num_generated");
    const Buffer<double> weights(device, stream, num_rows * kVocab, "weights");
    const Buffer<int32_t> tokens(device, stream, num_rows, "tokens");
    launcher(stream,
             {.logits = logits.data(),
              .rows = rows.data(),
              .is_in_prompt = prompt.data(),
              .num_generated = generated.data(),
              .weights = weights.data(),
              .tokens = tokens.data(),
              .num_rows = num_rows,
              .vocab = kVocab});
    return tokens.download();
  }

 private:
  std::vector<model::Sampling> wishes_;  // of each row
  std::vector<model::DrawPlace> places_;
  std::vector<SamplerRow> rows_;
  std::vector<float> logits_;
  std::vector<int32_t> prompt_{17, 17};
  std::vector<int32_t> generated_;
};

class Sampler : public testing::TestWithParam<emulation::Order> {
 protected:
  static void compare(const Problem& problem) {
    const auto expected = problem.by_reference();
    EXPECT_EQ(problem.by_kernel(sampler, GetParam()), expected);
    // The draws do decide.
    EXPECT_GT(std::set<int32_t>(expected.begin(), expected.end()).size(), kWishes.size());
  }
};

TEST_P(Sampler, ChoosesTheReferencesTokens) {
  compare({4, 0});
}
TEST_P(Sampler, CutsTiesAsTheReference) {
  compare({2, 1});
}

INSTANTIATE_TEST_SUITE_P(Orders, Sampler, testing::ValuesIn(kOrders));

// --- Kernels with one line changed ---

struct Mutant {
  const char* what;
  Launcher launcher;
};

TEST(SamplerMutants, ChooseOtherTokens) {
  const Problem problems[] = {{4, 0}, {2, 1}};
  for (const Mutant& mutant : {Mutant{"greedy takes the last of the largest", sampler_last_largest::sampler},
                               {"no repetition penalty for tokens of the prompt", sampler_prompt_forgotten::sampler},
                               {"a frequency penalty that does not count", sampler_no_count::sampler},
                               {"min-p applied to the logit", sampler_min_p::sampler},
                               {"top-k keeps half", sampler_top_k::sampler},
                               {"top-p keeps all ties", sampler_ties::sampler},
                               {"the position left out of the draw", sampler_position::sampler},
                               {"sums of slices not carried on", sampler_slices::sampler}}) {
    EXPECT_TRUE(std::ranges::any_of(problems, [&](const Problem& problem) {
      return problem.by_kernel(mutant.launcher, {}) != problem.by_reference();
    })) << mutant.what;
  }
}
#if DSV3_CHECKED
TEST(SamplerMutants, WithoutABarrier_AreRacesInEveryOrder) {
  const Problem problem(1, 0);
  for (const Mutant& mutant :
       {Mutant{"between the threads' largest and their reader", sampler_no_barrier_best::sampler},
        {"between the slices' sums and who adds them up", sampler_no_barrier_scan::sampler},
        {"between a probe's sums and their readers", sampler_no_barrier_probes::sampler}}) {
    for (const auto& order : kOrders) {
      try {
        (void)problem.by_kernel(mutant.launcher, order);
        ADD_FAILURE() << mutant.what << ", " << order_name(order) << ": no fault";
      } catch (const emulation::Fault& fault) {
        EXPECT_EQ(static_cast<int>(fault.kind), static_cast<int>(emulation::FaultKind::kRace)) << fault.what();
      }
    }
  }
}
#endif

}  // namespace
}  // namespace gpu::DSV3_BACKEND
