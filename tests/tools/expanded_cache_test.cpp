// Dumps of the naive form: a decode step holds kv_b of its new tokens only, and the cache as expanded keys and values.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tests/paths.hpp"
#include "tests/tools/verifier.hpp"
#include "tools/trials.hpp"

namespace tools {
namespace {

using golden::Verdict;
using model::TensorView;

const std::string kMini = (source_dir() / "golden/data/mini/checkpoint").string();
// Two sequences, then a token for each of them.
const std::vector<golden::Case> kCases{{.name = "b", .sequences = {{5, 6, 7}, {8, 9, 10}}},
                                       {.name = "step", .after = "b", .sequences = {{11}, {12}}}};
constexpr int64_t kKeysEach = 4;

class Bytes {
 public:
  void append(const TensorView& tensor, int64_t row, int64_t begin, int64_t len) {
    const auto width = static_cast<size_t>(model::dtype_bytes(tensor.dtype));
    const auto part = model::slice_rows(tensor, row, row + 1)
                          .bytes.subspan(static_cast<size_t>(begin) * width, static_cast<size_t>(len) * width);
    bytes_->insert(bytes_->end(), part.begin(), part.end());
  }
  [[nodiscard]] TensorView take(model::Shape shape) const { return {model::DType::kBF16, shape, *bytes_, bytes_}; }

 private:
  std::shared_ptr<std::vector<std::byte>> bytes_ = std::make_shared<std::vector<std::byte>>();
};

// A recorded run of the expanded form, as DeepSeek's naive code would have dumped it.
golden::GoldenFile naive_dump(Trials& trials) {
  RecordJob job;
  job.mode.attention = "naive";
  auto run = trials.record(kMini, kCases, job);
  const auto& c = trials.weights(kMini).config();
  for (int64_t l = 0; l < c.num_hidden_layers; ++l) {
    const std::string kv_b_name = "step/layer." + std::to_string(l) + ".attn.kv_b";
    const std::string cache = "step/cache." + std::to_string(l) + ".";
    const auto kv_b = run.tensors.at(kv_b_name);
    const auto latent = run.tensors.at(cache + "latent");
    Bytes keys;
    Bytes values;
    Bytes new_rows;
    for (int64_t row = 0; row < kv_b.num_rows(); ++row) {
      for (int64_t head = 0; head < c.num_attention_heads; ++head) {
        const int64_t begin = head * (c.qk_nope_head_dim + c.v_head_dim);
        keys.append(kv_b, row, begin, c.qk_nope_head_dim);
        keys.append(latent, row, c.kv_lora_rank, c.qk_rope_head_dim);
        values.append(kv_b, row, begin + c.qk_nope_head_dim, c.v_head_dim);
      }
      if (row % kKeysEach == kKeysEach - 1) {
        new_rows.append(kv_b, row, 0, kv_b.row_len());
      }
    }
    run.tensors[cache + "keys"] = keys.take({kv_b.num_rows(), c.num_attention_heads, c.qk_head_dim()});
    run.tensors[cache + "values"] = values.take({kv_b.num_rows(), c.num_attention_heads, c.v_head_dim});
    run.tensors[kv_b_name] = new_rows.take({2, kv_b.row_len()});
    run.tensors.erase(cache + "latent");
  }
  return run;
}

TEST(ExpandedCache, OfTwoSequences_IsReadAndJudged) {
  Trials trials(2);
  const auto verdict = trials.judge(kMini, kCases, naive_dump(trials)).verdict;
  EXPECT_EQ(verdict.outcome, Verdict::Outcome::kPass) << complaints(verdict);
  for (const char* op : {"cache.1.keys", "cache.1.values", "layer.1.attn.probs"}) {
    EXPECT_TRUE(std::ranges::any_of(verdict.ops, [&](const auto& result) {
      return result.op == op && result.case_name == "step";
    })) << op;
  }
}

// The second sequence's row 2 still holds its row 1.
TEST(ExpandedCache, AStaleRow_DivergesInTheCache) {
  for (const std::string name : {"keys", "values"}) {
    Trials trials(2);
    auto run = naive_dump(trials);
    auto& tensor = run.tensors.at("step/cache.1." + name);
    auto bytes = std::make_shared<std::vector<std::byte>>(tensor.bytes.begin(), tensor.bytes.end());
    const size_t row_bytes = bytes->size() / (2 * kKeysEach);
    std::memcpy(bytes->data() + (kKeysEach + 2) * row_bytes, bytes->data() + (kKeysEach + 1) * row_bytes, row_bytes);
    tensor.bytes = *bytes;
    tensor.owner = bytes;
    const auto verdict = trials.judge(kMini, kCases, std::move(run)).verdict;
    ASSERT_EQ(verdict.outcome, Verdict::Outcome::kFail);
    EXPECT_EQ(verdict.first_divergence()->op, "cache.1." + name);
    EXPECT_EQ(verdict.first_divergence()->divergence->token, kKeysEach + 2);
  }
}

}  // namespace
}  // namespace tools
