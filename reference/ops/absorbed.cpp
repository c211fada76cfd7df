#include "reference/ops/absorbed.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <type_traits>

#include "reference/numerics/reduce.hpp"
#include "reference/ops/latent_rows.hpp"
#include "reference/ops/weighted_rows.hpp"
#include "reference/panel_matmul.hpp"
#include "reference/parallel.hpp"
#include "reference/tokens.hpp"
#include "reference/value_weights.hpp"
#include "reference/values.hpp"
#include "reference/weight_matrix.hpp"

namespace reference {
namespace {

// Rows [first, first + count) of W_kvb as exact mode sees them. [count, kv_lora]
std::vector<double> kv_b_rows(const WeightMatrix& kv_b, int64_t first, int64_t count) {
  std::vector<double> rows;
  std::vector<float> row(static_cast<size_t>(kv_b.in_dim()));
  for (int64_t r = first; r < first + count; ++r) {
    kv_b.row(r, row);
    rows.insert(rows.end(), row.begin(), row.end());
  }
  return rows;
}

// Column `column` of a row-major matrix with `row_len` columns, rows [first, first + out.size()).
template <typename T>
void copy_column(const std::vector<T>& matrix, int64_t row_len, int64_t first, int64_t column, std::vector<T>& out) {
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = matrix[static_cast<size_t>((first + static_cast<int64_t>(i)) * row_len + column)];
  }
}

std::vector<double> exact_query_latent(const OpCall& call, const WeightMatrix& kv_b) {
  const auto& c = call.config();
  const int64_t tokens = call.inputs[0].num_rows();
  const int64_t heads = c.num_attention_heads;
  const auto q = load<double>(call.inputs[0]);
  std::vector<double> y(static_cast<size_t>(tokens * heads * c.kv_lora_rank));
  parallel_for(heads, call.num_threads, [&](int64_t head) {
    const auto w_uk = kv_b_rows(kv_b, head * (c.qk_nope_head_dim + c.v_head_dim), c.qk_nope_head_dim);
    std::vector<double> column(static_cast<size_t>(c.qk_nope_head_dim));
    for (int64_t j = 0; j < c.kv_lora_rank; ++j) {
      copy_column(w_uk, c.kv_lora_rank, 0, j, column);
      for (int64_t t = 0; t < tokens; ++t) {
        const std::span<const double> q_nope(q.data() + (t * heads + head) * c.qk_head_dim(), column.size());
        y[static_cast<size_t>((t * heads + head) * c.kv_lora_rank + j)] = dot_in_order<double>(q_nope, column);
      }
    }
  });
  return y;
}

std::vector<double> exact_context(const OpCall& call, const WeightMatrix& kv_b) {
  const auto& c = call.config();
  const int64_t tokens = call.inputs[0].num_rows();
  const int64_t heads = c.num_attention_heads;
  const auto o_latent = load<double>(call.inputs[0]);
  std::vector<double> y(static_cast<size_t>(tokens * heads * c.v_head_dim));
  parallel_for(heads, call.num_threads, [&](int64_t head) {
    const auto w_uv = kv_b_rows(kv_b, head * (c.qk_nope_head_dim + c.v_head_dim) + c.qk_nope_head_dim, c.v_head_dim);
    for (int64_t t = 0; t < tokens; ++t) {
      const std::span<const double> latent(o_latent.data() + (t * heads + head) * c.kv_lora_rank,
                                           static_cast<size_t>(c.kv_lora_rank));
      for (int64_t v = 0; v < c.v_head_dim; ++v) {
        y[static_cast<size_t>((t * heads + head) * c.v_head_dim + v)] =
            dot_in_order<double>(latent, std::span<const double>(w_uv.data() + v * c.kv_lora_rank, latent.size()));
      }
    }
  });
  return y;
}

// W_UK of a head in 16 bits [nope, kv_lora]. True if its products fit a float.
bool read_w_uk(const OpCall& call, const WeightMatrix& kv_b, int64_t head, std::vector<float>& w_uk) {
  const auto& c = call.config();
  w_uk.resize(static_cast<size_t>(c.qk_nope_head_dim * c.kv_lora_rank));
  const int64_t first_row = head * (c.qk_nope_head_dim + c.v_head_dim);
  bool has_exact_products = true;
  for (int64_t first = 0; first < c.kv_lora_rank; first += kBlockLen) {
    const int64_t len = std::min<int64_t>(kBlockLen, c.kv_lora_rank - first);
    const bool exact = kv_b.read_rows(
        half_form(call.rules.half), first_row, c.qk_nope_head_dim, first, len, w_uk.data() + first, c.kv_lora_rank);
    has_exact_products = has_exact_products && exact;
  }
  return has_exact_products;
}

// Row m: its elements from `first` + m * `stride` on.
void set_rows(BlockedRows& rows, const model::TensorView& tensor, int64_t first, int64_t stride) {
  thread_local std::vector<float> row;
  row.resize(static_cast<size_t>(rows.len()));
  for (int64_t m = 0; m < rows.num_rows(); ++m) {
    load_part(tensor, first + m * stride, row);
    rows.set(m, row);
  }
}

}  // namespace

void query_latent(const OpCall& call, model::TensorView& result) {
  const auto& c = call.config();
  const MatrixOf fetched(call);
  const WeightMatrix& kv_b = fetched.matrix();
  const int64_t tokens = call.inputs[0].num_rows();
  const int64_t heads = c.num_attention_heads;
  if (call.flops != nullptr) {
    *call.flops += 2 * tokens * heads * c.qk_nope_head_dim * c.kv_lora_rank;
  }
  const std::array<int64_t, 3> shape{tokens, heads, c.kv_lora_rank};
  if (call.rules.exact()) {
    return store(result, shape, exact_query_latent(call, kv_b), call.rules.half);
  }
  Reused<float> y(static_cast<size_t>(Extents(shape).num_elements()));
  const int threads = threads_for(tokens * heads * c.qk_nope_head_dim * c.kv_lora_rank, call.num_threads);
  parallel_for(heads, threads, [&](int64_t head) {
    thread_local std::vector<float> w_uk;  // [nope, kv_lora]; kept, so that a step allocates nothing for it
    const bool has_exact_products = read_w_uk(call, kv_b, head, w_uk);
    const int64_t first = head * c.qk_head_dim();
    const int64_t stride = heads * c.qk_head_dim();
    float* out = y.data() + head * c.kv_lora_rank;
    if (tokens <= simd::kFewTokens) {
      thread_local std::vector<float> q_nope;
      q_nope.resize(static_cast<size_t>(c.qk_nope_head_dim));
      for (int64_t t = 0; t < tokens; ++t) {
        load_part(call.inputs[0], first + t * stride, q_nope);
        weighted_rows<float>(q_nope,
                             w_uk.data(),
                             c.kv_lora_rank,
                             std::span<float>(out + t * heads * c.kv_lora_rank, static_cast<size_t>(c.kv_lora_rank)));
      }
      return;
    }
    // Rows of W_UK are summands here, so a panel holds columns of it.
    const float* summands = w_uk.data();
    const auto read = [&](const PanelPlace& place, const PanelPlace&, Panel& panel) {
      panel.has_exact_products = has_exact_products;
      for (int64_t k = 0; k < place.len; ++k) {
        const float* row = summands + (place.block * simd::kPanelLen + k) * c.kv_lora_rank + place.first_row;
        for (int64_t r = 0; r < place.num_rows; ++r) {
          panel.values[static_cast<size_t>(r * simd::kPanelLen + k)] = row[r];
        }
      }
    };
    BlockedRows q_nope(tokens, c.qk_nope_head_dim);
    set_rows(q_nope, call.inputs[0], first, stride);
    panel_product(q_nope, c.kv_lora_rank, std::cref(read), call.rules.association, 1, out, heads * c.kv_lora_rank);
  });
  store(result, shape, std::move(y), call.rules.half);
}

void output_latent(const OpCall& call, model::TensorView& result) {
  const auto& c = call.config();
  const auto places = token_places(call.workload);
  const int64_t heads = c.num_attention_heads;
  const int64_t max_keys = call.inputs[0].shape.back();
  if (call.flops != nullptr) {
    *call.flops += 2 * call.workload.num_visible_pairs() * heads * c.kv_lora_rank;
  }
  with_arithmetic(call.rules.exact(), [&]<typename T>() {
    auto probs = load<T>(call.inputs[0]);
    const auto cache = latent_rows<T>(call);
    if constexpr (std::is_same_v<T, float>) {
      round_weights(call.rules, places, heads, max_keys, probs);
    }
    Reused<T> y(places.size() * static_cast<size_t>(heads * c.kv_lora_rank));
    const int threads = threads_for(call.workload.num_visible_pairs() * heads * c.kv_lora_rank, call.num_threads);
    parallel_for(static_cast<int64_t>(places.size()) * heads, threads, [&](int64_t row) {
      const TokenPlace& place = places[static_cast<size_t>(row / heads)];
      const std::span<const T> p(probs.data() + row * max_keys, static_cast<size_t>(place.num_visible()));
      weighted_rows<T>(
          p,
          cache.data() + place.first_key_row * c.latent_dim(),
          c.latent_dim(),
          std::span(y).subspan(static_cast<size_t>(row * c.kv_lora_rank), static_cast<size_t>(c.kv_lora_rank)));
    });
    store(result, {static_cast<int64_t>(places.size()), heads, c.kv_lora_rank}, std::move(y), call.rules.half);
  });
}

void context_from_latent(const OpCall& call, model::TensorView& result) {
  const auto& c = call.config();
  const MatrixOf fetched(call);
  const WeightMatrix& kv_b = fetched.matrix();
  const int64_t tokens = call.inputs[0].num_rows();
  const int64_t heads = c.num_attention_heads;
  const int64_t head_rows = c.qk_nope_head_dim + c.v_head_dim;
  if (call.flops != nullptr) {
    *call.flops += 2 * tokens * heads * c.kv_lora_rank * c.v_head_dim;
  }
  const std::array<int64_t, 2> shape{tokens, heads * c.v_head_dim};
  if (call.rules.exact()) {
    return store(result, shape, exact_context(call, kv_b), call.rules.half);
  }
  Reused<float> y(static_cast<size_t>(Extents(shape).num_elements()));
  const int threads = threads_for(tokens * heads * c.kv_lora_rank * c.v_head_dim, call.num_threads);
  parallel_for(heads, threads, [&](int64_t head) {
    BlockedRows latent(tokens, c.kv_lora_rank);
    set_rows(latent, call.inputs[0], head * c.kv_lora_rank, heads * c.kv_lora_rank);
    panel_matmul(latent,
                 kv_b,
                 {.first = head * head_rows + c.qk_nope_head_dim, .count = c.v_head_dim},
                 half_form(call.rules.half),
                 call.rules.association,
                 1,
                 y.data() + head * c.v_head_dim,
                 heads * c.v_head_dim);
  });
  store(result, shape, std::move(y), call.rules.half);
}

}  // namespace reference
