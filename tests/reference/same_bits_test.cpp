// Whole forward passes of the mini checkpoint: what may not change a single bit. Threads, batching, chunks, the cache.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reference/numerics/environment.hpp"
#include "reference/simd/kernels.hpp"
#include "reference/tensor_core/linear_recipes.hpp"
#include "reference/transformer.hpp"
#include "tests/reference/bits_of_runs.hpp"

namespace reference {
namespace {

using model::AttentionForm;
using ::testing::IsEmpty;

// Prompt p33 of the fixture and the token after it.
const std::vector<int32_t> kTokens{0,   1712, 222,  780, 591, 18,  453, 341, 344, 381, 507, 493,
                                   268, 69,   28,   298, 315, 351, 267, 475, 280, 19,  609, 1915,
                                   373, 293,  1757, 594, 291, 309, 271, 279, 292, 636};

struct Mode {
  std::string name;
  Rules rules;
};

std::ostream& operator<<(std::ostream& out, const Mode& mode) {
  return out << mode.name;
}

struct Sequence {
  std::string name;
  std::vector<int32_t> tokens;  // one more than is fed: the MTP layer reads a token ahead
  std::vector<int64_t> steps;   // how many tokens each step feeds
};

// Feeds the sequences step by step, all of them in each step, with the MTP layer.
PieceCollector run(const Rules& rules,
                   AttentionForm form,
                   const std::vector<Sequence>& sequences,
                   int num_threads = 1,
                   int64_t page_rows = LatentCache::kDefaultPageRows,
                   const Transformer::RunOp& run_in_place_of_ours = {}) {
  PieceCollector collector;
  LatentCache cache(page_rows);
  const Transformer transformer(mini(), rules, num_threads, run_in_place_of_ours);
  std::vector<int64_t> fed(sequences.size(), 0);
  for (size_t step = 0; step < sequences[0].steps.size(); ++step) {
    StepInput input;
    input.workload.attention_form = form;
    input.workload.num_mtp_layers = 1;
    input.mtp_tokens.resize(1);
    std::vector<std::string> names;
    for (size_t s = 0; s < sequences.size(); ++s) {
      const int64_t count = sequences[s].steps[step];
      input.workload.sequences.push_back({.num_cached = fed[s], .num_new = count});
      const auto first = sequences[s].tokens.begin() + fed[s];
      input.tokens.insert(input.tokens.end(), first, first + count);
      input.mtp_tokens[0].insert(input.mtp_tokens[0].end(), first + 1, first + count + 1);
      names.push_back(sequences[s].name);
      fed[s] += count;
    }
    collector.enter_step(input.workload, names);
    transformer.step(input, cache, collector);
  }
  EXPECT_THAT(collector.contradictions(), IsEmpty());
  return collector;
}

Sequence whole(const std::string& name, int64_t first, int64_t count) {
  return {name, {kTokens.begin() + first, kTokens.begin() + first + count + 1}, {count}};
}

class SameBits : public ::testing::TestWithParam<std::tuple<Mode, AttentionForm>> {
 protected:
  void SetUp() override { check_float_environment(); }
  [[nodiscard]] static const Rules& rules() { return std::get<0>(GetParam()).rules; }
  [[nodiscard]] static AttentionForm form() { return std::get<1>(GetParam()); }
};

TEST_P(SameBits, OneTwoOrFiveThreads) {
  const auto one = run(rules(), form(), {whole("a", 0, 9)}, 1);
  EXPECT_GT(one.pieces().size(), 1000u);
  EXPECT_THAT(differing_pieces(one.pieces(), run(rules(), form(), {whole("a", 0, 9)}, 2).pieces()), IsEmpty());
  EXPECT_THAT(differing_pieces(one.pieces(), run(rules(), form(), {whole("a", 0, 9)}, 5).pieces()), IsEmpty());
}

TEST_P(SameBits, EveryLevelOfInstructions) {
  Sequence sequence = whole("a", 0, 9);
  sequence.steps = {7, 1, 1};
  simd::use_level(simd::Level::kBaseline);
  const auto baseline = run(rules(), form(), {sequence});
  for (const simd::Level level : simd::supported_levels()) {
    simd::use_level(level);
    for (const int num_threads : {1, 2}) {
      EXPECT_THAT(differing_pieces(baseline.pieces(), run(rules(), form(), {sequence}, num_threads).pieces()),
                  IsEmpty())
          << simd::level_name(level);
    }
  }
}

TEST_P(SameBits, RaggedSequencesTogetherOrAlone) {
  const std::vector<Sequence> sequences{whole("a", 0, 7), whole("b", 10, 1), whole("c", 15, 5)};
  Pieces alone;
  for (const Sequence& sequence : sequences) {
    alone.merge(Pieces(run(rules(), form(), {sequence}).pieces()));
  }
  EXPECT_THAT(differing_pieces(run(rules(), form(), sequences).pieces(), alone), IsEmpty());
}

// Both sequences already have cached rows when the second step starts, at different positions.
TEST_P(SameBits, RaggedSequencesWithACacheTogetherOrAlone) {
  const std::vector<Sequence> sequences{{"a", {kTokens.begin(), kTokens.begin() + 7}, {4, 2}},
                                        {"b", {kTokens.begin() + 12, kTokens.begin() + 17}, {1, 3}}};
  Pieces alone;
  for (const Sequence& sequence : sequences) {
    alone.merge(Pieces(run(rules(), form(), {sequence}).pieces()));
  }
  EXPECT_THAT(differing_pieces(run(rules(), form(), sequences).pieces(), alone), IsEmpty());
}

TEST_P(SameBits, PromptInOnePieceOrInChunks) {
  const auto in_one_piece = run(rules(), form(), {whole("a", 0, 15)});
  for (const int64_t chunk : {3, 5}) {
    Sequence chunked = whole("a", 0, 15);
    chunked.steps.assign(static_cast<size_t>(15 / chunk), chunk);
    EXPECT_THAT(differing_pieces(in_one_piece.pieces(), run(rules(), form(), {chunked}).pieces()), IsEmpty()) << chunk;
  }
}

// A prompt followed by decode steps, and steps of one token from the first on.
TEST_P(SameBits, DecodeWithACacheOrPrefillOfTheSameTokens) {
  const auto prefill = run(rules(), form(), {whole("a", 0, 9)});
  Sequence decode = whole("a", 0, 9);
  decode.steps = {5, 1, 1, 1, 1};
  EXPECT_THAT(differing_pieces(prefill.pieces(), run(rules(), form(), {decode}).pieces()), IsEmpty());
  decode.steps.assign(9, 1);
  EXPECT_THAT(differing_pieces(prefill.pieces(), run(rules(), form(), {decode}).pieces()), IsEmpty());
}

// Contiguous rows, pages of several sizes (those of the two sequences alternate), and the cache as a tensor.
TEST_P(SameBits, CacheContiguousPagedOrATensor) {
  const std::vector<Sequence> sequences{{"a", {kTokens.begin(), kTokens.begin() + 9}, {4, 2, 1, 1}},
                                        {"b", {kTokens.begin() + 12, kTokens.begin() + 19}, {1, 3, 1, 1}}};
  const auto contiguous = run(rules(), form(), sequences, 1, 512);
  for (const int64_t page_rows : {1, 3, 64}) {
    EXPECT_THAT(differing_pieces(contiguous.pieces(), run(rules(), form(), sequences, 1, page_rows).pieces()),
                IsEmpty())
        << page_rows;
  }
  EXPECT_THAT(differing_pieces(contiguous.pieces(), run(rules(), form(), sequences, 1, 64, run_op).pieces()),
              IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(
    Modes,
    SameBits,
    ::testing::Combine(::testing::Values(Mode{"v32_fp8", v32_rules(Gemm::kFp8, model::ScaleFormat::kFp32)},
                                         Mode{"v32_fp8_ue8m0", v32_rules(Gemm::kFp8, model::ScaleFormat::kUe8m0)},
                                         Mode{"v32_bf16", v32_rules(Gemm::kBf16, model::ScaleFormat::kFp32)},
                                         Mode{"exact", exact_rules()},
                                         Mode{"hopper",
                                              with_recipe(v32_rules(Gemm::kFp8, model::ScaleFormat::kFp32),
                                                          tensor_core::find_linear_recipe("hopper"))}),
                       ::testing::Values(AttentionForm::kExpanded, AttentionForm::kAbsorbed)),
    [](const auto& instance) {
      return std::get<0>(instance.param).name +
             (std::get<1>(instance.param) == AttentionForm::kExpanded ? "_expanded" : "_absorbed");
    });

// More than one block of 128 keys: the sums over keys cross a block, in one piece and in chunks that do not end there.
TEST(SameBitsLong, SumsOverKeysCrossABlock) {
  Sequence sequence{"a", {}, {133}};
  for (int32_t i = 0; i < 134; ++i) {
    sequence.tokens.push_back(i * 37 % 2048);
  }
  Sequence chunked = sequence;
  chunked.steps = {100, 27, 6};
  const Rules rules = v32_rules(Gemm::kFp8, model::ScaleFormat::kFp32);
  for (const auto form : {AttentionForm::kExpanded, AttentionForm::kAbsorbed}) {
    EXPECT_THAT(differing_pieces(run(rules, form, {sequence}, 2).pieces(), run(rules, form, {chunked}, 1).pieces()),
                IsEmpty());
  }
}

// The comparison itself: another token must change pieces from its position on, and none before it.
TEST(SameBitsComparison, AnotherToken_ChangesItsPositionAndLaterOnes) {
  Sequence changed = whole("a", 0, 6);
  changed.tokens[4] += 1;
  const Rules rules = v32_rules(Gemm::kFp8, model::ScaleFormat::kFp32);
  const auto left = run(rules, AttentionForm::kExpanded, {whole("a", 0, 6)}).pieces();
  const auto right = run(rules, AttentionForm::kExpanded, {changed}).pieces();
  EXPECT_EQ(left.at("logits @ sequence a, position 3"), right.at("logits @ sequence a, position 3"));
  EXPECT_NE(left.at("mtp.0.logits @ sequence a, position 3"), right.at("mtp.0.logits @ sequence a, position 3"));
  EXPECT_NE(left.at("logits @ sequence a, position 4"), right.at("logits @ sequence a, position 4"));
  EXPECT_NE(left.at("logits @ sequence a, position 5"), right.at("logits @ sequence a, position 5"));
}

}  // namespace
}  // namespace reference
