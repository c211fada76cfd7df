#include "simulator/expert_time.hpp"

#include <array>

namespace simulator {

std::span<const ExpertTimeFit> expert_time_fits() {
  // ai-dynamo/aiconfigurator@095f58a: wideep_generation_moe_perf and wideep_context_moe_perf of SGLang 0.5.10 (FP8 blocks, EP2 to EP256),
  // wideep_moe_perf of TensorRT-LLM 1.3.0rc10 (with and without EPLB). Fitted on the relative error of the hottest rank, whose load is
  // drawn from the distribution that a row names; tests/simulator/expert_time_oracle_test.cpp holds them against the tables.
  static constexpr std::array kFits{
      ExpertTimeFit{"h100", "sglang-decode", 20.77, 15.86, 0.06622, 1.604},
      ExpertTimeFit{"h200", "sglang-decode", 19.41, 10.34, 0.06451, 1.362},
      ExpertTimeFit{"b200", "sglang-decode", 18.67, 7.855, 0.0393, 1.691},
      ExpertTimeFit{"gb200-nvl72", "sglang-decode", 19.93, 6.821, 0.03634, 1.315},
      ExpertTimeFit{"h100", "sglang-prefill", 191.9, 17.81, 0.07688, 1.911, 0.007637, 401.8},
      ExpertTimeFit{"h200", "sglang-prefill", 186.5, 12.08, 0.07228, 1.96, 0.006088, 378.5},
      ExpertTimeFit{"b200", "sglang-prefill", 174.6, 6.261, 0.04225, 1.576, 0.005302, 306.4},
      ExpertTimeFit{"gb200-nvl72", "sglang-prefill", 271.3, 5.978, 0.03838, 1.501, 0.005314, 519.5},
      ExpertTimeFit{"h100", "trtllm-fp8", 53.97, 5.129, 0.1724, 1.0},
      ExpertTimeFit{"h200", "trtllm-fp8", 50.27, 1.608, 0.1608, 1.0},
      ExpertTimeFit{"b200", "trtllm-nvfp4", 58.74, 2.538, 0.04276, 1.604},
      ExpertTimeFit{"gb200-nvl72", "trtllm-nvfp4", 58.95, 2.238, 0.04076, 1.475},
  };
  return kFits;
}

}  // namespace simulator
