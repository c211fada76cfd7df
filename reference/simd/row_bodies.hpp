// Dots of one vector with many rows, and weighted sums of rows: what attention does. Included by kernel_bodies.hpp, inside the
// unnamed namespace of a level.

// Dots of one vector with eight rows a time, each as dot_in_order() takes it.
void dots(const float* x, const float* rows, int64_t stride, int64_t num_rows, int64_t len, float* out) {
  for (int64_t first = 0; first < num_rows; first += kPanelRows) {
    const int64_t count = num_rows - first < kPanelRows ? num_rows - first : kPanelRows;
    float totals[kPanelRows] = {};
    for (int64_t begin = 0; begin < len; begin += kPanelLen) {
      const int64_t block_len = len - begin < kPanelLen ? len - begin : kPanelLen;
      const int64_t whole_len = block_len - block_len % 16;
      Joined joined[kPanelRows] = {};
      for (int64_t r = 0; r < count; ++r) {
        const float* row = rows + (first + r) * stride + begin;
        Vec lanes[kPacks] = {};
        for (int64_t k = 0; k < whole_len; k += 16) {
          for (int64_t p = 0; p < kPacks; ++p) {
            lanes[p] = multiply_add(lanes[p], load(x + begin + k + p * kVecLen), load(row + k + p * kVecLen));
          }
        }
        if (whole_len < block_len) {
          float last_x[16] = {};
          float last_row[16] = {};
          const auto bytes = static_cast<size_t>(block_len - whole_len) * sizeof(float);
          __builtin_memcpy(last_x, x + begin + whole_len, bytes);
          __builtin_memcpy(last_row, row + whole_len, bytes);
          for (int64_t p = 0; p < kPacks; ++p) {
            lanes[p] = multiply_add(lanes[p], load(last_x + p * kVecLen), load(last_row + p * kVecLen));
          }
        }
        joined[r] = join(lanes);
      }
      float sums[kPanelRows];
      finish(joined, sums);
      for (int r = 0; r < kPanelRows; ++r) {
        totals[r] += sums[r];
      }
    }
    __builtin_memcpy(out + first, totals, static_cast<size_t>(count) * sizeof(float));
  }
}

// out[j] += one block's dot of `weights` with column j, for kNumVecs Numbers of kLen columns each:
// every lane stays in registers while its rows are added.
template <typename Number, int64_t kLen, int kNumVecs>
inline void add_weighted_columns(
    const float* weights, int64_t num_rows, const float* rows, int64_t stride, float* out) {
  Number lanes[16][kNumVecs];
  for (int64_t lane = 0; lane < 16; ++lane) {
    Number sums[kNumVecs] = {};
    for (int64_t i = lane; i < num_rows; i += 16) {
#pragma GCC unroll 8
      for (int j = 0; j < kNumVecs; ++j) {
        Number row;
        __builtin_memcpy(&row, rows + i * stride + j * kLen, sizeof(row));
        sums[j] += weights[i] * row;
      }
    }
#pragma GCC unroll 8
    for (int j = 0; j < kNumVecs; ++j) {
      lanes[lane][j] = sums[j];
    }
  }
  for (int distance = 8; distance > 0; distance /= 2) {
    for (int lane = 0; lane < distance; ++lane) {
#pragma GCC unroll 8
      for (int j = 0; j < kNumVecs; ++j) {
        lanes[lane][j] += lanes[lane + distance][j];
      }
    }
  }
#pragma GCC unroll 8
  for (int j = 0; j < kNumVecs; ++j) {
    Number total;
    __builtin_memcpy(&total, out + j * kLen, sizeof(total));
    total += lanes[0][j];
    __builtin_memcpy(out + j * kLen, &total, sizeof(total));
  }
}

void weighted_rows(const float* weights, int64_t num_rows, const float* rows, int64_t stride, int64_t len, float* out) {
  constexpr int kNumVecs = 8;
  constexpr int kColumns = kNumVecs * kVecLen;
  __builtin_memset(out, 0, static_cast<size_t>(len) * sizeof(float));
  for (int64_t begin = 0; begin < num_rows; begin += kPanelLen) {
    const int64_t count = num_rows - begin < kPanelLen ? num_rows - begin : kPanelLen;
    const float* block = rows + begin * stride;
    int64_t j = 0;
    for (; j + kColumns <= len; j += kColumns) {
      add_weighted_columns<Vec, kVecLen, kNumVecs>(weights + begin, count, block + j, stride, out + j);
    }
    for (; j + kVecLen <= len; j += kVecLen) {
      add_weighted_columns<Vec, kVecLen, 1>(weights + begin, count, block + j, stride, out + j);
    }
    for (; j < len; ++j) {
      add_weighted_columns<float, 1, 1>(weights + begin, count, block + j, stride, out + j);
    }
  }
}
