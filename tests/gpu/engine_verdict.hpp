// Goldens for the engine, and what a verdict on its dump has to say: what tests of its steps share.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/tools/verifier.hpp"
#include "tools/device/engine_dump.hpp"

namespace tools {

inline golden::Verdict verify(const model::WeightSource& weights,
                              const golden::GoldenFile& golden,
                              const golden::Dump& dump,
                              const std::vector<std::string>& cases = {}) {
  const auto& m = golden.manifest;
  const auto rules = rules_of({m.mode, m.profile, m.gemm, m.scale, m.attention});
  return golden::compare(
      weights.config(), golden, dump, {.cases = cases}, [&](const model::Workload& workload, double num_sigmas) {
        return std::make_unique<ReferenceRecompute>(weights, rules, workload, num_sigmas, 2);
      });
}

// Every op of the op table judged and passed. The attention's sum follows the online softmax; everything else the profile's own rules.
inline void expect_pass(const golden::Verdict& verdict) {
  EXPECT_EQ(verdict.outcome, golden::Verdict::Outcome::kPass) << complaints(verdict);
  for (const auto& op : verdict.ops) {
    if (op.op.ends_with(".o_latent") || op.op.ends_with(".attn.context")) {
      EXPECT_TRUE(op.status < golden::OpStatus::kVariant || op.variant.starts_with("probs-")) << op.op << op.variant;
    } else {
      EXPECT_LT(op.status, golden::OpStatus::kVariant) << op.case_name << "/" << op.op << " " << op.variant;
    }
  }
}

inline RecordJob job_of_prompt(std::vector<int32_t> ids,
                               int64_t num_decode,
                               const model::ModelConfig& config,
                               const ModeFlags& mode = {}) {
  RecordJob job;
  job.mode = resolved(mode, config);
  job.cases = {golden::prompt_case(std::move(ids))};
  job.num_decode = num_decode;
  job.with_mtp = config.num_nextn_predict_layers > 0;
  job.num_threads = 2;
  return job;
}

}  // namespace tools
