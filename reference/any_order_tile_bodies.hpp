// The loop of any_order_tile.hpp, compiled once for each level. The including file has defined, in its anonymous namespace: Vec,
// kVecLen, kRowsOfSums, load, store, every_lane, multiply, add, and fused(a, b, sum) = a * b + sum.
// NOTE: no function of the standard library here (reference/simd/kernels_avx2.cpp says why).

// kRowsOfSums weight rows by kVecs vectors of tokens.
template <int kVecs>
inline void add_sums(const TileProducts& products, int64_t first_row, const float* x, int64_t first_token) {
  Vec sums[kRowsOfSums][kVecs];
#pragma GCC unroll 12
  for (int r = 0; r < kRowsOfSums; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) {
      sums[r][v] = every_lane(0);
    }
  }
  const float* weights = products.weights + first_row * kBlockLen;
  for (int64_t k = 0; k < kBlockLen; ++k) {
    Vec tokens[kVecs];
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) {
      tokens[v] = load(x + (k * kVecs + v) * kVecLen);
    }
#pragma GCC unroll 12
    for (int r = 0; r < kRowsOfSums; ++r) {
      const Vec weight = every_lane(weights[r * kBlockLen + k]);
#pragma GCC unroll 2
      for (int v = 0; v < kVecs; ++v) {
        sums[r][v] = fused(weight, tokens[v], sums[r][v]);
      }
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < kRowsOfSums; ++r) {
    float* totals = products.totals + (first_row + r) * products.num_tokens + first_token;
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) {
      Vec sum = sums[r][v];
      if (products.x_scales != nullptr) {
        const Vec scales = load(products.x_scales + first_token + v * kVecLen);
        sum = multiply(multiply(scales, every_lane(products.w_scales[first_row + r])), sum);
      }
      store(totals + v * kVecLen, add(load(totals + v * kVecLen), sum));
    }
  }
}

template <int kVecs>
inline void add_tile(const TileProducts& products, int64_t first_token) {
  for (int64_t row = 0; row < kTileRows; row += kRowsOfSums) {
    add_sums<kVecs>(products, row, products.x + first_token * kBlockLen, first_token);
  }
}

void add_products(const TileProducts& products) {
  int64_t token = 0;
  for (; token + 2 * kVecLen <= products.num_tokens; token += 2 * kVecLen) {
    add_tile<2>(products, token);
  }
  if (token < products.num_tokens) {
    add_tile<1>(products, token);
  }
}
