// Exported checkpoints load in HF transformers and compute what the reference computes (label oracle: needs PyTorch and transformers
// in $DSV3_PYTHON, else python3).
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "model/checkpoint.hpp"
#include "model/safetensors.hpp"
#include "tests/paths.hpp"
#include "tests/temp_dir.hpp"
#include "tools/export.hpp"
#include "tools/record.hpp"
#include "tools/synthetic/argument.hpp"

namespace tools {
namespace {

const std::vector<int32_t> kTokens{11, 48, 85, 122, 32, 400, 7, 255};

std::string python() {
  const char* named = std::getenv("DSV3_PYTHON");
  return named != nullptr ? named : "python3";
}

bool can_load() {
  return std::system((python() + " -c 'import torch, transformers, safetensors' > /dev/null 2>&1").c_str()) == 0;
}

model::TensorView reference_logits(const model::WeightSource& weights) {
  RecordJob job;
  job.mode = resolved({.mode = "exact"}, weights.config());
  job.cases = {{.name = "p8", .sequences = {kTokens}}};
  job.ops = {"logits"};
  job.num_threads = 2;
  return record(weights, job).tensors.at("p8/logits");
}

// Both sides multiply FP32(code * scale); HF rounds every step to FP32. Four layers of about ten sums of 256 terms, each off by
// at most sqrt(256) * 2^-24 of itself: sqrt(40) * 1e-6 = 6e-6 of the logits, rounded up to 1e-5.
// In BF16 only: without a GPU transformers 5.24 dequantises the experts of any FP8 checkpoint to other values; the logits of one
// that is not ours came out 0.86 of their length away from those of its own FP32 run.
TEST(Export, NanoLoadsInTransformers_AndItsLogitsAreThoseOfExactMode) {
  if (!can_load()) {
    GTEST_SKIP() << "no PyTorch and transformers in " << python() << ": set DSV3_PYTHON";
  }
  const TempDir folder;
  const auto generated = synthetic::open_synthetic("synthetic:nano");
  export_checkpoint(*generated, folder / "checkpoint", true);
  const std::string script = (source_dir() / "tests/tools/hf_logits.py").string();
  const std::string command = fmt::format("{} '{}' '{}' {} '{}' > '{}' 2>&1",
                                          python(),
                                          script,
                                          (folder / "checkpoint").string(),
                                          fmt::join(kTokens, ","),
                                          (folder / "hf.safetensors").string(),
                                          (folder / "log").string());
  ASSERT_EQ(std::system(command.c_str()), 0) << read_bytes(folder / "log");
  const auto theirs = model::to_double(model::read_safetensors(folder / "hf.safetensors").tensors.at("logits"));
  const model::Checkpoint exported(folder / "checkpoint");
  const auto ours = model::to_double(reference_logits(exported));
  ASSERT_EQ(theirs.size(), ours.size());
  double difference = 0;
  double length = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    difference += (theirs[i] - ours[i]) * (theirs[i] - ours[i]);
    length += ours[i] * ours[i];
  }
  EXPECT_LE(std::sqrt(difference / length), 1e-5);
}

}  // namespace
}  // namespace tools
