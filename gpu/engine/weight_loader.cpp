#include "gpu/engine/weight_loader.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "gpu/engine/half.hpp"
#include "gpu/engine/workspace.hpp"
#include "model/check.hpp"

namespace gpu {
namespace {

using model::DType;
using model::TensorView;

const std::string kEmbedding = "model.embed_tokens.weight";
const std::string kHead = "lm_head.weight";

int64_t num_blocks(int64_t len) {
  return (len + kScaleBlockLen - 1) / kScaleBlockLen;
}

template <typename T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

// Elements as numbers, for the small tensors.
std::vector<float> floats_of(const TensorView& tensor) {
  const auto values = model::to_double(tensor);
  return {values.begin(), values.end()};
}

// As the kernels read it. BF16: as stored; FP32 where every value is one of BF16. FP16: rounded, as that profile has its weights.
TensorView to_half(DType half, const std::string& name, const TensorView& tensor) {
  if (tensor.dtype == half) {
    return tensor;
  }
  std::vector<uint16_t> codes;
  codes.reserve(static_cast<size_t>(tensor.size()));
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const auto value =
        static_cast<float>(model::decode(tensor.dtype, tensor.bytes.data() + i * model::dtype_bytes(tensor.dtype)));
    codes.push_back(round_to_half(half, value).bits);
    if (half == DType::kBF16 && model::decode_bf16(codes.back()) != value) {
      model::throw_input_error("checkpoint: {} holds {} as {}, which is no BF16 number; the device's kernels read BF16",
                               name,
                               value,
                               model::dtype_name(tensor.dtype));
    }
  }
  return model::make_tensor(half, tensor.shape, std::move(codes));
}

// Copies rows into a larger matrix of zeros, both of elements of `width` bytes.
void place_rows(std::vector<std::byte>& to, int64_t first_row, int64_t columns, int64_t width, const TensorView& from) {
  const int64_t row_bytes = from.row_len() * width;
  for (int64_t row = 0; row < from.num_rows(); ++row) {
    std::memcpy(to.data() + (first_row + row) * columns * width,
                from.bytes.data() + row * row_bytes,
                static_cast<size_t>(row_bytes));
  }
}

// The parts that one of `num_ranks` has of K: all of them cut it into up to eight parts of whole 128-blocks, if they can.
int num_parts_of(int64_t whole_columns, int64_t num_ranks) {
  constexpr int64_t kMostParts = 8;
  const int64_t num_parts = std::gcd(whole_columns / kScaleBlockLen, kMostParts);
  return num_parts % num_ranks == 0 ? static_cast<int>(num_parts / num_ranks) : 1;
}

}  // namespace

WeightLoader::WeightLoader(
    const model::ShardedSource& source, const Shard& shard, DType half, DeviceWeights& weights, MemoryPlan& plan)
    : source_(source), config_(source.config()), shard_(shard), half_(half), plan_(plan), weights_(weights) {
  if (source.has(kEmbedding)) {
    add_matrix(weights.embedding, kEmbedding);
  }
  weights.layers.resize(static_cast<size_t>(config_.num_hidden_layers));
  for (int64_t layer = shard.layers.begin; layer < std::min(shard.layers.end, config_.num_hidden_layers); ++layer) {
    add_layer(weights.layers[static_cast<size_t>(layer)], layer);
  }
  if (!shard.is_last_stage) {
    return;
  }
  add_norm(weights.final_norm, "model.norm.weight");
  weights.head = plain_matrix(config_.tie_word_embeddings ? kEmbedding : kHead);
  if (config_.tie_word_embeddings) {
    aliases_.emplace_back(&weights.head.values, &weights.embedding);
  } else {
    add_matrix(weights.head.values, kHead);
  }
  weights.mtp.resize(static_cast<size_t>(config_.num_nextn_predict_layers));
  for (int64_t k = 0; k < config_.num_nextn_predict_layers; ++k) {
    add_mtp(weights.mtp[static_cast<size_t>(k)], k);
  }
}

// Sizes of a matrix that is never FP8.
LinearWeight WeightLoader::plain_matrix(const std::string& name) const {
  const auto shape = source_.shape(name);
  return {
      .out_dim = shape[0], .in_dim = shape[1], .num_splits = num_splits_of(source_.whole_shape(name)[0], shape[1], 1)};
}

template <typename T>
void WeightLoader::add(
    T*& pointer, int64_t num_parts, int64_t part_len, const std::string& what, std::function<Bytes(int64_t)> pack) {
  plan_.add(pointer, num_parts * part_len, what);
  items_.push_back({[&pointer] { return reinterpret_cast<std::byte*>(pointer); }, num_parts, std::move(pack)});
  all_bytes_ += num_parts * part_len * static_cast<int64_t>(sizeof(T));
}

void WeightLoader::add_norm(half16*& pointer, const std::string& name) {
  add(pointer, 1, model::num_elements(source_.shape(name)), name, [this, name](int64_t) {
    const TensorView tensor = to_half(half_, name, source_.weight(name));
    return Bytes(tensor.bytes.begin(), tensor.bytes.end());
  });
}

void WeightLoader::add_matrix(half16*& pointer, const std::string& name) {
  add_norm(pointer, name);
}

void WeightLoader::add_copy(half16*& pointer,
                            const std::string& name,
                            half16*& original,
                            const std::string& original_name) {
  if (source_.keeps_tensors() && source_.has(original_name) &&
      source_.weight(name).bytes.data() == source_.weight(original_name).bytes.data()) {
    aliases_.emplace_back(&pointer, &original);
  } else {
    add_matrix(pointer, name);
  }
}

void WeightLoader::add_linear(LinearWeight& linear, const std::string& what, const Stack& stack) {
  const auto names = stack.names_of(0);
  const int64_t rows = stack.padded_rows * static_cast<int64_t>(names.size());
  const int64_t columns = stack.padded_columns;
  linear.out_dim = rows;
  linear.in_dim = columns;
  linear.num_groups = static_cast<int>(stack.num_groups);
  const int64_t whole_rows = num_blocks(source_.whole_shape(names[0])[0]) * kScaleBlockLen;
  linear.num_splits = num_splits_of(whole_rows * static_cast<int64_t>(names.size()), columns, linear.num_groups);
  if (stack.num_sharing > 0) {
    const int64_t whole_columns = num_blocks(source_.whole_shape(names[0])[1]) * kScaleBlockLen;
    linear.num_parts =
        columns * stack.num_sharing == whole_columns ? num_parts_of(whole_columns, stack.num_sharing) : 1;
    linear.num_splits =
        std::min(linear.num_parts, static_cast<int>(std::bit_floor(static_cast<unsigned>(linear.num_splits))));
  }
  const bool fp8 = config_.quantization.has_value();
  const auto pack = [this, stack, rows, columns, fp8](int64_t group) {
    const int64_t width = fp8 ? 1 : 2;
    Bytes packed(static_cast<size_t>(rows * columns * width));
    int64_t first_row = 0;
    for (const std::string& name : stack.names_of(group)) {
      const TensorView tensor = source_.weight(name);
      const DType expected = fp8 ? DType::kF8E4M3 : DType::kBF16;
      if (tensor.dtype != expected && (fp8 || tensor.dtype != half_)) {
        model::throw_input_error("checkpoint: {} is stored as {}; the device's kernels read it as {}",
                                 name,
                                 model::dtype_name(tensor.dtype),
                                 model::dtype_name(expected));
      }
      place_rows(packed, first_row, columns, width, fp8 ? tensor : to_half(half_, name, tensor));
      first_row += stack.padded_rows;
    }
    return packed;
  };
  if (!fp8) {
    add(linear.values, stack.num_groups, rows * columns, what, pack);
    return;
  }
  add(linear.codes, stack.num_groups, rows * columns, what, pack);
  const int64_t scale_columns = num_blocks(columns);
  const int64_t scale_rows = num_blocks(stack.padded_rows) * static_cast<int64_t>(names.size());
  add(linear.scales, stack.num_groups, scale_rows * scale_columns, what + "_scale_inv", [this, stack](int64_t group) {
    std::vector<float> scales;
    for (const std::string& name : stack.names_of(group)) {
      const auto of_matrix = floats_of(source_.weight(name + "_scale_inv"));
      scales.insert(scales.end(), of_matrix.begin(), of_matrix.end());
    }
    return bytes_of(scales);
  });
}

void WeightLoader::add_linear(LinearWeight& linear, const std::string& name, int64_t num_sharing) {
  const auto shape = source_.shape(name);
  add_linear(linear,
             name,
             {.names_of = [name](int64_t) { return std::vector{name}; },
              .num_groups = 1,
              .padded_rows = shape[0],
              .padded_columns = shape[1],
              .num_sharing = num_sharing});
}

void WeightLoader::add_mlp(
    MlpWeights& mlp, int64_t dim, const std::string& prefix, int64_t num_sharing, const std::vector<int64_t>* experts) {
  mlp.dim = dim;
  mlp.padded_dim = num_blocks(dim) * kScaleBlockLen;
  const int64_t num_groups = experts != nullptr ? static_cast<int64_t>(experts->size()) : 1;
  const auto name = [prefix, experts](int64_t group, const char* part) {
    return prefix + (experts != nullptr ? std::to_string(experts->at(static_cast<size_t>(group))) + "." : "") + part +
           "_proj.weight";
  };
  add_linear(mlp.gate_up,
             prefix + "gate_up",
             {.names_of =
                  [name](int64_t group) {
                    return std::vector{name(group, "gate"), name(group, "up")};
                  },
              .num_groups = num_groups,
              .padded_rows = mlp.padded_dim,
              .padded_columns = config_.hidden_size});
  add_linear(mlp.down,
             prefix + "down",
             {.names_of = [name](int64_t group) { return std::vector{name(group, "down")}; },
              .num_groups = num_groups,
              .padded_rows = config_.hidden_size,
              .padded_columns = mlp.padded_dim,
              .num_sharing = num_sharing});
}

// The value of an element is BF16(code * scale), or FP16, as the reference's absorbed form takes it.
void WeightLoader::add_absorbed(LayerWeights& layer, const std::string& name) {
  const int64_t heads = shard_.num_heads;
  const int64_t nope = config_.qk_nope_head_dim;
  const int64_t v = config_.v_head_dim;
  const int64_t latent = config_.kv_lora_rank;
  const auto rows_of = [this, name, latent](int64_t begin, int64_t end) {  // dequantised [end - begin, latent]
    const TensorView rows = source_.rows(name, begin, end);
    std::vector<half16> values;
    if (rows.dtype != DType::kF8E4M3) {
      const TensorView halves = to_half(half_, name, rows);
      for (const uint16_t bits : halves.codes<uint16_t>()) {
        values.push_back({bits});
      }
      return values;
    }
    const auto scales = floats_of(source_.weight(name + "_scale_inv"));
    const auto codes = rows.codes<uint8_t>();
    for (int64_t i = 0; i < rows.size(); ++i) {
      const int64_t row = begin + i / latent;
      const float scale =
          scales[static_cast<size_t>(row / kScaleBlockLen * num_blocks(latent) + i % latent / kScaleBlockLen)];
      values.push_back(round_to_half(half_, model::decode_f8_e4m3(codes[static_cast<size_t>(i)]) * scale));
    }
    return values;
  };
  add(layer.w_uk, heads, latent * nope, name + " (keys)", [=](int64_t head) {
    const auto rows = rows_of(head * (nope + v), head * (nope + v) + nope);
    std::vector<half16> transposed(rows.size());
    for (int64_t n = 0; n < nope; ++n) {
      for (int64_t j = 0; j < latent; ++j) {
        transposed[static_cast<size_t>(j * nope + n)] = rows[static_cast<size_t>(n * latent + j)];
      }
    }
    return bytes_of(transposed);
  });
  add(layer.w_uv, heads, v * latent, name + " (values)", [=](int64_t head) {
    return bytes_of(rows_of(head * (nope + v) + nope, (head + 1) * (nope + v)));
  });
}

void WeightLoader::add_layer(LayerWeights& layer, int64_t index) {
  const std::string w = "model.layers." + std::to_string(index) + ".";
  const std::string attn = w + "self_attn.";
  add_norm(layer.attn_norm, w + "input_layernorm.weight");
  if (config_.q_lora_rank) {
    add_linear(layer.q_a.emplace(), attn + "q_a_proj.weight");
    add_norm(layer.q_a_norm, attn + "q_a_layernorm.weight");
    add_linear(layer.q, attn + "q_b_proj.weight");
  } else {
    add_linear(layer.q, attn + "q_proj.weight");
  }
  add_linear(layer.kv_a, attn + "kv_a_proj_with_mqa.weight");
  add_norm(layer.kv_a_norm, attn + "kv_a_layernorm.weight");
  add_linear(layer.kv_b, attn + "kv_b_proj.weight");
  add_absorbed(layer, attn + "kv_b_proj.weight");
  add_linear(layer.o_proj, attn + "o_proj.weight", shard_.tp);
  add_norm(layer.ffn_norm, w + "post_attention_layernorm.weight");
  if (!config_.is_moe_layer(index)) {
    add_mlp(layer.mlp.emplace(), shard_.dense_dim, w + "mlp.", shard_.tp);
    return;
  }
  MoeWeights& moe = layer.moe.emplace();
  moe.router = plain_matrix(w + "mlp.gate.weight");
  add_matrix(moe.router.values, w + "mlp.gate.weight");
  if (config_.has_router_bias()) {
    const std::string bias = w + "mlp.gate.e_score_correction_bias";
    add(moe.bias, 1, config_.n_routed_experts, bias, [this, bias](int64_t) {
      return bytes_of(floats_of(source_.weight(bias)));
    });
  }
  add_mlp(moe.experts,
          shard_.expert_dim,
          w + "mlp.experts.",
          shard_.expert_tp,
          &shard_.experts[static_cast<size_t>(index)]);
  if (config_.n_shared_experts > 0) {
    add_mlp(moe.shared.emplace(), shard_.shared_dim, w + "mlp.shared_experts.", shard_.tp);
  }
}

void WeightLoader::add_mtp(MtpWeights& mtp, int64_t k) {
  const int64_t index = config_.num_hidden_layers + k;
  const std::string w = "model.layers." + std::to_string(index) + ".";
  add_copy(mtp.embedding, w + "embed_tokens.weight", weights_.embedding, kEmbedding);
  add_norm(mtp.enorm, w + "enorm.weight");
  add_norm(mtp.hnorm, w + "hnorm.weight");
  mtp.eh_proj = plain_matrix(w + "eh_proj.weight");
  add_matrix(mtp.eh_proj.values, w + "eh_proj.weight");
  add_layer(mtp.layer, index);
  add_norm(mtp.norm, w + "shared_head.norm.weight");
  mtp.head = plain_matrix(w + "shared_head.head.weight");
  add_copy(mtp.head.values,
           w + "shared_head.head.weight",
           weights_.head.values,
           config_.tie_word_embeddings ? kEmbedding : kHead);
}

void WeightLoader::load(Backend& backend, const OnProgress& on_progress) const {
  for (const auto& [pointer, original] : aliases_) {
    *pointer = *original;
  }
  int64_t done_bytes = 0;
  for (const Item& item : items_) {
    std::byte* to = item.place();
    for (int64_t part = 0; part < item.num_parts; ++part) {
      const Bytes packed = item.pack(part);
      const auto num_bytes = static_cast<int64_t>(packed.size());
      backend.upload(to, packed.data(), num_bytes);
      backend.synchronize();
      to += num_bytes;
      done_bytes += num_bytes;
      if (on_progress) {
        on_progress(done_bytes, all_bytes_);
      }
    }
  }
  CHECK_EQ(done_bytes, all_bytes_);
}

}  // namespace gpu
