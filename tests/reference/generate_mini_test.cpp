// The small checkpoint continues eight prompts as a PyTorch model of the same weights did, and drafts what that one drafted
// (golden/data/mini/prompts.jsonl). Near ties may go either way: margins below 1e-3 decide nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "reference/generate/generator.hpp"
#include "reference/values.hpp"
#include "tests/paths.hpp"
#include "tests/reference/bits_of_runs.hpp"

namespace reference {
namespace {

constexpr double kMargin = 1e-3;

struct Stored {
  std::vector<int32_t> prompt;
  std::vector<int32_t> output;
  std::vector<double> margins;
  std::vector<int32_t> drafts;  // of output k; -1 for the first, which has none
  int64_t num_accepted = 0;
};

std::vector<Stored> stored_prompts() {
  std::ifstream file(source_dir() / "golden/data/mini/prompts.jsonl");
  std::vector<Stored> all;
  for (std::string line; std::getline(file, line);) {
    const auto json = nlohmann::json::parse(line);
    Stored stored{json.at("ids"), json.at("output_ids"), json.at("margins"), {}, json.at("mtp_accepted")};
    for (const auto& draft : json.at("mtp_drafts")) {
      stored.drafts.push_back(draft.is_null() ? -1 : draft.get<int32_t>());
    }
    all.push_back(std::move(stored));
  }
  return all;
}

struct Draft {
  int32_t id = -1;
  double margin = 0;
};

Draft draft_of(const model::TensorView& logits, int64_t row) {
  const auto values = load<double>(model::slice_rows(logits, row, row + 1));
  auto sorted = values;
  std::ranges::nth_element(sorted, sorted.begin() + 1, std::greater<>());
  return {static_cast<int32_t>(std::ranges::max_element(values) - values.begin()), sorted[0] - sorted[1]};
}

struct Continued {
  std::vector<std::vector<int32_t>> output;  // [prompt][k]
  std::vector<std::vector<Draft>> drafts;    // likewise; the first of each is empty
};

// Every draft is watched and then replaced by the unlikeliest token, so that each step gives one token and drafts for each place
// are seen. One more token than is stored: the last place but one is the last with a draft.
Continued continued(const std::vector<Stored>& prompts) {
  std::vector<Request> requests;
  for (const Stored& stored : prompts) {
    requests.push_back({.prompt = stored.prompt, .max_new_tokens = static_cast<int64_t>(stored.output.size()) + 1});
  }
  Continued result;
  result.output.resize(prompts.size());
  result.drafts.assign(prompts.size(), {Draft{}});
  const auto watch_and_spoil = [&](const OpCall& call) {
    auto value = run_op(call);
    if (call.op.id != "mtp.0.logits") {
      return value;
    }
    CHECK_EQ(value.num_rows(), static_cast<int64_t>(prompts.size()));
    auto spoilt = load<double>(value);
    for (size_t p = 0; p < prompts.size(); ++p) {
      result.drafts[p].push_back(draft_of(value, static_cast<int64_t>(p)));
      const auto row =
          std::span(spoilt).subspan(p * static_cast<size_t>(value.row_len()), static_cast<size_t>(value.row_len()));
      *std::ranges::min_element(row) = 1e9;
    }
    return store<double>(value.shape, std::move(spoilt), model::DType::kF64);
  };
  Generator generator(mini(), exact_rules(), 2, {.num_drafts = 1}, watch_and_spoil);
  generator.run(requests, [&](size_t request, const GeneratedToken& token) {
    result.output[request].push_back(token.id);
    return true;
  });
  EXPECT_EQ(generator.stats().num_accepted[0], 0);
  return result;
}

TEST(GenerateMini, GreedyTokensAndDrafts_AreTheStoredOnes) {
  const auto prompts = stored_prompts();
  ASSERT_EQ(prompts.size(), 8u);
  const auto ours = continued(prompts);
  int64_t num_tokens = 0;
  int64_t num_drafts = 0;
  int64_t num_accepted = 0;
  int64_t num_stored_accepted = 0;
  for (size_t p = 0; p < prompts.size(); ++p) {
    const Stored& stored = prompts[p];
    num_stored_accepted += stored.num_accepted;
    bool same_path = true;
    for (size_t k = 0; k < stored.output.size(); ++k) {
      const Draft& draft = ours.drafts[p].at(k);
      num_accepted += draft.id == ours.output[p][k] ? 1 : 0;
      if (same_path && k > 0 && draft.margin > kMargin) {
        EXPECT_EQ(draft.id, stored.drafts[k]) << "prompt " << p << ", draft of output " << k;
        ++num_drafts;
      }
      same_path = same_path && stored.margins[k] > kMargin;
      if (same_path) {
        EXPECT_EQ(ours.output[p][k], stored.output[k]) << "prompt " << p << ", output " << k;
        ++num_tokens;
      }
    }
  }
  // Most of the 256 tokens and 248 drafts are compared, or the test says nothing.
  EXPECT_GT(num_tokens, 200);
  EXPECT_GT(num_drafts, 190);
  EXPECT_NEAR(static_cast<double>(num_accepted), static_cast<double>(num_stored_accepted), 0.05 * num_stored_accepted);
  RecordProperty("tokens", static_cast<int>(num_tokens));
  RecordProperty("drafts", static_cast<int>(num_drafts));
  RecordProperty("accepted", static_cast<int>(num_accepted));
  RecordProperty("stored_accepted", static_cast<int>(num_stored_accepted));
}

// What users run: published rules, absorbed decoding, the model's own drafts, greedy and drawn.
TEST(GenerateMini, PublishedRules_DraftsChangeNoToken) {
  std::vector<Request> requests;
  for (const Stored& stored : stored_prompts()) {
    requests.push_back({.prompt = stored.prompt, .max_new_tokens = 12});
    if (requests.size() % 2 == 0) {
      requests.back().sampling = {.temperature = 0.8, .top_p = 0.95, .seed = 11};
    }
  }
  std::vector<std::vector<std::vector<int32_t>>> ids;
  int64_t num_accepted = 0;
  for (const int64_t num_drafts : {0, 2}) {
    Generator generator(mini(), v32_rules(Gemm::kFp8, model::ScaleFormat::kFp32), 2, {.num_drafts = num_drafts});
    ids.emplace_back(requests.size());
    generator.run(requests, [&](size_t request, const GeneratedToken& token) {
      ids.back()[request].push_back(token.id);
      return true;
    });
    for (const int64_t accepted : generator.stats().num_accepted) {
      num_accepted += accepted;
    }
  }
  EXPECT_EQ(ids[0], ids[1]);
  EXPECT_GT(num_accepted, 20);  // a trained draft head is right more often than not
}

}  // namespace
}  // namespace reference
