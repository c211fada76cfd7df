// The verifier on dumps that other people's code made of other checkpoints (label oracle: needs ../shared).
#include <gtest/gtest.h>

#include <cmath>
#include <ostream>
#include <set>

#include "golden/case_values.hpp"
#include "reference/op_call.hpp"
#include "tests/shared_data.hpp"
#include "tests/tools/verifier.hpp"

namespace tools {
namespace {

using golden::OpStatus;
using golden::Verdict;

class OracleTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const auto folder = shared_data("oracle/" + GetParam());
    SKIP_UNLESS_THERE(folder);
    fixture_ = std::make_unique<Fixture>(*folder);
  }
  std::unique_ptr<Fixture> fixture_;
};

TEST_P(OracleTest, TheFullCasesOfV32_Pass) {
  const auto golden = fixture_->record({}, kFullCases);
  const auto verdict = fixture_->compare(golden, fixture_->dump("v32_fp8.safetensors", "v32"));
  EXPECT_EQ(verdict.outcome, Verdict::Outcome::kPass) << complaints(verdict);
}

// Everything else in the two V3.2 dumps holds only some tensors of each case: what can be judged is right, and what cannot is said.
TEST_P(OracleTest, EveryOtherStoredCase_HasNoDivergedOp) {
  for (const std::string scale : {"fp32", "ue8m0"}) {
    const auto golden = fixture_->record({.scale = scale}, {});
    const auto dump = fixture_->dump(scale == "fp32" ? "v32_fp8.safetensors" : "v32_fp8ue8m0.safetensors", "v32");
    const auto verdict = fixture_->compare(golden, dump);
    int64_t judged = 0;
    for (const auto& op : verdict.ops) {
      EXPECT_NE(op.status, OpStatus::kDiverged) << scale << " " << op.case_name << "/" << op.op;
      judged += op.status <= OpStatus::kFlip ? 1 : 0;
    }
    EXPECT_GT(judged, 5) << scale;
    EXPECT_EQ(verdict.outcome, Verdict::Outcome::kUndecided) << scale;
  }
}

TEST_P(OracleTest, ExactMode_PassesAgainstHuggingFaceInFloat64) {
  RecordJob job;
  job.with_mtp = true;
  const auto golden = fixture_->record({.mode = "exact"}, kFullCases, job);
  const auto verdict = fixture_->compare(golden, fixture_->dump("hf_f64.safetensors", "hf"));
  EXPECT_EQ(verdict.outcome, Verdict::Outcome::kPass) << complaints(verdict);
}

// A dump of another published profile, judged by it.
struct ProfileDump {
  std::string fixture;
  std::string file;
  std::string format;
  ModeFlags mode;
  bool with_mtp = false;
};

void PrintTo(const ProfileDump& dump, std::ostream* out) {
  *out << dump.fixture << "/" << dump.file;
}

class ProfileOracleTest : public testing::TestWithParam<ProfileDump> {};

TEST_P(ProfileOracleTest, TheFullCases_PassWithoutAVariant) {
  const auto& dump = GetParam();
  const auto folder = shared_data("oracle/" + dump.fixture);
  SKIP_UNLESS_THERE(folder);
  const Fixture fixture(*folder);
  RecordJob job;
  job.with_mtp = dump.with_mtp;
  const auto golden = fixture.record(dump.mode, kFullCases, job);
  const auto verdict = fixture.compare(golden, fixture.dump(dump.file + ".safetensors", dump.format));
  EXPECT_EQ(verdict.outcome, Verdict::Outcome::kPass) << complaints(verdict);
  for (const auto& op : verdict.ops) {
    EXPECT_TRUE(op.status == OpStatus::kSame || op.status == OpStatus::kOrder)
        << op.case_name << "/" << op.op << " " << op.variant;
  }
}

// Every other file and case of the oracle holds part of the tensors: nothing may diverge in what can be judged.
class PartialOracleTest : public testing::TestWithParam<ProfileDump> {};

TEST_P(PartialOracleTest, NothingDiverges) {
  const auto& dump = GetParam();
  const auto folder = shared_data("oracle/" + dump.fixture);
  SKIP_UNLESS_THERE(folder);
  const Fixture fixture(*folder);
  RecordJob job;
  job.with_mtp = dump.with_mtp;
  const auto golden = fixture.record(dump.mode, {}, job);
  const auto verdict = fixture.compare(golden, fixture.dump(dump.file + ".safetensors", dump.format));
  int64_t judged = 0;
  for (const auto& op : verdict.ops) {
    EXPECT_NE(op.status, OpStatus::kDiverged) << op.case_name << "/" << op.op;
    judged += op.status <= OpStatus::kFlip ? 1 : 0;
  }
  EXPECT_GE(judged, 5);
}

const ModeFlags kDemoBf16Naive{.profile = "v3-demo", .gemm = "bf16", .attention = "naive"};
const ModeFlags kDemoBf16Absorbed{.profile = "v3-demo", .gemm = "bf16", .attention = "absorbed"};
const ModeFlags kDemoFp8Absorbed{.profile = "v3-demo", .gemm = "fp8"};
const ModeFlags kDemoFp8Naive{.profile = "v3-demo", .gemm = "fp8", .attention = "naive"};
const ModeFlags kDemoUe8m0Absorbed{.profile = "v3-demo", .gemm = "fp8", .scale = "ue8m0"};
const ModeFlags kDemoUe8m0Naive{.profile = "v3-demo", .gemm = "fp8", .scale = "ue8m0", .attention = "naive"};
const ModeFlags kHf{.profile = "hf"};

std::string name_of(const testing::TestParamInfo<ProfileDump>& dump) {
  return dump.param.fixture + "_" + dump.param.file;
}

INSTANTIATE_TEST_SUITE_P(Dumps,
                         ProfileOracleTest,
                         testing::Values(ProfileDump{"nano", "v3_bf16_naive", "v32", kDemoBf16Naive},
                                         ProfileDump{"nano", "v3_fp8_absorb", "v32", kDemoFp8Absorbed},
                                         ProfileDump{"nano", "hf_bf16", "hf", kHf, true},
                                         ProfileDump{"ragged", "v3_bf16_naive", "v32", kDemoBf16Naive},
                                         ProfileDump{"ragged", "v3_fp8_absorb", "v32", kDemoFp8Absorbed},
                                         ProfileDump{"ragged", "hf_bf16", "hf", kHf, true},
                                         ProfileDump{"mini", "v3_bf16_naive", "v32", kDemoBf16Naive},
                                         ProfileDump{"mini", "v3_fp8_absorb", "v32", kDemoFp8Absorbed},
                                         ProfileDump{"mini", "hf_bf16", "hf", kHf, true},
                                         ProfileDump{"notv3", "v3_bf16_naive", "v32", kDemoBf16Naive},
                                         ProfileDump{"notv3", "hf_bf16_eps", "hf", kHf, true},
                                         ProfileDump{"notv3", "hf_f64_eps", "hf", {.mode = "exact"}, true}),
                         name_of);

INSTANTIATE_TEST_SUITE_P(Dumps,
                         PartialOracleTest,
                         testing::Values(ProfileDump{"nano", "v3_bf16_naive", "v32", kDemoBf16Naive},
                                         ProfileDump{"nano", "v3_bf16_naive_nb", "v32", kDemoBf16Naive},
                                         ProfileDump{"nano", "v3_bf16_absorb", "v32", kDemoBf16Absorbed},
                                         ProfileDump{"nano", "v3_fp8_absorb", "v32", kDemoFp8Absorbed},
                                         ProfileDump{"nano", "v3_fp8_naive", "v32", kDemoFp8Naive},
                                         ProfileDump{"nano", "v3_fp8ue8m0_absorb", "v32", kDemoUe8m0Absorbed},
                                         ProfileDump{"nano", "v3_fp8ue8m0_naive", "v32", kDemoUe8m0Naive},
                                         ProfileDump{"nano", "hf_bf16", "hf", kHf, true},
                                         ProfileDump{"nano", "hf_f64", "hf", {.mode = "exact"}, true},
                                         ProfileDump{"ragged", "v3_bf16_absorb", "v32", kDemoBf16Absorbed},
                                         ProfileDump{"ragged", "v3_fp8_naive", "v32", kDemoFp8Naive},
                                         ProfileDump{"ragged", "v3_fp8ue8m0_absorb", "v32", kDemoUe8m0Absorbed},
                                         ProfileDump{"ragged", "v3_fp8ue8m0_naive", "v32", kDemoUe8m0Naive},
                                         ProfileDump{"ragged", "hf_bf16", "hf", kHf, true},
                                         ProfileDump{"mini", "v3_bf16_naive", "v32", kDemoBf16Naive},
                                         ProfileDump{"mini", "v3_fp8_absorb", "v32", kDemoFp8Absorbed},
                                         ProfileDump{"mini", "hf_bf16", "hf", kHf, true},
                                         ProfileDump{"notv3", "v3_bf16_naive", "v32", kDemoBf16Naive},
                                         ProfileDump{"notv3", "v3_bf16_naive_nb", "v32", kDemoBf16Naive},
                                         ProfileDump{"notv3", "v3_bf16_absorb", "v32", kDemoBf16Absorbed},
                                         ProfileDump{"notv3", "hf_bf16_eps", "hf", kHf, true},
                                         ProfileDump{"notv3", "hf_f64_eps", "hf", {.mode = "exact"}, true}),
                         name_of);

double relative_l2(const model::TensorView& expected, const model::TensorView& got) {
  const auto x = model::to_double(expected);
  const auto y = model::to_double(got);
  double difference = 0;
  double length = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    difference += (x[i] - y[i]) * (x[i] - y[i]);
    length += x[i] * x[i];
  }
  return length == 0 ? std::sqrt(difference) : std::sqrt(difference / length);
}

// Every op whose inputs are all in the dump, computed alone from them: relative L2 at most 1e-12. Rotations are bound to torch's
// FP32 cos and sin instead: 2 FP32 ulp of each vector's length.
TEST_P(OracleTest, ExactMode_ForcedOpByOp_EqualsHuggingFaceInFloat64) {
  const auto dump = fixture_->dump("hf_f64.safetensors", "hf");
  RecordJob job;
  job.with_mtp = true;
  const auto golden = fixture_->record({.mode = "exact"}, kFullCases, job);
  const auto& config = fixture_->checkpoint().config();
  const auto rules = reference::exact_rules();
  int64_t compared = 0;
  for (const auto& step : golden.manifest.cases) {
    const auto workload = golden::workload_of(config, golden, dump, step);
    for (const auto& grouped : model::op_list(config, workload)) {
      const auto got = dump.tensors.find(step.name + "/" + grouped.id);
      if (got == dump.tensors.end() || grouped.kind == model::OpKind::kCacheLatent ||
          grouped.kind == model::OpKind::kCombine) {
        continue;  // the cache is a copy; HF stores no single experts
      }
      reference::OpCall call{.rules = rules, .workload = workload, .weights = fixture_->checkpoint(), .op = grouped};
      bool complete = true;
      for (const auto& id : grouped.inputs) {
        const auto input = dump.tensors.find(step.name + "/" + id);
        if (id == "tokens") {
          std::vector<int32_t> flat;
          for (const auto& tokens : step.sequences) {
            flat.insert(flat.end(), tokens.begin(), tokens.end());
          }
          const auto count = static_cast<int64_t>(flat.size());
          call.inputs.push_back(model::make_tensor(model::DType::kI32, {count}, std::move(flat)));
        } else if (input == dump.tensors.end()) {
          complete = false;
        } else {
          call.inputs.push_back(input->second);
        }
      }
      if (!complete) {
        continue;
      }
      const auto ours = reference::run_op(call);
      ++compared;
      if (grouped.kind == model::OpKind::kRotateQuery || grouped.kind == model::OpKind::kRotateKey) {
        EXPECT_LE(relative_l2(got->second, ours), 2 * std::ldexp(1.0, -23)) << step.name << "/" << grouped.id;
      } else if (ours.dtype == model::DType::kI32) {
        const auto k = static_cast<size_t>(ours.row_len());
        for (int64_t t = 0; t < ours.num_rows(); ++t) {
          const auto a = ours.codes<int32_t>().subspan(static_cast<size_t>(t) * k, k);
          const auto b = got->second.codes<int32_t>().subspan(static_cast<size_t>(t) * k, k);
          EXPECT_EQ(std::multiset<int32_t>(a.begin(), a.end()), std::multiset<int32_t>(b.begin(), b.end()));
        }
      } else {
        EXPECT_LE(relative_l2(got->second, ours), 1e-12) << step.name << "/" << grouped.id;
      }
    }
  }
  EXPECT_GT(compared, 150);
}

// Nothing forced: routing identical, logits within 1e-6 (the rotations' cos and sin differ by an FP32 ulp).
TEST_P(OracleTest, ExactMode_FreeRunning_KeepsRoutingAndLogits) {
  const auto dump = fixture_->dump("hf_f64.safetensors", "hf");
  RecordJob job;
  job.with_mtp = true;
  const auto golden = fixture_->record({.mode = "exact"}, {}, job);
  int64_t logits = 0;
  for (const auto& [name, tensor] : golden.tensors) {
    const auto theirs = dump.tensors.find(name);
    if (theirs == dump.tensors.end()) {
      continue;
    }
    if (name.ends_with("logits") && !name.ends_with("router_logits")) {
      ++logits;
      EXPECT_LE(relative_l2(theirs->second, tensor), 1e-6) << name;
    } else if (name.ends_with("topk_ids")) {
      const auto a = tensor.codes<int32_t>();
      const auto b = theirs->second.codes<int32_t>();
      const auto k = static_cast<size_t>(tensor.row_len());
      for (size_t t = 0; t < a.size() / k; ++t) {
        EXPECT_EQ(std::multiset<int32_t>(a.begin() + static_cast<int64_t>(t * k),
                                         a.begin() + static_cast<int64_t>((t + 1) * k)),
                  std::multiset<int32_t>(b.begin() + static_cast<int64_t>(t * k),
                                         b.begin() + static_cast<int64_t>((t + 1) * k)))
            << name << " token " << t;
      }
    }
  }
  EXPECT_EQ(logits, 14 + 2);  // 14 cases, and the MTP heads of p7 and p33
}

INSTANTIATE_TEST_SUITE_P(Fixtures, OracleTest, testing::Values("nano", "ragged", "mini"), [](const auto& fixture) {
  return fixture.param;
});

}  // namespace
}  // namespace tools
