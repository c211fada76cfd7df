#include "gpu/engine/engine.hpp"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "gpu/engine/rotation.hpp"
#include "gpu/kernels/fp8_cache.cuh"
#include "gpu/kernels/latent_attention.cuh"
#include "model/check.hpp"

namespace gpu {
namespace {

static_assert(kPageRows == emulated::kPageLen);

int64_t next_power_of_two(int64_t count, int64_t limit) {
  return std::min<int64_t>(limit, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(count))));
}

int64_t num_splits(int64_t num_keys, int pages_per_split) {
  return (num_keys + kPageRows * pages_per_split - 1) / (kPageRows * pages_per_split);
}

model::Workload workload_of(const StepInput& input, const MtpInput* mtp) {
  model::Workload workload;

  workload.attention_form = model::AttentionForm::kAbsorbed;
  for (const StepSequence& sequence : input.sequences) {
    workload.sequences.push_back({sequence.num_cached, sequence.num_new});
    if (sequence.prefills) {
      workload.attention_form = model::AttentionForm::kExpanded;
    }
  }
  if (mtp != nullptr) {
    workload.only_mtp_layer = mtp->layer;
  }
  return workload;
}

// Micro-batch b of n: consecutive sequences with their tokens and head rows.
StepInput micro_batch(const StepInput& input, int64_t b, int64_t n) {
  const auto first_of = [&](int64_t part) { return static_cast<int64_t>(input.sequences.size()) * part / n; };
  StepInput part;
  int64_t first_row = 0;
  for (int64_t s = 0; s < first_of(b); ++s) {
    first_row += input.sequences[static_cast<size_t>(s)].num_new;
  }
  int64_t end_row = first_row;
  for (int64_t s = first_of(b); s < first_of(b + 1); ++s) {
    part.sequences.push_back(input.sequences[static_cast<size_t>(s)]);
    end_row += part.sequences.back().num_new;
  }
  part.tokens.assign(input.tokens.begin() + first_row, input.tokens.begin() + end_row);
  for (const int32_t row : input.head_rows) {
    if (row >= first_row && row < end_row) {
      part.head_rows.push_back(static_cast<int32_t>(row - first_row));
    }
  }
  return part;
}

}  // namespace

Engine::Engine(const model::WeightSource& source, std::unique_ptr<Backend> backend, const EngineOptions& options)
    : config_(source.config()), options_(options), backend_(std::move(backend)) {
  if (config_.quantization &&
      (config_.quantization->block_rows != kScaleBlockLen || config_.quantization->block_cols != kScaleBlockLen)) {
    model::throw_input_error("the device's kernels read FP8 weights with scales of 128 x 128 blocks, not {} x {}",
                             config_.quantization->block_rows,
                             config_.quantization->block_cols);
  }
  const model::ParallelPlan layout = model::parallel_plan(config_, options.layout, options.expert_of_slot);
  CHECK_EQ(layout.layout.num_ranks(), options.world != nullptr ? options.world->size() : 1);
  shard_ = shard_of(layout, rank());
  const model::ShardedSource own_weights(source, layout, rank());
  MemoryPlan plan;
  plan.enter_group("weights");
  const WeightLoader loader(own_weights, shard_, backend_->half(), weights_, plan);
  plan.enter_group("latent cache");
  if (options.fp8_cache && !has_fp8_cache(config_.kv_lora_rank, config_.qk_rope_head_dim)) {
    model::throw_input_error("the device's kernels cannot run this model: {}", kFp8CacheWidths);
  }
  cache_.is_fp8 = options.fp8_cache;
  cache_.row_bytes = options.fp8_cache ? fp8_cache_row_bytes(static_cast<int>(config_.kv_lora_rank),
                                                             static_cast<int>(config_.qk_rope_head_dim))
                                       : config_.latent_dim() * int64_t{sizeof(half16)};
  cache_.pages.resize(static_cast<size_t>(config_.num_hidden_layers + config_.num_nextn_predict_layers));
  for (int64_t layer = shard_.layers.begin; layer < shard_.layers.end; ++layer) {
    plan.add(cache_.pages[static_cast<size_t>(layer)],
             options.num_pages * kPageRows * cache_.row_bytes,
             "cache." + std::to_string(layer));
  }
  plan.enter_group("workspace");
  const bool packs_experts = config_.quantization && backend_->has_wgmma();
  const bool by_kernels = options.exchanges_by_kernels && shard_.num_exchanging() > 1 && shard_.expert_tp == 1 &&
                          config_.n_routed_experts > 0;
  workspace_ = std::make_unique<Workspace>(config_, shard_, weights_, options.limits, packs_experts, by_kernels, plan);
  if (options.links != nullptr && !by_kernels && shard_.num_exchanging() > 1 && config_.n_routed_experts > 0) {
    model::throw_input_error(
        "layout: ep {} below tp {} cuts experts, whose parts GPUs do not exchange: expected at least ep {}",
        shard_.ep,
        shard_.tp,
        shard_.tp);
  }
  std::unique_ptr<PeerExchange> peers;
  if (by_kernels) {
    peers =
        std::make_unique<PeerExchange>(layout, shard_, shard_.share_len(options.limits.max_rows), *workspace_, plan);
  }
  if (options.on_plan) {
    options.on_plan(plan.text());
  }
  plan.allocate(*backend_);
  if (options.world != nullptr) {
    ranks_ = connect(*options.world, options.links, layout, workspace_->max_expert_rows, std::move(peers), *backend_);
  }

  observer_ = std::make_unique<Observer>(*backend_, shard_);
  forward_ = std::make_unique<Forward>(config_,
                                       shard_,
                                       ranks_,
                                       weights_,
                                       *workspace_,
                                       cache_,
                                       options_.limits,
                                       options.ue8m0_scales ? ScaleFormat::kUe8m0 : ScaleFormat::kFp32,
                                       stream_units(config_, options.scaled_stream),
                                       *backend_,
                                       *observer_);
  try {  // A step of no rows asks every launcher whether its kernel can have these sizes.
    forward_->run_main({});
    for (int64_t k = 0; k < config_.num_nextn_predict_layers; ++k) {
      forward_->run_mtp(k, workspace_->main_state, {});
    }
  } catch (const ArgumentError& error) {
    model::throw_input_error("the device's kernels cannot run this model: {}", error.what());
  }
  const auto rotations = rotation_table(config_, options.limits.num_rotations(config_));
  backend_->upload(workspace_->rotations, rotations.data(), static_cast<int64_t>(rotations.size() * sizeof(float)));
  if (ranks_.exchange) {
    std::vector<int32_t> slots(static_cast<size_t>(options.limits.max_rows * config_.num_experts_per_tok));
    std::iota(slots.begin(), slots.end(), 0);
    backend_->upload(workspace_->returned_slots, slots.data(), static_cast<int64_t>(slots.size() * sizeof(int32_t)));
    backend_->synchronize();
  }
  if (workspace_->arrivals_len > 0) {
    backend_->clear(workspace_->arrivals, workspace_->arrivals_len * int64_t{sizeof(int32_t)});
  }
  backend_->synchronize();
  loader.load(*backend_, options.on_progress);
}

void Engine::check_input(const StepInput& input) const {
  const StepLimits& limits = options_.limits;
  int64_t num_rows = 0;
  int64_t num_prefill_keys = 0;
  bool prefills = false;
  for (const StepSequence& sequence : input.sequences) {
    CHECK(sequence.num_new >= 1 && sequence.num_cached + sequence.num_new <= limits.max_len);
    CHECK(static_cast<int64_t>(sequence.pages.size()) * kPageRows >= sequence.num_cached + sequence.num_new);
    CHECK(sequence.prefills || (!prefills && sequence.num_new <= limits.max_decode_rows));
    prefills = sequence.prefills;
    num_rows += sequence.num_new;
    num_prefill_keys += prefills ? sequence.num_cached + sequence.num_new : 0;
  }
  CHECK(num_prefill_keys <= limits.max_prefill_keys);
  CHECK_EQ(num_rows, static_cast<int64_t>(input.tokens.size()));
  CHECK((num_rows >= 1 || options_.layout.dp > 1 || options_.num_micro_batches > 1) && num_rows <= limits.max_rows);
  CHECK(static_cast<int64_t>(input.sequences.size()) <= limits.max_sequences);
  CHECK(static_cast<int64_t>(input.head_rows.size()) <= limits.max_head_rows);
}

StepShape Engine::shape_of(const StepInput& input, bool padded, int64_t first_row, int64_t first_head_row) const {
  const StepLimits& limits = options_.limits;
  StepShape shape{.num_rows = static_cast<int64_t>(input.tokens.size()),
                  .num_head_rows = static_cast<int64_t>(input.head_rows.size()),
                  .first_row = first_row,
                  .first_head_row = first_head_row};
  for (const StepSequence& sequence : input.sequences) {
    const int64_t num_keys = sequence.num_cached + sequence.num_new;
    if (sequence.prefills) {
      ++shape.num_prefilling;
      shape.max_prefill_new = std::max(shape.max_prefill_new, sequence.num_new);
      shape.num_prefill_keys += num_keys;
    } else {
      ++shape.num_decoding;
      shape.num_decode_rows += sequence.num_new;
      shape.num_decode_splits += num_splits(num_keys, limits.pages_per_split);
    }
  }
  if (padded) {
    shape.num_rows = next_power_of_two(shape.num_rows, limits.max_rows - first_row);
    shape.num_decode_rows = shape.num_rows;
    shape.num_head_rows = next_power_of_two(shape.num_head_rows, limits.max_head_rows - first_head_row);
    shape.num_decoding = next_power_of_two(shape.num_decoding, limits.max_sequences);
    shape.num_decode_splits = shape.num_decoding * limits.max_splits();
  }
  return shape;
}

// Padding: tokens -1, whose rows become NaN and are written nowhere; sequences without keys and without rows.
// An MTP layer of depth k reads the token k + 1 places on and rotates by that token's position.
void Engine::upload(const StepInput& input, const MtpInput* mtp, const StepShape& shape) {
  const int64_t positions_ahead = mtp != nullptr ? mtp->layer + 1 : 0;
  Staging& s = staging_;
  s = {};
  s.first_token = {0};
  s.first_key_row = {0};
  const auto slot_of = [](const StepSequence& sequence, int64_t position) {
    return sequence.pages[static_cast<size_t>(position / kPageRows)] * kPageRows + position % kPageRows;
  };
  const auto max_pages = static_cast<size_t>(options_.limits.max_pages());
  for (const StepSequence& sequence : input.sequences) {
    for (int64_t position = sequence.num_cached; position < sequence.num_cached + sequence.num_new; ++position) {
      s.positions.push_back(static_cast<int32_t>(position + positions_ahead));
      s.slots.push_back(slot_of(sequence, position));
    }
    if (sequence.prefills) {
      for (int64_t position = 0; position < sequence.num_cached + sequence.num_new; ++position) {
        s.key_slots.push_back(slot_of(sequence, position));
      }
      s.first_key_row.push_back(static_cast<int32_t>(s.key_slots.size()));
      s.first_key.push_back(0);
    }
    s.num_keys.push_back(static_cast<int32_t>(sequence.num_cached + sequence.num_new));
    s.first_token.push_back(static_cast<int32_t>(s.first_token.back() + sequence.num_new));
    const size_t row = s.block_table.size();
    s.block_table.insert(s.block_table.end(),
                         sequence.pages.begin(),
                         sequence.pages.begin() + static_cast<int64_t>(std::min(max_pages, sequence.pages.size())));
    s.block_table.resize(row + max_pages, -1);
  }
  s.tokens = input.tokens;
  if (mtp != nullptr) {
    s.state_rows = mtp->state_rows;
    s.state_rows.resize(static_cast<size_t>(shape.num_rows), -1);
  }
  s.head_rows = input.head_rows;
  const auto rows = static_cast<size_t>(shape.num_rows);
  s.tokens.resize(rows, -1);
  s.positions.resize(rows, 0);
  s.slots.resize(rows, -1);
  s.head_rows.resize(static_cast<size_t>(shape.num_head_rows), -1);
  const size_t num_sequences = static_cast<size_t>(shape.num_decoding + shape.num_prefilling);
  s.num_keys.resize(num_sequences, 0);
  s.first_token.resize(num_sequences + 1, s.first_token.back());
  s.block_table.resize(num_sequences * max_pages, -1);
  const auto send = [&](auto* to, const auto& values) {
    if (!values.empty()) {
      backend_->upload(to, values.data(), static_cast<int64_t>(values.size() * sizeof(values[0])));
    }
  };
  send(workspace_->tokens, s.tokens);
  send(workspace_->positions, s.positions);
  send(workspace_->slots, s.slots);
  send(workspace_->block_table, s.block_table);
  send(workspace_->num_keys, s.num_keys);
  send(workspace_->first_token, s.first_token);
  send(workspace_->key_slots, s.key_slots);
  send(workspace_->first_key_row, s.first_key_row);
  send(workspace_->first_key, s.first_key);
  send(workspace_->state_rows, s.state_rows);
  send(workspace_->head_rows, s.head_rows);
}

void Engine::launch(
    const StepInput& input, const MtpInput* mtp, const Watch& watch, int64_t first_row, int64_t first_head_row) {
  check_input(input);
  const bool is_watched = watch.probe != nullptr || watch.times != nullptr;
  const bool captured = options_.use_graphs && !is_watched &&
                        std::ranges::none_of(input.sequences, [](const StepSequence& s) { return s.prefills; });
  const StepShape shape = shape_of(input, captured, first_row, first_head_row);
  backend_->synchronize();  // the device has read the last step's inputs
  upload(input, mtp, shape);
  const auto launch_all = [&] {
    if (mtp == nullptr) {
      forward_->run_main(shape);
    } else {
      forward_->run_mtp(mtp->layer, mtp->reads_main_state ? workspace_->main_state : workspace_->mtp_state, shape);
    }
  };
  if (captured) {
    std::vector<int64_t> kind;
    if (mtp != nullptr) {
      kind = {mtp->layer, mtp->reads_main_state ? 1 : 0};
    }
    auto graph = graphs_.find({kind, shape});
    if (graph == graphs_.end()) {
      backend_->begin_capture();
      launch_all();
      graph = graphs_.emplace(std::pair(std::move(kind), shape), backend_->end_capture()).first;
    }
    backend_->replay(graph->second);
    return;
  }
  observer_->enter_step(config_, workload_of(input, mtp), input.sequences, watch.probe, watch.times);
  launch_all();
  observer_->leave_step();
}

void Engine::finish(const StepInput& input) {
  num_head_rows_ = static_cast<int64_t>(input.head_rows.size());
  if (options_.world != nullptr) {
    backend_->synchronize();
  }
}

void Engine::run_main(const StepInput& input, const Watch& watch) {
  const int64_t num_parts = watch.probe != nullptr ? 1 : options_.num_micro_batches;
  CHECK(std::ranges::is_sorted(input.head_rows));
  int64_t first_row = 0;
  int64_t first_head_row = 0;
  for (int64_t b = 0; b < num_parts; ++b) {
    const StepInput part = micro_batch(input, b, num_parts);
    launch(part, nullptr, watch, first_row, first_head_row);
    first_row += static_cast<int64_t>(part.tokens.size());
    first_head_row += static_cast<int64_t>(part.head_rows.size());
  }
  finish(input);
}

void Engine::run_mtp(const MtpInput& mtp, const StepInput& input, const Watch& watch) {
  CHECK_EQ(mtp.state_rows.size(), input.tokens.size());
  launch(input, &mtp, watch);
  finish(input);
}

std::vector<float> Engine::logits() {
  std::vector<float> values(static_cast<size_t>(num_head_rows_ * config_.vocab_size));
  if (ranks_.pp) {
    ranks_.pp->broadcast(
        workspace_->logits, static_cast<int64_t>(values.size()), comm::Element::kF32, ranks_.pp->size() - 1);
  }
  backend_->download(values.data(), workspace_->logits, static_cast<int64_t>(values.size() * sizeof(float)));
  return values;
}

std::vector<int32_t> Engine::sample(std::span<const SamplerRow> rows,
                                    std::span<const uint8_t> is_in_prompt,
                                    std::span<const int32_t> num_generated) {
  CHECK_EQ(static_cast<int64_t>(rows.size()), num_head_rows_);
  const auto send = [&](auto* to, auto values) {
    backend_->upload(to, values.data(), static_cast<int64_t>(values.size_bytes()));
  };
  send(workspace_->sampler_rows, rows);
  if (!num_generated.empty()) {
    send(workspace_->is_in_prompt, is_in_prompt);
    send(workspace_->num_generated, num_generated);
  }
  if (shard_.is_last_stage) {
    backend_->launch(SamplerArguments{.logits = workspace_->logits,
                                      .rows = workspace_->sampler_rows,
                                      .is_in_prompt = num_generated.empty() ? nullptr : workspace_->is_in_prompt,
                                      .num_generated = num_generated.empty() ? nullptr : workspace_->num_generated,
                                      .weights = workspace_->sampler_weights,
                                      .tokens = workspace_->sampled,
                                      .num_rows = num_head_rows_,
                                      .vocab = config_.vocab_size});
  }
  if (ranks_.pp) {
    ranks_.pp->broadcast(workspace_->sampled, num_head_rows_, comm::Element::kI32, ranks_.pp->size() - 1);
  }
  std::vector<int32_t> tokens(rows.size());
  backend_->download(tokens.data(), workspace_->sampled, static_cast<int64_t>(tokens.size() * sizeof(int32_t)));
  return tokens;
}

bool Engine::on_any_rank(bool mine) const {
  int32_t count = mine ? 1 : 0;
  if (options_.world != nullptr) {
    options_.world->all_reduce(&count, &count, 1, comm::Element::kI32);
  }
  return count > 0;
}

void Engine::keep_states(std::span<const int32_t> from, std::span<const int32_t> to) {
  CHECK_EQ(from.size(), to.size());
  for (size_t i = 0; i < from.size() && shard_.is_last_stage; ++i) {
    CHECK(to[i] >= options_.limits.first_kept_state() && to[i] < options_.limits.num_state_rows());
    half16* const states = workspace_->main_state;
    backend_->copy(states + to[i] * config_.hidden_size,
                   states + from[i] * config_.hidden_size,
                   config_.hidden_size * int64_t{sizeof(half16)});
  }
}

void Engine::copy_pages(std::span<const int32_t> from, std::span<const int32_t> to) {
  CHECK_EQ(from.size(), to.size());
  const int64_t page_bytes = kPageRows * cache_.row_bytes;
  for (int64_t layer = shard_.layers.begin; layer < shard_.layers.end; ++layer) {
    std::byte* const pages = cache_.pages[static_cast<size_t>(layer)];
    for (size_t i = 0; i < from.size(); ++i) {
      backend_->copy(pages + to[i] * page_bytes, pages + from[i] * page_bytes, page_bytes);
    }
  }
}

}  // namespace gpu
