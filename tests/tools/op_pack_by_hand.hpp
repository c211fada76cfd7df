// Ops computed by hand from the tensors of a pack, in another order than the reference's, or with a fault.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "reference/numerics/bf16.hpp"
#include "reference/quantize.hpp"
#include "reference/values.hpp"
#include "tools/op_pack/pack.hpp"

namespace tools::op_pack {

inline model::TensorView tensor(const OpPack& pack, const std::string& name) {
  const auto found =
      std::find_if(pack.inputs.begin(), pack.inputs.end(), [&](const auto& item) { return item.first == name; });
  return found == pack.inputs.end() ? model::TensorView{} : found->second;
}

inline model::TensorView as_bf16(const std::vector<float>& values, const model::Shape& shape) {
  return reference::store<float>(shape, values, model::DType::kBF16);
}

// The FP8 linear by hand: products from the last to the first, blocks too, scales one after the other.
inline model::TensorView descending_linear(const OpPack& pack, size_t dropped) {
  const auto x = tensor(pack, "x");
  const auto weight = tensor(pack, "weight");
  const auto w = model::to_double(weight);
  const auto scales = model::to_double(tensor(pack, "weight_scale"));
  const auto numbers = reference::load<float>(x);
  const auto k = static_cast<size_t>(x.shape[1]);
  const auto n = static_cast<size_t>(weight.shape[0]);
  const size_t blocks = (k + 127) / 128;
  std::vector<float> y;
  for (size_t m = 0; m < static_cast<size_t>(x.shape[0]); ++m) {
    const auto row = reference::quantize_row({}, std::span<const float>(numbers).subspan(m * k, k));
    for (size_t out = 0; out < n; ++out) {
      float sum = 0;
      for (size_t block = blocks; block-- > 0;) {
        float dot = 0;
        for (size_t i = std::min(k, (block + 1) * 128); i-- > block * 128;) {
          dot += i == dropped ? 0 : row.codes[i] * static_cast<float>(w[out * k + i]);
        }
        sum += dot * row.scales[block] * static_cast<float>(scales[out / 128 * blocks + block]);
      }
      y.push_back(sum);
    }
  }
  return as_bf16(y, {x.shape[0], weight.shape[0]});
}

// RMSNorm by hand with an FP32 sum from the last to the first.
inline model::TensorView descending_norm(const OpPack& pack, size_t dropped) {
  const auto x = reference::load<float>(tensor(pack, "x"));
  const auto gain = reference::load<float>(tensor(pack, "gain"));
  const auto hidden = gain.size();
  std::vector<float> y(x.size());
  for (size_t begin = 0; begin < x.size(); begin += hidden) {
    float squares = 0;
    for (size_t i = hidden; i-- > 0;) {
      squares += i == dropped ? 0 : x[begin + i] * x[begin + i];
    }
    const float inverse = 1 / std::sqrt(squares / static_cast<float>(hidden) + 1e-6f);
    for (size_t i = 0; i < hidden; ++i) {
      y[begin + i] = x[begin + i] * inverse * gain[i];
    }
  }
  return as_bf16(y, tensor(pack, "x").shape);
}

// The absorbed attention core of one sequence by hand, keys and dimensions from the last to the first; without the oldest keys.
inline model::TensorView descending_decode(const OpPack& pack, size_t num_dropped) {
  const auto q_latent = reference::load<float>(tensor(pack, "q_latent"));
  const auto q_rope = reference::load<float>(tensor(pack, "q_rope"));
  const auto cache = reference::load<float>(tensor(pack, "cache"));
  const auto scale = pack.facts.at("softmax_scale").get<float>();
  const auto& shape = pack.outputs[0].stored.shape;
  const auto heads = static_cast<size_t>(shape[1]);
  const auto lora = static_cast<size_t>(shape[2]);
  const size_t rope = q_rope.size() / heads;
  const size_t width = lora + rope;
  const size_t keys = cache.size() / width;
  std::vector<float> y(heads * lora);
  for (size_t head = 0; head < heads; ++head) {
    std::vector<float> p(keys);
    for (size_t key = num_dropped; key < keys; ++key) {
      for (size_t i = width; i-- > 0;) {
        p[key] += cache[key * width + i] * (i < lora ? q_latent[head * lora + i] : q_rope[head * rope + i - lora]);
      }
    }
    const float top = *std::max_element(p.begin() + static_cast<int64_t>(num_dropped), p.end());
    float sum = 0;
    for (size_t key = keys; key-- > num_dropped;) {
      p[key] = std::exp((p[key] - top) * scale);
      sum += p[key];
    }
    for (size_t i = 0; i < lora; ++i) {
      for (size_t key = keys; key-- > num_dropped;) {
        y[head * lora + i] += reference::round_to_bf16(p[key] / sum) * cache[key * width + i];
      }
    }
  }
  return as_bf16(y, shape);
}

}  // namespace tools::op_pack
