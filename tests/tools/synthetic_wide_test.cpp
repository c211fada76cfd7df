// The fixture of true widths: one token through it, in bounded memory. Takes about half a minute.
#include <gtest/gtest.h>

#include <cmath>

#include "golden/cases.hpp"
#include "tools/record.hpp"
#include "tools/synthetic/argument.hpp"

namespace tools {
namespace {

TEST(SyntheticWide, OneToken_GivesHealthyNumbers) {
  const auto weights = synthetic::open_synthetic("synthetic:wide");
  RecordJob job{.mode = resolved({}, weights->config()), .cases = {golden::prompt_case({7})}, .recorded = {}};
  job.layers = {1};
  job.num_threads = 2;
  const auto golden = record(*weights, job);
  double sum = 0;
  const auto logits = model::to_double(golden.tensors.at("p1/logits"));
  for (const double value : logits) {
    ASSERT_TRUE(std::isfinite(value));
    sum += value * value;
  }
  const double rms = std::sqrt(sum / static_cast<double>(logits.size()));
  EXPECT_GT(rms, 1.5);
  EXPECT_LT(rms, 5);
  EXPECT_EQ(golden.tensors.at("p1/layer.1.moe.topk_ids").codes<int32_t>()[0], 3);
}

// The first MoE layer of the 671B shapes: four layers run, and no more.
TEST(SyntheticFull, FirstMoeLayer_GivesHealthyNumbers) {
  const auto weights = synthetic::open_synthetic("synthetic:full");
  RecordJob job{.mode = resolved({}, weights->config()), .cases = {golden::prompt_case({7})}, .recorded = {}};
  job.ops = {"layer.3.*"};
  job.hashes_weights = false;
  job.num_threads = 2;
  const auto golden = record(*weights, job);
  EXPECT_EQ(golden.tensors.at("p1/layer.3.moe.router_scores").shape, (model::Shape{1, 256}));
  EXPECT_EQ(golden.tensors.at("p1/layer.3.moe.topk_ids").codes<int32_t>()[0], 3);
  for (const char* op : {"attn.context", "attn.o_proj", "moe.routed", "moe.shared", "ffn", "output"}) {
    double sum = 0;
    const auto values = model::to_double(golden.tensors.at(std::string("p1/layer.3.") + op));
    for (const double value : values) {
      ASSERT_TRUE(std::isfinite(value)) << op;
      sum += value * value;
    }
    const double rms = std::sqrt(sum / static_cast<double>(values.size()));
    EXPECT_GT(rms, 0.2) << op;
    EXPECT_LT(rms, 5) << op;
  }
}

}  // namespace
}  // namespace tools
