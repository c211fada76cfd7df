// What must not change a token, nor a bit of the logits behind it: drafts, batches, chunks, pages, threads.
#include "reference/generate/generator.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/check.hpp"
#include "tests/reference/small_model.hpp"

namespace reference {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const Rules kV32 = v32_rules(Gemm::kFp8, model::ScaleFormat::kFp32);

const HandMadeWeights& weights(int64_t num_mtp_layers = 1) {
  static std::map<int64_t, HandMadeWeights> made;
  if (!made.contains(num_mtp_layers)) {
    auto config = small_config();
    config.num_nextn_predict_layers = num_mtp_layers;
    config.max_position_embeddings = 64;
    made.emplace(num_mtp_layers, random_weights(config, 4));
  }
  return made.at(num_mtp_layers);
}

// Each token of a request with the log-probabilities of the whole vocabulary: the same bits mean the same logits.
struct Output {
  std::vector<int32_t> ids;
  std::vector<std::vector<std::pair<int32_t, double>>> logprobs;
  bool operator==(const Output&) const = default;
};

struct Run {
  std::vector<Output> outputs;
  std::vector<FinishReason> reasons;
  GenerationStats stats;
};

Run generate(
    const std::vector<Request>& requests,
    GeneratorOptions options = {},
    int64_t num_mtp_layers = 1,
    const Transformer::RunOp& run_op_instead = {},
    const std::function<void()>& after_token = [] {},
    int num_threads = 1) {
  options.num_logprobs = 40;
  Generator generator(weights(num_mtp_layers), kV32, num_threads, options, run_op_instead);
  Run run;
  run.outputs.resize(requests.size());
  run.reasons = generator.run(requests, [&](size_t request, const GeneratedToken& token) {
    run.outputs[request].ids.push_back(token.id);
    run.outputs[request].logprobs.push_back(token.top);
    after_token();
    return true;
  });
  run.stats = generator.stats();
  return run;
}

model::Sampling greedy() {
  return {};
}

model::Sampling random_sampling() {
  return {.temperature = 1.5,
          .top_k = 30,
          .top_p = 0.98,
          .min_p = 0.001,
          .repetition_penalty = 1.1,
          .presence_penalty = 0.2,
          .frequency_penalty = 0.1,
          .seed = 7};
}

std::vector<Request> three_requests(const model::Sampling& sampling) {
  return {
      {.prompt = {3, 10, 17, 24, 31}, .max_new_tokens = 9, .sampling = sampling, .draw_request = 0},
      {.prompt = {5}, .max_new_tokens = 12, .sampling = sampling, .draw_request = 1},
      {.prompt = {7, 7, 8, 1, 0, 2, 39, 38, 22, 21, 20}, .max_new_tokens = 4, .sampling = sampling, .draw_request = 2}};
}

class Generation : public ::testing::TestWithParam<std::pair<std::string, model::Sampling>> {
 protected:
  static std::vector<Request> requests() { return three_requests(GetParam().second); }
};

INSTANTIATE_TEST_SUITE_P(Kinds,
                         Generation,
                         ::testing::Values(std::pair("greedy", greedy()), std::pair("sampling", random_sampling())),
                         [](const auto& instance) { return instance.param.first; });

TEST_P(Generation, InABatchOrAlone) {
  const auto together = generate(requests());
  for (size_t r = 0; r < 3; ++r) {
    EXPECT_EQ(generate({requests()[r]}).outputs[0], together.outputs[r]);
    EXPECT_EQ(static_cast<int64_t>(together.outputs[r].ids.size()), requests()[r].max_new_tokens);
    EXPECT_EQ(together.reasons[r], FinishReason::kLength);
  }
}

TEST_P(Generation, PromptWholeOrInChunks_CachePagedOrContiguous_AnyThreads) {
  const auto whole = generate(requests(), {.chunk_len = 512, .page_rows = 64});
  for (const int64_t chunk_len : {1, 3, 6}) {
    EXPECT_EQ(generate(requests(), {.chunk_len = chunk_len}).outputs, whole.outputs) << chunk_len;
    EXPECT_EQ(generate(requests(), {.chunk_len = chunk_len, .num_drafts = 2, .page_rows = 2}).outputs, whole.outputs);
  }
  EXPECT_EQ(generate(requests(), {.page_rows = 1}).outputs, whole.outputs);
  EXPECT_EQ(generate(
                requests(), {.page_rows = 3}, 1, {}, [] {}, 3)
                .outputs,
            whole.outputs);
}

TEST_P(Generation, WithTheDraftsOfTheModel_InABatch) {
  const auto plain = generate(requests());
  for (const int64_t num_mtp_layers : {1, 2}) {
    const auto plain_of_model = num_mtp_layers == 1 ? plain : generate(requests(), {}, num_mtp_layers);
    for (const int64_t num_drafts : {1, 2, 4}) {
      EXPECT_EQ(generate(requests(), {.num_drafts = num_drafts}, num_mtp_layers).outputs, plain_of_model.outputs)
          << num_mtp_layers << " layers, " << num_drafts << " drafts";
    }
  }
}

// Draft heads that are right or wrong as a pattern says: the tokens stay those of plain decoding, and what is accepted is the run
// of right drafts at the beginning of each step.
TEST_P(Generation, AnyPatternOfAcceptance) {
  const Request request = requests()[0];
  const auto plain = generate({request});
  const auto& truth = plain.outputs[0].ids;
  for (const uint32_t pattern : {0u, ~0u, 0x55555555u, 0x33333333u, 0x9E3779B9u}) {
    for (const int64_t num_drafts : {1, 2, 4}) {
      size_t num_given = 0;
      size_t num_asked = 0;  // drafts since the last token
      size_t num_calls = 0;
      const auto draft_as_told = [&](const OpCall& call) {
        auto value = run_op(call);
        if (call.op.id != "mtp.0.logits") {
          return value;
        }
        const size_t place = num_given + num_asked++;
        const bool right = ((pattern >> (num_calls++ % 32)) & 1) != 0;
        const int32_t id = (truth.at(place) + (right ? 0 : 1)) % 40;
        std::vector<float> logits(40, -1000);
        logits[static_cast<size_t>(id)] = 1000;
        return f32({1, 40}, logits);
      };
      const auto drafted = generate({request}, {.num_drafts = num_drafts}, 1, draft_as_told, [&] {
        ++num_given;
        num_asked = 0;
      });
      EXPECT_EQ(drafted.outputs, plain.outputs) << pattern << " " << num_drafts;
      if (pattern == 0) {
        EXPECT_EQ(drafted.stats.num_accepted, std::vector<int64_t>(static_cast<size_t>(num_drafts)));
      } else if (pattern == ~0u) {
        EXPECT_EQ(drafted.stats.num_accepted, drafted.stats.num_drafted);
      }
    }
  }
}

// Nine tokens with two right drafts a step: one from the prompt, then three, three, and two with the one draft that still fits.
TEST(GenerationStats, CountDraftsByPlace) {
  const Request request = three_requests(greedy())[0];
  const auto truth = generate({request}).outputs[0].ids;
  size_t num_given = 0;
  size_t num_asked = 0;
  const auto right = [&](const OpCall& call) {
    auto value = run_op(call);
    if (call.op.id != "mtp.0.logits") {
      return value;
    }
    std::vector<float> logits(40);
    logits[static_cast<size_t>(truth.at(num_given + num_asked++))] = 1;
    return f32({1, 40}, logits);
  };
  const auto run = generate({request}, {.num_drafts = 2}, 1, right, [&] {
    ++num_given;
    num_asked = 0;
  });
  EXPECT_EQ(run.stats.num_prompt_tokens, 5);
  EXPECT_EQ(run.stats.num_new_tokens, 9);
  EXPECT_EQ(run.stats.num_drafted, (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(run.stats.num_accepted, (std::vector<int64_t>{3, 2}));
}

TEST(Generation, AStopToken_IsTheLastOne) {
  auto requests = three_requests(greedy());
  const auto plain = generate(requests);
  requests[0].stop_tokens = {plain.outputs[0].ids[3]};
  const auto first = std::ranges::find(plain.outputs[0].ids, requests[0].stop_tokens[0]) - plain.outputs[0].ids.begin();
  for (const int64_t num_drafts : {0, 3}) {
    const auto stopped = generate(requests, {.num_drafts = num_drafts});
    EXPECT_EQ(stopped.outputs[0].ids,
              std::vector<int32_t>(plain.outputs[0].ids.begin(), plain.outputs[0].ids.begin() + first + 1));
    EXPECT_EQ(stopped.reasons[0], FinishReason::kStop);
    EXPECT_EQ(stopped.outputs[1], plain.outputs[1]);
    EXPECT_EQ(stopped.outputs[2], plain.outputs[2]);
  }
}

TEST(Generation, TheCaller_MayEndARequest) {
  const auto requests = three_requests(greedy());
  Generator generator(weights(), kV32, 1, {.num_drafts = 2});
  std::vector<int64_t> counts(3);
  const auto reasons =
      generator.run(requests, [&](size_t request, const GeneratedToken&) { return ++counts[request] < 3; });
  EXPECT_EQ(counts, (std::vector<int64_t>{3, 3, 3}));
  EXPECT_EQ(reasons, (std::vector<FinishReason>(3, FinishReason::kStop)));
}

std::string message_for(const Request& request) {
  try {
    generate({request});
  } catch (const model::InputError& error) {
    return error.what();
  }
  return "";
}

TEST(Generation, BadRequests_AreRefused) {
  EXPECT_THAT(message_for({.prompt = {}, .max_new_tokens = 1}), HasSubstr("no tokens"));
  EXPECT_THAT(message_for({.prompt = {40}, .max_new_tokens = 1}), HasSubstr("token id 40"));
  EXPECT_THAT(message_for({.prompt = {-1}, .max_new_tokens = 1}), HasSubstr("token id -1"));
  EXPECT_THAT(message_for({.prompt = {1, 2}, .max_new_tokens = 63}), AllOf(HasSubstr("63"), HasSubstr("64 positions")));
  EXPECT_EQ(message_for({.prompt = {1, 2}, .max_new_tokens = 2}), "");
}

TEST(Generation, DraftsWithoutMtpLayers_AreRefused) {
  EXPECT_THROW(Generator(weights(0), kV32, 1, {.num_drafts = 1}), model::InputError);
}

}  // namespace
}  // namespace reference
