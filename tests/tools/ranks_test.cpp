// Dumps of many ranks: sliced runs give the verdict of the whole run, and a fault in one rank names the rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "golden/ranks.hpp"
#include "tests/tools/verifier.hpp"

namespace tools {
namespace {

using golden::Verdict;
using model::TensorView;

const golden::GoldenFile& whole() {
  static const auto golden = mini().record({}, {"p7", "d0"});
  return golden;
}

// Columns [begin, end) of the second dimension.
TensorView columns(const TensorView& tensor, int64_t begin, int64_t end) {
  model::Shape shape = tensor.shape;
  const int64_t inner = tensor.row_len() / shape[1];
  shape[1] = end - begin;
  auto bytes = std::make_shared<std::vector<std::byte>>();
  const auto width = static_cast<size_t>(inner * model::dtype_bytes(tensor.dtype));
  for (int64_t row = 0; row < tensor.num_rows(); ++row) {
    const auto all = model::slice_rows(tensor, row, row + 1).bytes;
    const auto part = all.subspan(static_cast<size_t>(begin) * width, static_cast<size_t>(end - begin) * width);
    bytes->insert(bytes->end(), part.begin(), part.end());
  }
  return {tensor.dtype, shape, *bytes, bytes};
}

bool holds(const std::string& name, std::initializer_list<const char*> suffixes) {
  return std::ranges::any_of(suffixes, [&](const char* suffix) { return name.ends_with(suffix); });
}

bool is_expert(const std::string& name) {
  return name.find(".moe.expert.") != std::string::npos;
}

int64_t expert_of(const std::string& name) {
  return std::stoll(name.substr(name.find(".expert.") + 8));
}

// As convert.py splits the model: heads, MLP columns and the vocabulary over TP; experts over EP.
std::vector<golden::Dump> slice_tp(int64_t tp) {
  std::vector<golden::Dump> ranks(static_cast<size_t>(tp));
  for (const auto& [name, tensor] : whole().tensors) {
    const bool split = holds(name,
                             {".q_b",
                              ".kv_b",
                              ".q_rope",
                              ".probs",
                              ".context",
                              ".q_latent",
                              ".o_latent",
                              ".gate",
                              ".up",
                              ".act",
                              "/logits"});
    for (int64_t r = 0; r < tp; ++r) {
      const int64_t width = tensor.shape[1];
      ranks[static_cast<size_t>(r)].tensors[name] =
          split ? columns(tensor, width * r / tp, width * (r + 1) / tp) : tensor;
    }
  }
  return ranks;
}

std::vector<golden::Dump> slice_ep(int64_t ep) {
  std::vector<golden::Dump> ranks(static_cast<size_t>(ep));
  for (const auto& [name, tensor] : whole().tensors) {
    for (int64_t r = 0; r < ep; ++r) {
      if (!is_expert(name) || expert_of(name) * ep / 16 == r) {
        ranks[static_cast<size_t>(r)].tensors[name] = tensor;
      }
    }
  }
  return ranks;
}

// The tokens of p7 over DP ranks, experts over as many EP ranks. Keys and caches belong to the one sequence and are left out.
std::vector<golden::Dump> slice_dp(int64_t dp) {
  std::vector<golden::Dump> ranks(static_cast<size_t>(dp));
  for (const auto& [name, tensor] : whole().tensors) {
    if (!name.starts_with("p7/") || holds(name, {".latent", ".kv_b"})) {
      continue;
    }
    for (int64_t r = 0; r < dp; ++r) {
      const int64_t rows = tensor.num_rows();
      if (!is_expert(name)) {
        ranks[static_cast<size_t>(r)].tensors[name] = model::slice_rows(tensor, rows * r / dp, rows * (r + 1) / dp);
      } else if (expert_of(name) * dp / 16 == r) {
        ranks[static_cast<size_t>(r)].tensors[name] = tensor;
      }
    }
  }
  return ranks;
}

golden::GatheredDump gathered(const std::string& layout, const std::vector<golden::Dump>& ranks) {
  return golden::gather_ranks(
      golden::parse_rank_layout(layout), ranks, mini().checkpoint().config(), whole().manifest.cases);
}

Verdict verdict_of(const golden::GatheredDump& dump, const golden::CompareOptions& options = {}) {
  auto verdict = mini().compare(whole(), dump.dump, options);
  golden::assign_ranks(dump, verdict);
  return verdict;
}

// A copy of a rank's tensor with one element moved by one step.
void damage(golden::Dump& dump, const std::string& name, size_t byte) {
  auto& tensor = dump.tensors.at(name);
  auto bytes = std::make_shared<std::vector<std::byte>>(tensor.bytes.begin(), tensor.bytes.end());
  (*bytes)[byte] ^= std::byte{1};
  tensor.bytes = *bytes;
  tensor.owner = bytes;
}

TEST(Ranks, SlicedRuns_GiveTheVerdictOfTheWhole) {
  for (const int64_t degree : {2, 4}) {
    const auto tp = gathered("tp" + std::to_string(degree), slice_tp(degree));
    EXPECT_EQ(tp.dump.tensors.size(), whole().tensors.size());
    EXPECT_EQ(verdict_of(tp).outcome, Verdict::Outcome::kPass) << complaints(verdict_of(tp));
  }
  EXPECT_EQ(verdict_of(gathered("ep4", slice_ep(4))).outcome, Verdict::Outcome::kPass);
  const auto dp = gathered("dp4ep4", slice_dp(4));
  for (const auto& [name, tensor] : dp.dump.tensors) {
    EXPECT_TRUE(std::ranges::equal(tensor.bytes, whole().tensors.at(name).bytes)) << name;
  }
}

TEST(Ranks, AFaultInOneShard_NamesTheRank) {
  auto ranks = slice_tp(4);
  damage(ranks[2], "p7/layer.1.attn.q_b", 10);
  const auto verdict = verdict_of(gathered("tp4", ranks));
  ASSERT_EQ(verdict.outcome, Verdict::Outcome::kFail);
  EXPECT_EQ(verdict.first_divergence()->op, "layer.1.attn.q_b");
  EXPECT_EQ(verdict.first_divergence()->divergence->rank, 2);
}

TEST(Ranks, AFaultInOneExpert_NamesItsRank) {
  auto ranks = slice_ep(4);
  const auto first_of_rank_3 = std::ranges::find_if(ranks[3].tensors, [](const auto& entry) {
    return entry.first.starts_with("p7/") && is_expert(entry.first) && entry.first.ends_with(".gate");
  });
  ASSERT_NE(first_of_rank_3, ranks[3].tensors.end());
  const std::string name = first_of_rank_3->first;
  damage(ranks[3], name, 4);
  const auto verdict = verdict_of(gathered("ep4", ranks));
  ASSERT_EQ(verdict.outcome, Verdict::Outcome::kFail);
  EXPECT_EQ("p7/" + verdict.first_divergence()->op, name);
  EXPECT_EQ(verdict.first_divergence()->rank, 3);
}

TEST(Ranks, AReplicaThatDiffers_NamesTheRank) {
  auto ranks = slice_ep(4);
  damage(ranks[1], "p7/layer.0.attn.o_proj", 7);
  const auto verdict = verdict_of(gathered("ep4", ranks));
  ASSERT_EQ(verdict.outcome, Verdict::Outcome::kFail);
  EXPECT_EQ(verdict.first_divergence()->op, "layer.0.attn.o_proj");
  EXPECT_EQ(verdict.first_divergence()->divergence->rank, 1);
  EXPECT_EQ(verdict.first_divergence()->divergence->reason, "rank 1 holds other values than the other replicas");
}

TEST(Ranks, LayoutsAreParsedOrRefused) {
  EXPECT_EQ(golden::parse_rank_layout("tp8").world_size(), 8);
  EXPECT_EQ(golden::parse_rank_layout("dp8ep8").world_size(), 8);
  EXPECT_EQ(golden::parse_rank_layout("tp4dp2ep8").world_size(), 8);
  EXPECT_EQ(golden::parse_rank_layout("ep64").world_size(), 64);
  EXPECT_EQ(golden::parse_rank_layout("tp2dp2pp3ep4").world_size(), 12);
  for (const char* wrong : {"", "tp", "tp0", "sp2", "tp2tp2", "tp2x", "8"}) {
    EXPECT_THROW((void)golden::parse_rank_layout(wrong), model::InputError) << wrong;
  }
}

}  // namespace
}  // namespace tools
