#include "simulator/silicon.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <utility>

#include "model/check.hpp"
#include "model/printable.hpp"
#include "simulator/alltoall_validation.hpp"
#include "simulator/csv_table.hpp"
#include "simulator/layout.hpp"

namespace simulator {
namespace {

// Benchmarks draw lengths evenly between 80 and 100 % of the nominal one (random-range-ratio 0.8 of the InferenceX scripts).
constexpr double kMeanLength = 0.9;

// One row by column name.
class Row {
 public:
  Row(const CsvTable& table, const CsvRow& row) : table_(table), row_(row) {}

  [[nodiscard]] std::string text(const std::string& column) const {
    const auto found = std::ranges::find(table_.columns, column);
    return found == table_.columns.end() ? "" : row_.cells[static_cast<size_t>(found - table_.columns.begin())];
  }

  // Empty when there is no such cell or it is empty.
  [[nodiscard]] std::optional<double> number(const std::string& column) const {
    const std::string cell = text(column);
    if (cell.empty()) {
      return std::nullopt;
    }
    double value = 0;
    const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    if (error != std::errc() || end != cell.data() + cell.size() || !(value >= 0) || value > 1e12) {
      refuse(fmt::format("{} is '{}', expected a number of at least 0", column, model::printable(cell)));
    }
    return value;
  }

  [[nodiscard]] double positive(const std::string& column) const {
    const std::optional<double> value = number(column);
    if (!value || *value <= 0) {
      refuse(fmt::format("{} is '{}', expected a number above 0", column, model::printable(text(column))));
    }
    return *value;
  }

  [[nodiscard]] int64_t degree(const std::string& column) const {
    constexpr double kMost = 1 << 16;
    const double value = number(column).value_or(1);
    if (value > kMost || value != static_cast<double>(static_cast<int64_t>(value))) {
      refuse(fmt::format("{} is '{}', expected a whole number", column, model::printable(text(column))));
    }
    return std::max<int64_t>(1, static_cast<int64_t>(value));
  }

  [[noreturn]] void refuse(const std::string& what) const {
    model::throw_input_error("{}:{}: {}", table_.path, row_.line, what);
  }

 private:
  const CsvTable& table_;
  const CsvRow& row_;
};

// "h100_sxm", "B200", "GB200 NVL72", "H20-3e": by what the name holds.
std::string gpu_of(const Row& row) {
  const std::string system = row.text("system");
  try {
    return hardware_of_gpu_name(system);
  } catch (const model::InputError&) {
    row.refuse(fmt::format("system is '{}', expected a name with one of {} in it, like h200_sxm",
                           model::printable(system),
                           built_in_hardware_names()));
  }
}

std::string in_lower_case(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// "sglang", "trtllm", "dynamo-trt", "vllm_v1": by what the name holds.
std::string engine_of(const Row& row) {
  const std::string backend = in_lower_case(row.text("backend"));
  for (const auto& [part, engine] : {std::pair{"sglang", "sglang"}, {"trt", "trtllm"}, {"vllm", "vllm"}}) {
    if (backend.find(part) != std::string::npos) {
      return engine;
    }
  }
  row.refuse(fmt::format("backend is '{}', expected a name with sglang, trt or vllm in it", model::printable(backend)));
}

enum class Mtp { kOff, kSuspected, kOn };

// "off_inferred", "off", "": off. "suspect_on". "on", "inferred_on", ...
Mtp mtp_of(const Row& row) {
  const std::string status = in_lower_case(row.text("mtp_status"));
  if (status.find("suspect") != std::string::npos) {
    return Mtp::kSuspected;
  }
  return status == "on" || status.ends_with("_on") || status.starts_with("on_") || status == "true" || status == "1"
             ? Mtp::kOn
             : Mtp::kOff;
}

// Drafts and their acceptance where a row says no more than that MTP is on: three drafts as TensorRT-LLM measured them on R1 (accepted
// lengths 1.92, 2.58 and 2.82; tech blog 1) or SGLang (2.18 and 2.44 for two and three; LMSYS, July 2025, the first one assumed), one as
// vLLM has it (pull request 12755).
std::vector<double> usual_acceptance(const std::string& engine) {
  if (engine == "trtllm") {
    return {0.92, 0.717, 0.364};
  }
  return engine == "sglang" ? std::vector<double>{0.74, 0.595, 0.59} : std::vector<double>{0.82};
}

// What tp, dp and ep mean in the file: tp counts all ranks of one attention group, dp the groups.
model::ParallelLayout layout_of(int64_t tp, int64_t pp, int64_t dp, int64_t ep) {
  model::ParallelLayout layout{.tp = tp, .ep = ep, .pp = pp, .dp = dp};
  const int64_t ranks = tp * dp;
  // Labels of the experts' split are not to be trusted (README of the measurements, trap 2): with attention over dp groups they are
  // spread over all ranks, which is what engines do by default.
  if (dp > 1) {
    layout.ep = ranks;
  }
  if (layout.ep > ranks || ranks % layout.ep != 0) {
    layout.ep = tp;
  }
  return layout;
}

// Where the ranks of attention are not those of the experts but tp alone is, tp counts the ranks of all dp groups (SGLang's spelling).
int64_t tp_of_group(int64_t tp, int64_t dp, int64_t expert_ranks) {
  return tp * dp != expert_ranks && tp == expert_ranks && tp % dp == 0 ? tp / dp : tp;
}

model::ParallelLayout aggregated_layout(const Row& row, int64_t nvlink_domain_gpus) {
  const int64_t dp = row.degree("attention_dp_size");
  const int64_t ep = row.degree("moe_ep_size");
  const int64_t moe_tp = row.degree("moe_tp_size");
  const int64_t tp = tp_of_group(row.degree("tp_size"), dp, ep * moe_tp);
  // Flags compare with a node of 8; a rack that is one NVLink domain may well be one worker.
  const std::string flag = nvlink_domain_gpus >= std::max(tp, dp) ? "" : row.text("encoding_flag");
  constexpr int64_t kNode = 8;
  if (flag.find("8-GPU node") != std::string::npos || (!flag.empty() && std::max(tp, dp) == 64)) {
    return layout_of(dp > 1 ? 1 : kNode, 1, dp > 1 ? kNode : 1, kNode);
  }
  constexpr int64_t kMostTp = 32;
  if (tp > kMostTp || 128 % tp != 0) {
    return layout_of(1, 1, tp * dp, tp * dp);  // heads do not divide: attention cannot be over tp
  }
  return layout_of(tp, row.degree("pp_size"), dp, std::max(ep, tp * dp / std::max<int64_t>(1, moe_tp)));
}

RankLayout rank_layout(const model::ParallelLayout& layout, const model::ModelConfig& config, const Row& row) {
  RankLayout rank{.layout = layout,
                  .kv_dtype = in_lower_case(row.text("kv_dtype")).starts_with("fp8") ? KvDtype::kFp8 : KvDtype::kBf16};
  const int64_t over = config.n_routed_experts % layout.ep;
  rank.redundant_experts = over == 0 ? 0 : layout.ep - over;
  rank.eplb = rank.redundant_experts > 0;
  const std::string date = row.text("measured_at");
  rank.early_engine = !date.empty() && date < "2026";
  if (mtp_of(row) != Mtp::kOff) {
    rank.mtp_depth = static_cast<int64_t>(usual_acceptance(engine_of(row)).size());
  }
  return rank;
}

SiliconRow parse_row(const Row& row, int64_t line, const model::ModelConfig& config) {
  SiliconRow silicon{.id = row.text("id"),
                     .gpu = gpu_of(row),
                     .backend = row.text("backend"),
                     .phase = in_lower_case(row.text("mode")),
                     .line = line,
                     .deployment = {},
                     .tpot_ms = row.positive("tpot_ms")};
  Deployment& deployment = silicon.deployment;
  deployment.config = config;
  deployment.hardware = load_hardware(silicon.gpu);
  deployment.engine = load_engine(engine_of(row));
  if (silicon.phase == "disagg") {
    const auto pool = [&](const std::string& side) {
      const int64_t dp = row.degree(side + "_attention_dp_size");
      const int64_t ep = row.degree(side + "_moe_ep_size");
      const int64_t expert_ranks = ep * row.degree(side + "_moe_tp_size");
      const auto layout = layout_of(tp_of_group(row.degree(side + "_tp_size"), dp, expert_ranks), 1, dp, ep);
      return Pool{.rank = rank_layout(layout, config, row), .workers = row.degree(side + "_num_workers")};
    };
    deployment.decode = pool("decode");
    deployment.prefill = pool("prefill");
  } else if (silicon.phase == "agg") {
    deployment.decode = {
        .rank = rank_layout(
            aggregated_layout(row, static_cast<int64_t>(deployment.hardware.nvlink_domain_gpus.value)), config, row)};
  } else {
    row.refuse(fmt::format("mode is '{}', expected agg or disagg", model::printable(silicon.phase)));
  }
  deployment.memory_frac = 0.97;  // the row ran: whatever was left was enough
  deployment.workload = {.prompt_tokens = kMeanLength * row.positive("isl_tokens"),
                         .answer_tokens = kMeanLength * row.positive("osl_tokens"),
                         .concurrency = row.positive("concurrency")};
  if (mtp_of(row) != Mtp::kOff) {
    deployment.workload.acceptance = usual_acceptance(deployment.engine.name);
  }
  return silicon;
}

}  // namespace

SiliconRows read_silicon(const std::filesystem::path& path, bool with_suspects) {
  const CsvTable table = read_csv(path);
  for (const char* column : {"system", "backend", "mode", "isl_tokens", "osl_tokens", "concurrency", "tpot_ms"}) {
    if (std::ranges::find(table.columns, column) == table.columns.end()) {
      model::throw_input_error(
          "{}: expected a column {} (those of e2e_tpot_b200_b300_gb200_fp8.csv)", table.path, column);
    }
  }
  const model::ModelConfig config = model::built_in_config("deepseek-v3");
  SiliconRows result;
  int64_t num_suspect = 0;
  int64_t num_other_precision = 0;
  for (const CsvRow& cells : table.rows) {
    const Row row(table, cells);
    if (!with_suspects && mtp_of(row) == Mtp::kSuspected) {
      ++num_suspect;
      continue;
    }
    if (const std::string precision = in_lower_case(row.text("precision"));
        !precision.empty() && !precision.starts_with("fp8")) {
      ++num_other_precision;
      continue;
    }
    result.rows.push_back(parse_row(row, cells.line, config));
  }
  if (num_suspect > 0) {
    result.skip_reasons.push_back(
        fmt::format("{} rows whose mtp_status is suspect_on: nobody knows whether MTP was on", num_suspect));
  }
  if (num_other_precision > 0) {
    result.skip_reasons.push_back(fmt::format("{} rows whose precision is not fp8", num_other_precision));
  }
  result.num_skipped = num_suspect + num_other_precision;
  if (result.rows.empty()) {
    model::throw_input_error("{}: no row to hold the model against", table.path);
  }
  return result;
}

}  // namespace simulator
