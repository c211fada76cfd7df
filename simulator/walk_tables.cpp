#include "simulator/walk_tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "simulator/layout.hpp"

namespace simulator {
namespace {

constexpr double kMillion = 1e6;
constexpr double kBillion = 1e9;

int64_t held_bytes(const model::ParallelPlan& plan, int64_t rank) {
  int64_t bytes = 0;
  for (const model::TensorSlice& slice : plan.slices(rank)) {
    const auto tensor_idx = static_cast<size_t>(slice.tensor_idx);
    const model::CatalogTensor& tensor = plan.tensors[tensor_idx];
    bytes += model::num_elements(tensor.shape) / plan.splits[tensor_idx].degree * model::dtype_bytes(tensor.dtype);
  }
  return bytes;
}

Table deployment_table(const WalkTables& from, std::span<const Floor> floors) {
  double ops_us = 0;
  double links_us = 0;
  for (size_t i = 0; i < floors.size(); ++i) {
    (from.walk.steps[i].collective == Collective::kNone ? ops_us : links_us) += floors[i].time_us;
  }
  const int64_t rank_bytes = held_bytes(from.plan, 0);
  const StepShape& shape = from.walk.shape;
  const model::ParallelLayout& layout = from.plan.layout;
  Table table{.name = "deployment",
              .title = fmt::format("{} step on {} GPUs, {}",
                                   shape.phase == Phase::kDecode ? "Decode" : "Prefill",
                                   layout.num_ranks(),
                                   from.hardware.title),
              .columns = {{"phase", "phase"},
                          {"layout", "layout"},
                          {"num_gpus", "GPUs"},
                          {"sequences_per_dp_rank", "sequences of a DP rank"},
                          {"new_tokens_per_sequence", "new tokens of a sequence"},
                          {"cached_tokens_per_sequence", "cached tokens of a sequence"},
                          {"tokens_per_dp_rank", "tokens of a DP rank"},
                          {"tokens_global", "tokens of all"},
                          {"rank0_weight_bytes", "weights held by rank 0, MTP included", "GB", kBillion, 2},
                          {"gpu_memory_gb", "memory of a GPU", "GB", 1, 0},
                          {"weights_fit", "do the weights fit"},
                          {"ops_floor_us", "floor of the ops, one after another", "us", 1, 1},
                          {"collectives_floor_us", "floor of the collectives", "us", 1, 1},
                          {"time_us", "predicted time of the step", "us", 1, 1},
                          {"ops_time_us", "  of it ops", "us", 1, 1},
                          {"collectives_time_us", "  collectives", "us", 1, 1},
                          {"waiting_us", "  waiting for the slowest rank", "us", 1, 1},
                          {"engine_us", "  engine", "us", 1, 1},
                          {"predicted_by", "predicted by"}},
              .is_record = true};
  std::vector<Cell> times(5);
  if (from.times) {
    double ops_time_us = 0;
    double links_time_us = 0;
    for (size_t i = 0; i < floors.size(); ++i) {
      (from.walk.steps[i].collective == Collective::kNone ? ops_time_us : links_time_us) += from.times->time_us[i];
    }
    double waiting_us = 0;
    double engine_us = 0;
    for (const StepShares::Rest& rest : from.times->rest) {
      (rest.part == StepPart::kWaiting ? waiting_us : engine_us) += rest.time_us;
    }
    times = {ops_time_us + links_time_us + waiting_us + engine_us, ops_time_us, links_time_us, waiting_us, engine_us};
  }
  table.add({std::string(shape.phase == Phase::kDecode ? "decode" : "prefill"),
             layout_text(layout),
             layout.num_ranks(),
             shape.num_sequences,
             shape.num_new,
             shape.num_cached,
             shape.num_tokens(),
             shape.num_tokens() * layout.dp,
             rank_bytes,
             from.hardware.memory_gb.value,
             std::string(static_cast<double>(rank_bytes) < from.hardware.memory_gb.value * kBillion ? "yes" : "no"),
             ops_us,
             links_us,
             times[0],
             times[1],
             times[2],
             times[3],
             times[4],
             from.predicted_by});
  return table;
}

// "[256, 2048] over 32 experts" for a grouped op.
std::string shape_text(const model::Shape& shape, int64_t num_parts) {
  return num_parts > 1 ? fmt::format("{} over {} experts", model::shape_text(shape), num_parts)
                       : model::shape_text(shape);
}

std::vector<Cell> step_cells(
    const WalkStep& step, const Floor& floor, const Cell& time, const std::string& id, const Cell& layers) {
  const bool is_op = step.collective == Collective::kNone;
  return {id,
          layers,
          step.kind,
          step.stage,
          shape_text(step.global_shape, step.global_parts),
          shape_text(step.rank_shape, step.rank_parts),
          std::string(model::dtype_name(step.dtype)),
          is_op ? Cell(step.global_weight_bytes) : Cell(),
          is_op ? Cell(step.rank_weight_bytes) : Cell(),
          is_op ? Cell(step.rank_read_bytes) : Cell(),
          is_op ? Cell(step.rank_kv_bytes) : Cell(),
          is_op ? Cell(step.global_flops) : Cell(),
          is_op ? Cell(step.rank_flops) : Cell(),
          is_op ? Cell() : Cell(step.group_len),
          is_op ? Cell() : Cell(step.rank_wire_bytes),
          time,
          step.is_optional ? Cell() : Cell(floor.time_us),
          std::string(bound_name(floor.bound))};
}

// Steps [begin, end) of one layer.
struct LayerSpan {
  size_t begin = 0;
  size_t end = 0;
  int64_t layer = -1;
};

std::vector<LayerSpan> layer_spans(const std::vector<WalkStep>& steps) {
  std::vector<LayerSpan> spans;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (spans.empty() || steps[i].layer != spans.back().layer) {
      spans.push_back({.begin = i, .end = i, .layer = steps[i].layer});
    }
    spans.back().end = i + 1;
  }
  return spans;
}

// "layer.3.attn.q_a" and "cache.3.latent" without the number.
std::string id_in_layer(const WalkStep& step) {
  const std::string layer = fmt::format("layer.{}.", step.layer);
  const std::string cache = fmt::format("cache.{}.", step.layer);
  if (step.id.starts_with(layer)) {
    return step.id.substr(layer.size());
  }
  return step.id.starts_with(cache) ? "cache." + step.id.substr(cache.size()) : step.id;
}

std::string layer_text(int64_t layer) {
  return layer < 0 ? "" : std::to_string(layer);
}

Table steps_table(const WalkTables& from, std::span<const Floor> floors) {
  const auto megabytes = [](const char* key, const char* heading) {
    return Column{.key = key, .heading = heading, .unit = "MB", .divisor = kMillion, .decimals = 3, .blank_zero = true};
  };
  const bool one_stage = from.plan.layout.pp == 1;
  Table table{.name = "walk",
              .title =
                  "Every op in order, as one rank has it (GPU with most experts; routing uniform). "
                  "Time: predicted, a module's shared out over its ops. Floor: the hardware's limit",
              .columns = {{"op", "op"},
                          {"layer", from.merge_layers ? "layers" : "layer"},
                          {.key = "kind", .heading = "kind", .is_hidden = true},
                          {.key = "stage", .heading = "stage", .is_hidden = one_stage},
                          {"global_shape", "global shape"},
                          {"rank_shape", "shape on a rank"},
                          {"dtype", "dtype"},
                          megabytes("global_weight_bytes", "weights: all"),
                          megabytes("rank_weight_bytes", "rank"),
                          megabytes("rank_read_bytes", "read"),
                          megabytes("rank_kv_bytes", "cache"),
                          {"global_flops", "FLOPs: all", "GFLOP", kBillion, 3, false, true},
                          {"rank_flops", "rank", "GFLOP", kBillion, 3, false, true},
                          {"group_ranks", "group", "ranks"},
                          {"rank_wire_bytes", "rank sends", "KiB", 1024, 1},
                          {"time_us", "time", "us", 1, 2, false, true},
                          {"floor_us", "floor", "us", 1, 2, false, true},
                          {"bound", "bound"}}};
  const auto& steps = from.walk.steps;
  std::vector<std::vector<Cell>> previous;
  size_t previous_row = 0;
  int64_t first_layer = -1;
  for (const LayerSpan& span : layer_spans(steps)) {
    std::vector<std::vector<Cell>> rows;
    for (size_t i = span.begin; i < span.end; ++i) {
      const Cell time = from.times && from.times->is_covered[i] ? Cell(from.times->time_us[i]) : Cell();
      rows.push_back(from.merge_layers
                         ? step_cells(steps[i], floors[i], time, id_in_layer(steps[i]), layer_text(span.layer))
                         : step_cells(steps[i], floors[i], time, steps[i].id, span.layer));
    }
    const auto same = [](const std::vector<Cell>& left, const std::vector<Cell>& right) {
      return left.front() == right.front() && std::equal(left.begin() + 2, left.end(), right.begin() + 2, right.end());
    };
    if (from.merge_layers && span.layer > 0 && std::ranges::equal(rows, previous, same)) {
      for (size_t row = previous_row; row < table.rows.size(); ++row) {
        table.rows[row][1] = fmt::format("{}-{}", first_layer, span.layer);
      }
      continue;
    }
    previous_row = table.rows.size();
    first_layer = span.layer;
    for (const std::vector<Cell>& row : rows) {
      table.add(row);
    }
    previous = std::move(rows);
  }
  return table;
}

Table hardware_table(const Hardware& hardware) {
  Table table{.name = "hardware",
              .title = fmt::format("{}: limits and where they come from", hardware.title),
              .columns = {{"figure", "figure"}, {"value", "value"}, {"source", "source"}}};
  const auto add = [&](const char* name, const Figure& figure) {
    table.add({std::string(name), figure.value, figure.source});
  };
  add("bf16_dense_tflops", hardware.bf16_dense_tflops);
  if (hardware.fp8_dense_tflops) {
    add("fp8_dense_tflops", *hardware.fp8_dense_tflops);
  }
  add("memory_gb", hardware.memory_gb);
  add("memory_gb_per_s", hardware.memory_gb_per_s);
  add("nvlink_gb_per_s", hardware.nvlink_gb_per_s);
  add("nvlink_domain_gpus", hardware.nvlink_domain_gpus);
  add("nic_gb_per_s", hardware.nic_gb_per_s);
  return table;
}

}  // namespace

std::vector<Table> walk_tables(const WalkTables& from) {
  const std::vector<Floor> floors = walk_floors(from.walk, from.plan.config, from.hardware);
  return {deployment_table(from, floors), steps_table(from, floors), hardware_table(from.hardware)};
}

}  // namespace simulator
