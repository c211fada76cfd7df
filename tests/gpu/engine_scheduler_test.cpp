// Generation on the engine: the reference's greedy tokens, and the same tokens whatever else runs, however the work is cut and drafted.
#include "gpu/engine/scheduler.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "model/checkpoint.hpp"
#include "reference/generate/generator.hpp"
#include "tests/paths.hpp"

namespace gpu {
namespace {

const model::Checkpoint& mini() {
  static const model::Checkpoint checkpoint(source_dir() / "golden/data/mini/checkpoint");
  return checkpoint;
}

// Text of the kind that the model was trained on, so that no greedy choice is a near tie: "the word of the LORD came unto me, saying,
// Son of man, prophesy". Cut at different lengths; the second request crosses a page of the cache while it decodes.
std::vector<Request> ragged_requests() {
  const std::vector<int32_t> text{260,  584, 270, 260, 341, 470, 322, 373, 13,  551, 527, 19,  1305, 270, 406, 13,
                                  1783, 90,  13,  269, 444, 13,  931, 569, 260, 341, 13,  260, 400,  270, 433, 13};
  std::vector<Request> requests;
  for (const size_t len : {11, 63, 3}) {
    Request request{.max_new_tokens = 3, .draw_request = static_cast<int64_t>(requests.size())};
    for (size_t i = 0; i < len; ++i) {
      request.prompt.push_back(text[i % text.size()]);
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

struct Setting {
  int64_t max_sequences = 3;
  int64_t chunk_len = 512;
  int64_t num_drafts = 0;
  bool use_graphs = false;
  int64_t num_pages = 4;
  bool fp16 = false;
};

struct Generated {
  std::vector<std::vector<int32_t>> tokens;
  SchedulerStats stats;
};

Generated generate(const std::vector<Request>& requests, const Setting& setting) {
  const SchedulerOptions scheduling{.chunk_len = setting.chunk_len, .num_drafts = setting.num_drafts};
  Engine engine(
      mini(),
      setting.fp16 ? make_emulated_fp16_backend({.num_os_threads = 2}) : make_emulated_backend({.num_os_threads = 2}),
      {.limits = Scheduler::limits_of(mini().config(), scheduling, setting.max_sequences, 80),
       .num_pages = setting.num_pages,
       .scaled_stream = setting.fp16,
       .use_graphs = setting.use_graphs});
  Scheduler scheduler(engine, scheduling);
  Generated result;
  result.tokens.resize(requests.size());
  const auto reasons = scheduler.run(requests, [&](size_t request, const NewToken& token) {
    result.tokens[request].push_back(token.id);
    return true;
  });
  EXPECT_EQ(reasons, std::vector(requests.size(), FinishReason::kLength));
  result.stats = scheduler.stats();
  return result;
}

std::vector<std::vector<int32_t>> tokens_of_reference(const std::vector<Request>& requests,
                                                      const reference::Rules& rules) {
  std::vector<reference::Request> same;
  for (const Request& request : requests) {
    same.push_back({.prompt = request.prompt, .max_new_tokens = request.max_new_tokens});
  }
  std::vector<std::vector<int32_t>> expected(requests.size());
  reference::Generator reference(mini(), rules, 2, {});
  reference.run(same, [&](size_t request, const reference::GeneratedToken& token) {
    expected[request].push_back(token.id);
    return true;
  });
  return expected;
}

TEST(EngineScheduler, GreedyTokens_AreTheReferences) {
  const auto requests = ragged_requests();
  const auto rules = reference::v32_rules(reference::Gemm::kFp8, model::ScaleFormat::kFp32);
  EXPECT_EQ(generate(requests, {}).tokens, tokens_of_reference(requests, rules));
}

TEST(EngineScheduler, InFp16_TokensAreTheReferences_WithDraftsAndGraphsToo) {
  const auto requests = ragged_requests();
  const auto expected =
      tokens_of_reference(requests, reference::fp16_rules(reference::Gemm::kFp8, model::ScaleFormat::kFp32));
  EXPECT_EQ(generate(requests, {.fp16 = true}).tokens, expected);
  EXPECT_EQ(generate(requests, {.num_drafts = 1, .use_graphs = true, .fp16 = true}).tokens, expected);
}

TEST(EngineScheduler, ARequestsTokens_DependOnItAlone) {
  auto requests = ragged_requests();
  requests[0].sampling = {.temperature = 1, .top_p = 0.9, .seed = 5};
  requests[2].sampling = {.temperature = 0.7, .repetition_penalty = 1.2, .frequency_penalty = 0.5, .seed = 6};
  const auto together = generate(requests, {});
  for (const size_t r : {0, 2}) {
    EXPECT_EQ(generate({requests[r]}, {.max_sequences = 1}).tokens[0], together.tokens[r]) << r;
  }
  // Chunks smaller than prompts, so that some decode while others prefill; pages for two at a time.
  EXPECT_EQ(generate(requests, {.chunk_len = 9, .num_pages = 3}).tokens, together.tokens);
  // Padded steps: three sequences in a graph of four.
  EXPECT_EQ(generate(requests, {.max_sequences = 4, .use_graphs = true}).tokens, together.tokens);
}

TEST(EngineScheduler, Drafts_ChangeNoToken_AndAreAccepted) {
  std::vector<Request> requests = ragged_requests();
  requests.erase(requests.begin() + 1);
  requests[0].max_new_tokens = 8;
  requests[1].max_new_tokens = 7;
  requests[1].sampling = {.temperature = 0.5, .seed = 3};
  const auto plain = generate(requests, {});
  for (const bool use_graphs : {false, true}) {
    const auto drafted = generate(requests, {.num_drafts = 2, .use_graphs = use_graphs});
    EXPECT_EQ(drafted.tokens, plain.tokens);
    EXPECT_GT(drafted.stats.num_accepted[0], 2);
    EXPECT_LT(drafted.stats.num_accepted[0], drafted.stats.num_drafted[0]);
  }
}

// The model with its MTP layer twice: drafts of the second one are accepted, and so can be seen.
class TwoMtpLayers : public model::WeightSource {
 public:
  explicit TwoMtpLayers(const model::WeightSource& original) : original_(original), config_(original.config()) {
    config_.num_nextn_predict_layers = 2;
  }
  [[nodiscard]] const model::ModelConfig& config() const override { return config_; }
  [[nodiscard]] model::TensorView weight(const std::string& name) const override {
    const std::string second = fmt::format("model.layers.{}.", config_.num_hidden_layers + 1);
    return original_.weight(name.starts_with(second) ? fmt::format("model.layers.{}.", config_.num_hidden_layers) +
                                                           name.substr(second.size())
                                                     : name);
  }

 private:
  const model::WeightSource& original_;
  model::ModelConfig config_;
};

// Draft k comes from layer k, the third one from the second layer again. Prompts shorter than what the second layer has to read again,
// chunks that cut them, and drafts that are rejected.
TEST(EngineScheduler, DraftsOfSeveralMtpLayers_AreTheReferences) {
  const TwoMtpLayers weights(mini());
  auto requests = ragged_requests();
  requests[1].prompt.resize(1);
  requests[2].prompt = {requests[0].prompt.begin(), requests[0].prompt.begin() + 6};
  for (Request& request : requests) {
    request.max_new_tokens = 7;
  }
  using Drafts = std::vector<std::vector<std::pair<int32_t, std::optional<int32_t>>>>;  // beside the tokens
  Drafts expected(requests.size());
  std::vector<reference::Request> same;
  for (const Request& request : requests) {
    same.push_back({.prompt = request.prompt, .max_new_tokens = request.max_new_tokens});
  }
  reference::Generator reference(
      weights, reference::v32_rules(reference::Gemm::kFp8, model::ScaleFormat::kFp32), 2, {.num_drafts = 3});
  reference.run(same, [&](size_t request, const reference::GeneratedToken& token) {
    expected[request].emplace_back(token.id, token.draft);
    return true;
  });
  EXPECT_GT(reference.stats().num_accepted[1], 2);  // drafts of the second layer
  EXPECT_LT(reference.stats().num_accepted[1], reference.stats().num_drafted[1]);
  for (const int64_t chunk_len : {512, 2}) {
    const SchedulerOptions scheduling{.chunk_len = chunk_len, .num_drafts = 3};
    Engine engine(weights,
                  make_emulated_backend({.num_os_threads = 2}),
                  {.limits = Scheduler::limits_of(weights.config(), scheduling, 3, 24), .num_pages = 3});
    Scheduler scheduler(engine, scheduling);
    Drafts drafts(requests.size());
    scheduler.run(requests, [&](size_t request, const NewToken& token) {
      drafts[request].emplace_back(token.id, token.draft);
      return true;
    });
    EXPECT_EQ(drafts, expected) << "chunks of " << chunk_len;
  }
}

TEST(EngineScheduler, StopTokensAndTheCaller_EndARequest) {
  auto requests = ragged_requests();
  requests.erase(requests.begin() + 1);
  const auto tokens = generate(requests, {}).tokens;
  requests[0].stop_tokens = {tokens[0][1]};
  const SchedulerOptions scheduling;
  Engine engine(mini(),
                make_emulated_backend({}),
                {.limits = Scheduler::limits_of(mini().config(), scheduling, 2, 80), .num_pages = 4});
  Scheduler scheduler(engine, scheduling);
  std::vector<int64_t> counts(2);
  const auto reasons = scheduler.run(
      requests, [&](size_t request, const NewToken&) { return ++counts[request] < (request == 1 ? 2 : 9); });
  EXPECT_EQ(reasons, (std::vector{FinishReason::kStop, FinishReason::kStop}));
  EXPECT_EQ(counts, (std::vector<int64_t>{2, 2}));
}

TEST(EngineScheduler, ARequestThatNeverFits_IsRefused) {
  const SchedulerOptions scheduling;
  Engine engine(mini(),
                make_emulated_backend({}),
                {.limits = Scheduler::limits_of(mini().config(), scheduling, 1, 64), .num_pages = 1});
  Scheduler scheduler(engine, scheduling);
  EXPECT_THROW(scheduler.run({{.prompt = {1, 2}, .max_new_tokens = 63}}, [](size_t, const NewToken&) { return true; }),
               model::InputError);
}

}  // namespace
}  // namespace gpu
