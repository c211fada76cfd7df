#include "gpu/engine/observer.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "gpu/engine/half.hpp"
#include "gpu/kernels/fp8_cache.cuh"

namespace gpu {
namespace {

std::vector<uint16_t> decode_half16_row(const std::vector<std::byte>& stored) {
  std::vector<uint16_t> row(stored.size() / sizeof(uint16_t));
  std::memcpy(row.data(), stored.data(), stored.size());
  return row;
}

// A row of gpu/kernels/fp8_cache.cuh as attention reads it.
std::vector<uint16_t> decode_fp8_row(const std::vector<std::byte>& stored,
                                     int64_t latent,
                                     int64_t row_len,
                                     model::DType half) {
  std::vector<uint16_t> row(static_cast<size_t>(row_len));
  for (int64_t i = 0; i < latent; ++i) {
    float scale = 0;
    std::memcpy(&scale, stored.data() + latent + i / kScaleBlockLen * int64_t{sizeof(float)}, sizeof(scale));
    const float code = model::decode_f8_e4m3(static_cast<uint8_t>(stored[static_cast<size_t>(i)]));
    row[static_cast<size_t>(i)] = round_to_half(half, code * scale).bits;
  }
  const size_t rope_bytes = static_cast<size_t>(row_len - latent) * sizeof(uint16_t);
  std::memcpy(row.data() + latent, stored.data() + latent + kFp8CacheScaleBytes, rope_bytes);
  return row;
}

}  // namespace

void Observer::enter_step(const model::ModelConfig& config,
                          const model::Workload& workload,
                          std::span<const StepSequence> sequences,
                          model::Probe* probe,
                          std::vector<OpTime>* times) {
  probe_ = probe;
  times_ = times;
  sequences_ = sequences;
  config_ = &config;
  ops_.clear();
  if (probe != nullptr) {
    const bool is_idle =
        workload.sequences.empty();  // then the rank has nothing but what others' tokens do in its experts
    model::Workload listed = workload;
    if (is_idle) {
      listed.sequences = {{0, 1}};
    }
    for (model::Op& op : model::op_list(config, listed)) {
      if (is_idle && op.num_parts == 1) {
        continue;
      }
      if (model::is_cut_over_tensor_ranks(op) && op.kind != model::OpKind::kHead) {  // the engine joins the logits
        op.shape[1] /= op.num_parts > 1 ? shard_.expert_tp : shard_.tp;
      }
      if (shard_.has_share_of(op)) {
        op.shape[0] = shard_.share(op.shape[0]).count;
      }
      std::string id = op.id;
      ops_.emplace(std::move(id), std::move(op));
    }
  }
}

void Observer::leave_step() {
  probe_ = nullptr;
  times_ = nullptr;
}

bool Observer::wants(const std::string& id) const {
  if (probe_ == nullptr) {
    return false;
  }
  const auto op = ops_.find(id);
  return op != ops_.end() && probe_->wants(op->second);
}

model::TensorView Observer::download_bytes(const std::byte* data,
                                           int64_t stride_bytes,
                                           model::DType dtype,
                                           model::Shape shape) {
  auto bytes = std::make_shared<std::vector<std::byte>>(
      static_cast<size_t>(model::num_elements(shape) * model::dtype_bytes(dtype)));
  const int64_t num_rows = shape.front();
  const int64_t row_bytes = num_rows == 0 ? 0 : static_cast<int64_t>(bytes->size()) / num_rows;
  if (stride_bytes == 0 || stride_bytes == row_bytes) {
    backend_.download(bytes->data(), data, static_cast<int64_t>(bytes->size()));
  } else {
    for (int64_t row = 0; row < num_rows; ++row) {
      backend_.download(bytes->data() + row * row_bytes, data + row * stride_bytes, row_bytes);
    }
  }
  return {dtype, std::move(shape), *bytes, bytes};
}

model::TensorView Observer::download(const half16* data, int64_t num_rows, int64_t row_len, int64_t row_stride) {
  return download_bytes(
      reinterpret_cast<const std::byte*>(data), row_stride * int64_t{sizeof(half16)}, half_, {num_rows, row_len});
}

model::TensorView Observer::sum(const half16* a, const half16* b, int64_t num_rows, int64_t row_len) {
  const model::TensorView left = download(a, num_rows, row_len);
  const model::TensorView right = download(b, num_rows, row_len);
  const auto number = [&](const model::TensorView& tensor, int64_t i) {
    return static_cast<float>(model::decode(half_, tensor.bytes.data() + i * int64_t{sizeof(half16)}));
  };
  std::vector<float> sums;
  for (int64_t i = 0; i < left.size(); ++i) {
    sums.push_back(number(left, i) + number(right, i));
  }
  return model::make_tensor(model::DType::kF32, left.shape, std::move(sums));
}

std::vector<int32_t> Observer::download(const int32_t* data, int64_t count) {
  std::vector<int32_t> values(static_cast<size_t>(count));
  backend_.download(values.data(), data, count * int64_t{sizeof(int32_t)});
  return values;
}

void Observer::show_bytes(const std::string& id, const std::byte* data, int64_t stride_bytes, model::DType dtype) {
  if (wants(id)) {
    const model::Op& op = ops_.at(id);
    probe_->see(op, download_bytes(data, stride_bytes, dtype, op.shape));
  }
}

void Observer::show(const std::string& id, const model::TensorView& value) {
  if (wants(id)) {
    probe_->see(ops_.at(id), value);
  }
}

void Observer::show_cache(const std::string& layer,
                          const std::string& cache_id,
                          const LatentCache& cache,
                          size_t index) {
  const std::string key_id = layer + ".attn.k_rope";
  if (!wants(cache_id) && !wants(key_id)) {
    return;
  }
  const int64_t latent = config_->kv_lora_rank;
  const int64_t row_len = config_->latent_dim();
  std::vector<uint16_t> all;  // of every sequence
  std::vector<uint16_t> new_keys;
  for (const auto& [num_cached, num_new, prefills, pages] : sequences_) {
    for (int64_t position = 0; position < num_cached + num_new; ++position) {
      const int64_t slot = pages[static_cast<size_t>(position / kPageRows)] * kPageRows + position % kPageRows;
      std::vector<std::byte> stored(static_cast<size_t>(cache.row_bytes));
      backend_.download(stored.data(), cache.pages[index] + slot * cache.row_bytes, cache.row_bytes);
      const auto row = cache.is_fp8 ? decode_fp8_row(stored, latent, row_len, half_) : decode_half16_row(stored);
      all.insert(all.end(), row.begin(), row.end());
      if (position >= num_cached) {
        new_keys.insert(new_keys.end(), row.begin() + latent, row.end());
      }
    }
  }
  const auto show_rows = [&](const std::string& id, std::vector<uint16_t>& codes) {
    if (wants(id)) {
      show(id, model::make_tensor(half_, ops_.at(id).shape, std::move(codes)));
    }
  };
  show_rows(key_id, new_keys);
  show_rows(cache_id, all);
}

void Observer::show_expert(const std::string& id, int64_t expert, std::vector<ExpertRow> rows) {
  const auto op = ops_.find(id);
  if (op == ops_.end() || rows.empty()) {
    return;
  }
  model::Op part = model::expert_part(op->second, expert);
  part.shape.front() = static_cast<int64_t>(rows.size());
  if (!probe_->wants(part)) {
    return;
  }
  std::ranges::sort(rows, {}, &ExpertRow::token);
  const auto row_len = static_cast<size_t>(part.shape.back());
  std::vector<uint16_t> codes(rows.size() * row_len);
  for (size_t row = 0; row < rows.size(); ++row) {
    backend_.download(codes.data() + row * row_len, rows[row].data, static_cast<int64_t>(row_len * sizeof(uint16_t)));
  }
  probe_->see(part, model::make_tensor(half_, part.shape, std::move(codes)));
}

void Observer::time(const std::string& id, const std::function<void()>& launches) {
  const auto us_since = [](auto from) {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - from).count();
  };
  backend_.synchronize();
  const double start_us = us_since(origin_);
  launches();
  backend_.synchronize();
  times_->push_back({id, start_us, us_since(origin_) - start_us});
}

}  // namespace gpu
