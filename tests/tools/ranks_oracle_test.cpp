// Independent dumps cut into ranks give the verdict of the whole (label oracle: needs ../shared).
#include <gtest/gtest.h>

#include <algorithm>

#include "golden/ranks.hpp"
#include "model/safetensors.hpp"
#include "tests/shared_data.hpp"
#include "tests/temp_dir.hpp"
#include "tests/tools/verifier.hpp"

namespace tools {
namespace {

using golden::Verdict;
using model::TensorView;

constexpr int64_t kNumRanks = 4;
constexpr int64_t kNumExperts = 16;

// [begin, end) along a dimension whose outer extents are 1.
TensorView part(const TensorView& tensor, size_t dimension, int64_t begin, int64_t end) {
  model::Shape flat(tensor.shape.begin() + static_cast<int64_t>(dimension), tensor.shape.end());
  auto piece = model::slice_rows(model::reshape(tensor, flat), begin, end);
  model::Shape shape(dimension, 1);
  shape.insert(shape.end(), piece.shape.begin(), piece.shape.end());
  return model::reshape(piece, shape);
}

// The expert of "p7/layers.1.ffn.experts.12.w1", or -1.
int64_t expert_of(const std::string& name) {
  const size_t mark = name.find(".experts.");
  return mark == std::string::npos ? -1 : std::stoll(name.substr(mark + 9));
}

// Rows of an expert's tensor that belong to tokens [begin, end).
TensorView rows_of_tokens(const model::SafetensorsFile& file, const std::string& name, int64_t begin, int64_t end) {
  const auto& ids = file.tensors.at(name.substr(0, name.find(".experts.")) + ".gate.indices");
  const auto k = ids.shape[1];
  const auto codes = ids.codes<int32_t>();
  const auto rows_before = [&](int64_t token) {
    return std::count(codes.begin(), codes.begin() + token * k, static_cast<int32_t>(expert_of(name)));
  };
  return model::slice_rows(file.tensors.at(name), rows_before(begin), rows_before(end));
}

// The file as rank `rank` of an EP4 (all tokens, a quarter of the experts) or DP4 (a quarter of the tokens) run would have dumped it.
void write_rank(const model::SafetensorsFile& file, bool dp, int64_t rank, const std::filesystem::path& path) {
  std::vector<std::pair<std::string, TensorView>> mine;
  for (const auto& [name, tensor] : file.tensors) {
    const std::string case_name = name.substr(0, name.find('/'));
    if (std::ranges::find(kFullCases, case_name) == kFullCases.end() || name.ends_with("logits_last")) {
      continue;
    }
    const int64_t expert = expert_of(name);
    if (!dp) {
      if (expert < 0 || expert * kNumRanks / kNumExperts == rank) {
        mine.emplace_back(name, tensor);
      }
      continue;
    }
    const size_t dimension = tensor.shape.size() < 3 ? 0 : 1;  // [tokens, ...], or a batch of one: [1, tokens, ...]
    const auto& embed = file.tensors.at(case_name + "/embed");
    const int64_t extent = expert >= 0 ? embed.shape[1] : tensor.shape[dimension];
    const int64_t begin = extent * rank / kNumRanks;
    const int64_t end = extent * (rank + 1) / kNumRanks;
    const auto piece = expert >= 0 ? rows_of_tokens(file, name, begin, end) : part(tensor, dimension, begin, end);
    if (piece.size() > 0) {
      mine.emplace_back(name, piece);
    }
  }
  model::write_safetensors(path, mine, {});
}

class RanksOracleTest : public testing::TestWithParam<bool> {};

TEST_P(RanksOracleTest, NanoCutIntoFour_GivesTheVerdictOfTheWhole) {
  const auto folder = shared_data("oracle/nano");
  SKIP_UNLESS_THERE(folder);
  const bool dp = GetParam();
  const Fixture nano(*folder);
  const auto file = model::read_safetensors(*folder / "v32_fp8.safetensors");
  const TempDir dir;
  for (int64_t rank = 0; rank < kNumRanks; ++rank) {
    write_rank(file, dp, rank, dir / ("dump_rank" + std::to_string(rank) + ".safetensors"));
  }
  const auto golden = nano.record({}, kFullCases);
  const auto layout = golden::parse_rank_layout(dp ? "dp4" : "ep4");
  const auto ranks = golden::read_ranks(dir.path(), layout, "v32", nano.checkpoint().config(), golden.manifest.cases);
  const auto gathered = golden::gather_ranks(layout, ranks, nano.checkpoint().config(), golden.manifest.cases);
  auto verdict = nano.compare(golden, gathered.dump);
  golden::assign_ranks(gathered, verdict);
  EXPECT_EQ(verdict.outcome, Verdict::Outcome::kPass) << complaints(verdict);
  EXPECT_EQ(verdict.ops.size(), nano.compare(golden, nano.dump("v32_fp8.safetensors", "v32")).ops.size());
}

INSTANTIATE_TEST_SUITE_P(Layouts, RanksOracleTest, testing::Bool(), [](const auto& layout) {
  return layout.param ? "dp4" : "ep4";
});

}  // namespace
}  // namespace tools
