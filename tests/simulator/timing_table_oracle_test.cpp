// Every published table, read through the readers that users' tables go through; numbers of rows and single figures as the
// collection's own description gives them.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "simulator/timing_table.hpp"
#include "tests/shared_data.hpp"

namespace simulator {
namespace {

class Measurements : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = shared_data("measurements");
    SKIP_UNLESS_THERE(directory_);
  }

  [[nodiscard]] std::filesystem::path file(const std::string& name) const { return *directory_ / name; }

 private:
  std::optional<std::filesystem::path> directory_;
};

TEST_F(Measurements, EveryTimingTable_IsReadWhole) {
  struct Expected {
    TimingKind kind;
    size_t num_rows;
  };
  const std::map<std::string, Expected> tables{
      {"custom_allreduce_intranode.csv", {TimingKind::kCollective, 1104}},
      {"deepep_low_latency_sweep.csv", {TimingKind::kDispatch, 227}},
      {"deepep_normal_sweep.csv", {TimingKind::kDispatch, 989}},
      {"deepgemm_h800_readme.csv", {TimingKind::kGemm, 43}},
      {"gb200_nvlink_alltoall.csv", {TimingKind::kDispatch, 2096}},
      {"gb200_trtllm_onesided_alltoall.csv", {TimingKind::kDispatch, 50}},
      {"gemm_dense.csv", {TimingKind::kGemm, 2584}},
      {"infersim_gemm_h800_h20.csv", {TimingKind::kGemm, 512}},
      {"infersim_grouped_gemm_h800_h20.csv", {TimingKind::kGroupedGemm, 497}},
      {"infersim_mla_h800_h20.csv", {TimingKind::kMlaDecode, 87}},
      {"mla_decode_core_kernel.csv", {TimingKind::kMlaDecode, 3024}},
      {"mla_decode_module.csv", {TimingKind::kMlaDecode, 5160}},
      {"moe_fused_kernel.csv", {TimingKind::kMoe, 6480}},
      {"nccl_collectives_intranode.csv", {TimingKind::kCollective, 1680}},
      {"trtllm_wideep_moe_eplb.csv", {TimingKind::kMoe, 4536}},
      {"wideep_moe_compute_skew.csv", {TimingKind::kMoe, 3119}},
  };
  for (const auto& [name, expected] : tables) {
    const TimingTable table = read_timing_table(file(name));
    EXPECT_EQ(table.rows.size(), expected.num_rows) << name;
    EXPECT_EQ(table.kind, expected.kind) << name;
    for (const TimingRow& row : table.rows) {
      EXPECT_GT(row.times_us.front().value(), 0) << name << ":" << row.line;
      EXPECT_LT(row.times_us.front().value(), 1e8) << name << ":" << row.line;
    }
  }
}

TEST_F(Measurements, LinkLatencies_AreReadAsATableOfLabels) {
  const TimingTable table = read_timing_table(file("link_latency_isca2025.csv"));
  EXPECT_TRUE(table.axis_names.empty());
  EXPECT_EQ(table.label_names, (std::vector<std::string>{"link", "condition"}));
  EXPECT_EQ(table.rows.front().times_us.front(), 3.6);
}

TEST_F(Measurements, TablesWithoutTimings_AreReadAsCsv) {
  for (const auto& [name, num_rows] : std::map<std::string, size_t>{{"e2e_tpot_b200_b300_gb200_fp8.csv", 160},
                                                                    {"expert_load_imbalance_trtllm.csv", 18},
                                                                    {"mtp_acceptance.csv", 21},
                                                                    {"deepseek_train_trace_kernels.csv", 963},
                                                                    {"kernel_breakdown_b200_fp4_tp4_conc64.csv", 10},
                                                                    {"gpu_specs.csv", 8}}) {
    EXPECT_EQ(read_csv(file(name)).rows.size(), num_rows) << name;
  }
}

// Times of rows whose label and axes have these values.
std::vector<double> times(const TimingTable& table,
                          const std::map<std::string, std::string>& labels,
                          const std::map<std::string, double>& axes) {
  std::vector<double> found;
  for (const TimingRow& row : table.rows) {
    bool matches = true;
    for (size_t i = 0; i < row.labels.size(); ++i) {
      const auto wanted = labels.find(table.label_names[i]);
      matches = matches && (wanted == labels.end() || wanted->second == row.labels[i]);
    }
    for (size_t i = 0; i < row.axes.size(); ++i) {
      const auto wanted = axes.find(table.axis_names[i]);
      matches = matches && (wanted == axes.end() || wanted->second == row.axes[i]);
    }
    if (matches) {
      found.push_back(row.times_us.front().value());
    }
  }
  return found;
}

// The description's table: A100, NCCL 2.27, all-reduce over 8 GPUs: 22.6 us at 512 B, 38.9 at 1 MiB, 2183 at 256 MiB.
TEST_F(Measurements, MessageSizes_AreBytes) {
  const TimingTable table = read_timing_table(file("nccl_collectives_intranode.csv"));
  for (const auto& [bytes, expected] : std::map<double, double>{{512, 22.6}, {1 << 20, 38.9}, {1 << 28, 2183}}) {
    const auto found =
        times(table, {{"gpu", "A100-SXM4-80GB"}, {"op", "all_reduce"}}, {{"num_gpus", 8}, {"message_bytes", bytes}});
    ASSERT_EQ(found.size(), 1U) << bytes;
    EXPECT_NEAR(found.front(), expected, 0.003 * expected);
  }
}

}  // namespace
}  // namespace simulator
