#include "simulator/launch_command.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "model/check.hpp"
#include "model/printable.hpp"

namespace simulator {
namespace {

constexpr int64_t kGpusOfNode = 8;

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) {
    text += (text.empty() ? "" : " \\\n  ") + part;
  }
  return text + "\n";
}

int64_t sequences(const Deployment& deployment) {
  const double ranks = static_cast<double>(deployment.decode.rank.layout.dp * deployment.decode.workers);
  return static_cast<int64_t>(std::ceil(deployment.workload.concurrency / ranks));
}

std::string repository_of(const std::string& model) {
  return model == "deepseek-v3" ? "deepseek-ai/DeepSeek-V3"
         : model == "kimi-k2"   ? "moonshotai/Kimi-K2-Instruct"
                                : model;
}

// Flags: sgl-project/sglang, python/sglang/srt/server_args.py. tp counts all ranks there, also those of the dp groups.
std::string sglang_command(const Deployment& deployment, bool is_prefill, const std::string& model_path) {
  const RankLayout& rank = is_prefill ? deployment.prefill->rank : deployment.decode.rank;
  const model::ParallelLayout& layout = rank.layout;
  const int64_t ranks = layout.stage_len();
  std::vector<std::string> parts{
      fmt::format("python3 -m sglang.launch_server --model-path {} --trust-remote-code", model_path),
      fmt::format("--tp-size {}", ranks)};
  if (layout.pp > 1) {
    parts.push_back(fmt::format("--pp-size {}", layout.pp));
  }
  if (layout.dp > 1) {
    parts.push_back(fmt::format("--dp-size {} --enable-dp-attention --enable-dp-lm-head", layout.dp));
  }
  if (layout.ep > layout.tp) {
    const char* mode = !deployment.prefill ? "auto" : is_prefill ? "normal" : "low_latency";
    parts.push_back(fmt::format("--moe-a2a-backend deepep --deepep-mode {}", mode));
  } else if (layout.ep > 1) {
    parts.push_back(fmt::format("--ep-size {}", layout.ep));
  }
  if (rank.dense_tp && *rank.dense_tp != 1) {
    model::throw_input_error("--emit sglang: --dense-tp {}: SGLang's --moe-dense-tp-size knows 1 alone",
                             *rank.dense_tp);
  }
  if (rank.dense_tp) {
    parts.emplace_back("--moe-dense-tp-size 1");
  }
  if (rank.shared_expert == SharedExpertPlace::kReplicated || rank.shared_expert == SharedExpertPlace::kSharded) {
    parts.emplace_back("--disable-shared-experts-fusion");
  }
  if (rank.redundant_experts > 0) {
    parts.push_back(fmt::format("--ep-num-redundant-experts {}", rank.redundant_experts));
  }
  if (rank.eplb) {
    parts.emplace_back("--enable-eplb");
  }
  if (rank.two_batch_overlap) {
    parts.emplace_back("--enable-two-batch-overlap");
  }
  if (rank.kv_dtype == KvDtype::kFp8) {
    parts.emplace_back("--kv-cache-dtype fp8_e4m3");
  }
  if (deployment.prefill) {
    parts.push_back(fmt::format("--disaggregation-mode {}", is_prefill ? "prefill" : "decode"));
  }
  if (!is_prefill) {
    const int64_t batch = sequences(deployment);
    parts.push_back(fmt::format("--max-running-requests {} --cuda-graph-max-bs {}", batch * layout.dp, batch));
  }
  if (!rank.cuda_graph) {
    parts.emplace_back("--disable-cuda-graph");
  }
  const int64_t nodes = (layout.num_ranks() + kGpusOfNode - 1) / kGpusOfNode;
  if (nodes > 1) {
    parts.push_back(fmt::format("--nnodes {} --node-rank \"$NODE_RANK\" --dist-init-addr \"$FIRST_NODE:5000\"", nodes));
  }
  return joined(parts);
}

// Flags: vllm-project/vllm, vllm/engine/arg_utils.py. Experts lie over tp x dp ranks; a node starts its own dp ranks.
std::string vllm_command(const Deployment& deployment, const std::string& model_path) {
  const RankLayout& rank = deployment.decode.rank;
  const model::ParallelLayout& layout = rank.layout;
  if (deployment.prefill) {
    model::throw_input_error(
        "--emit vllm: prefill on GPUs of its own needs a KV connector of your choice; sglang has flags for it");
  }
  if (rank.dense_tp || rank.shared_expert != SharedExpertPlace::kDefault) {
    model::throw_input_error("--emit vllm: vLLM has no flag for --dense-tp or --shared-expert; sglang has");
  }
  const bool has_experts_spread = layout.ep > 1;
  if (has_experts_spread && layout.ep != layout.stage_len()) {
    model::throw_input_error(
        "--emit vllm: ep {} of {} ranks: vLLM spreads experts over all ranks or none", layout.ep, layout.stage_len());
  }
  std::vector<std::string> parts{fmt::format("vllm serve {} --trust-remote-code", model_path),
                                 fmt::format("--tensor-parallel-size {}", layout.tp)};
  if (layout.pp > 1) {
    parts.push_back(fmt::format("--pipeline-parallel-size {}", layout.pp));
  }
  if (layout.dp > 1) {
    const int64_t local = std::max<int64_t>(1, std::min(layout.dp, kGpusOfNode / layout.tp));
    parts.push_back(fmt::format("--data-parallel-size {} --data-parallel-size-local {}", layout.dp, local));
    if (local < layout.dp) {
      parts.push_back(
          fmt::format("--data-parallel-address \"$FIRST_NODE\" --data-parallel-rpc-port 13345 "
                      "--data-parallel-start-rank \"$((NODE_RANK * {}))\" $([ \"$NODE_RANK\" = 0 ] || echo --headless)",
                      local));
    }
  }
  if (has_experts_spread) {
    parts.emplace_back("--enable-expert-parallel");
  }
  if (layout.ep > layout.tp) {
    parts.emplace_back("--all2all-backend deepep_low_latency");
  }
  if (rank.eplb) {
    parts.push_back(
        fmt::format("--enable-eplb --eplb-config '{{\"num_redundant_experts\": {}}}'", rank.redundant_experts));
  }
  if (rank.two_batch_overlap) {
    parts.emplace_back("--enable-dbo");
  }
  if (rank.kv_dtype == KvDtype::kFp8) {
    parts.emplace_back("--kv-cache-dtype fp8");
  }
  parts.push_back(fmt::format("--max-num-seqs {}", sequences(deployment)));
  if (!rank.cuda_graph) {
    parts.emplace_back("--enforce-eager");
  }
  return joined(parts);
}

}  // namespace

std::string launch_command(const Deployment& deployment, const std::string& engine, const std::string& model) {
  if (engine == "sglang") {
    if (!deployment.prefill) {
      return sglang_command(deployment, false, repository_of(model));
    }
    return fmt::format("# each of {} prefill workers\n{}# each of {} decode workers\n{}",
                       deployment.prefill->workers,
                       sglang_command(deployment, true, repository_of(model)),
                       deployment.decode.workers,
                       sglang_command(deployment, false, repository_of(model)));
  }
  if (engine == "vllm") {
    return vllm_command(deployment, repository_of(model));
  }
  model::throw_input_error("--emit {}: expected sglang or vllm", model::printable(engine));
}

}  // namespace simulator
