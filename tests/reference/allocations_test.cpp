// How often a decode step asks the system for memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "model/checkpoint.hpp"
#include "reference/transformer.hpp"
#include "tests/paths.hpp"
#include "tests/reference/counted_memory.hpp"

namespace reference {
namespace {

class WantsNothing : public model::Probe {
 public:
  [[nodiscard]] bool wants(const model::Op&) const override { return false; }
  void see(const model::Op&, const model::TensorView&) override {}
};

// Decode steps of the small checkpoint, of several sequences at once, with logits.
class Decoding {
 public:
  Decoding(Rules rules, int num_threads, int64_t num_sequences, int64_t num_cached, int64_t num_mtp_layers)
      : weights_(source_dir() / "golden/data/mini/checkpoint"), transformer_(weights_, rules, num_threads) {
    StepInput prompt;
    prompt.workload.num_mtp_layers = num_mtp_layers;
    input_.workload.attention_form = model::AttentionForm::kAbsorbed;
    input_.workload.num_mtp_layers = num_mtp_layers;
    prompt.mtp_tokens.resize(static_cast<size_t>(num_mtp_layers));
    input_.mtp_tokens.resize(static_cast<size_t>(num_mtp_layers),
                             std::vector<int32_t>(static_cast<size_t>(num_sequences), 5));
    for (int64_t s = 0; s < num_sequences; ++s) {
      prompt.workload.sequences.push_back({.num_cached = 0, .num_new = num_cached - s});
      input_.workload.sequences.push_back({.num_cached = num_cached - s, .num_new = 1});
      input_.tokens.push_back(static_cast<int32_t>(7 + s));
    }
    prompt.tokens.assign(static_cast<size_t>(prompt.workload.num_tokens()), 3);
    for (auto& tokens : prompt.mtp_tokens) {
      tokens = prompt.tokens;
    }
    transformer_.step(prompt, cache_, probe_);
  }

  // How often `num_steps` steps ask for memory, each of them.
  std::vector<int64_t> count(int64_t num_steps) {
    std::vector<int64_t> counts(static_cast<size_t>(num_steps));
    for (int64_t& of_step : counts) {
      const int64_t before = counted_memory::num_allocations;
      transformer_.step(input_, cache_, probe_);
      of_step = counted_memory::num_allocations - before;
      for (auto& [num_cached, num_new] : input_.workload.sequences) {
        ++num_cached;
      }
    }
    return counts;
  }
  // Forgets the last `num_steps` tokens.
  void go_back(int64_t num_steps) {
    for (size_t s = 0; s < input_.workload.sequences.size(); ++s) {
      input_.workload.sequences[s].num_cached -= num_steps;
      cache_.truncate(static_cast<int64_t>(s), input_.workload.sequences[s].num_cached);
    }
  }

 private:
  model::Checkpoint weights_;
  Transformer transformer_;
  LatentCache cache_;
  WantsNothing probe_;
  StepInput input_;
};

int64_t sum(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

Rules v32() {
  return v32_rules(Gemm::kFp8, model::ScaleFormat::kFp32);
}

// Every length has been decoded before, so that nothing new can be needed.
void expect_none_the_second_time(Decoding& decoding) {
  constexpr int64_t kNumSteps = 70;
  decoding.count(kNumSteps);
  decoding.go_back(kNumSteps);
  const auto counts = decoding.count(kNumSteps);
  EXPECT_EQ(counts, std::vector<int64_t>(kNumSteps, 0));
}

TEST(Allocations, TheCountSeesAVector) {
  const int64_t before = counted_memory::num_allocations;
  const std::vector<int> vector(1000);
  EXPECT_EQ(counted_memory::num_allocations - before, 1);
}

TEST(Allocations, ADecodeStepAsksForNoMemory) {
  Decoding decoding(v32(), 1, 1, 60, 0);
  expect_none_the_second_time(decoding);
}

TEST(Allocations, NorWithSequencesOfSeveralLengthsAndAnMtpLayer) {
  Decoding decoding(v32(), 1, 3, 60, 1);
  expect_none_the_second_time(decoding);
}

// What a growing sequence needs: a page of the cache in each layer and one of rotations for 64 positions, and now and then a block of
// the next size for what is as long as the sequence.
TEST(Allocations, LongerSequencesAskForNewPagesAndLargerBlocksOnly) {
  Decoding decoding(v32(), 1, 1, 60, 0);
  decoding.count(1);
  const auto counts = decoding.count(128);
  EXPECT_LE(sum(counts), 64);
  EXPECT_GE(std::ranges::count(counts, 0), 96);
}

}  // namespace
}  // namespace reference
