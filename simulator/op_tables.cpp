#include "simulator/op_tables.hpp"

#include <map>
#include <string>
#include <utility>

#include "model/check.hpp"
#include "simulator/calibration_sources.hpp"
#include "simulator/op_work.hpp"

namespace simulator {
namespace {

// Whether a table of experts or attention, which are of DeepSeek-V3, is about this model.
bool has_shapes_of(OpFamily family, const model::ModelConfig& config, const model::ModelConfig& measured) {
  switch (family) {
    case OpFamily::kExperts:
      return config.hidden_size == measured.hidden_size &&
             config.moe_intermediate_size == measured.moe_intermediate_size;
    case OpFamily::kAttentionBf16:
    case OpFamily::kAttentionFp8:
    case OpFamily::kPrefillScores:
      return attention_weights(config, 1) == attention_weights(measured, 1) &&
             config.latent_dim() == measured.latent_dim() && config.qk_head_dim() == measured.qk_head_dim() &&
             config.v_head_dim == measured.v_head_dim;
    default: return true;
  }
}

}  // namespace

std::vector<std::shared_ptr<const OpTable>> load_op_tables(const std::filesystem::path& directory,
                                                           const Hardware& hardware,
                                                           const model::ModelConfig& config) {
  std::error_code error;
  if (!std::filesystem::is_directory(directory, error)) {
    model::throw_input_error("--tables {}: expected a directory of timing tables", directory.string());
  }
  const model::ModelConfig measured = model::built_in_config("deepseek-v3");
  std::map<OpFamily, std::vector<TablePoint>> points;
  std::map<OpFamily, std::string> files;
  bool is_any_there = false;
  for (const CalibrationSource& source : calibration_sources()) {
    const std::filesystem::path path = directory / source.file;
    if (!std::filesystem::exists(path, error)) {
      continue;
    }
    is_any_there = true;
    if (op_axes(source.family).names.empty() || !has_shapes_of(source.family, config, measured)) {
      continue;
    }
    for (const MeasuredRow& row : measured_rows(source, read_timing_table(path), measured)) {
      if (row.gpu == hardware.name) {
        points[source.family].push_back(
            {.axes = row.axes, .work = row.op.work, .time_us = row.op.time_us, .line = row.line});
        files[source.family] = source.file;
      }
    }
  }
  if (!is_any_there) {
    model::throw_input_error("--tables {}: none of the tables that estimates use is there", directory.string());
  }
  std::vector<std::shared_ptr<const OpTable>> tables(kOpFamilies.size());
  for (auto& [family, rows] : points) {
    tables[static_cast<size_t>(family)] =
        std::make_shared<const OpTable>(family, peaks(hardware), std::move(rows), files[family]);
  }
  return tables;
}

std::vector<ChosenFit> with_tables(std::vector<ChosenFit> fits, std::vector<std::shared_ptr<const OpTable>> tables) {
  CHECK_EQ(fits.size(), tables.size());
  for (size_t i = 0; i < fits.size(); ++i) {
    fits[i].table = std::move(tables[i]);
  }
  return fits;
}

}  // namespace simulator
