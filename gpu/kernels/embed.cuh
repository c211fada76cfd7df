// Rows of the embedding table, or of the part of it that a rank has. Covers the op embed.
#pragma once

#include "gpu/portable/kernel.hpp"
#include "gpu/portable/require.hpp"

namespace gpu {

struct EmbedArguments {
  const int32_t* tokens = nullptr;  // [num_tokens]; an id outside the vocabulary gives a row of NaN
  const half16* table =
      nullptr;            // [num_table_rows, hidden]: rows first_id and on; another known id gives a row of zeros
  half16* out = nullptr;  // [num_tokens, hidden]
  int64_t num_tokens = 0;
  int32_t vocab = 0;
  int32_t first_id = 0;
  int32_t num_table_rows = 0;
  int hidden = 0;    // a multiple of 8
  float factor = 1;  // of the rows; 1: they are copied as they are
};

}  // namespace gpu

namespace gpu::DSV3_BACKEND {

inline constexpr int kEmbedThreads = 128;

// Grid: one block a token. No shared memory. Rows 16-byte aligned. Rounding: BF16(row * factor).
GPU_KERNEL embed_kernel(EmbedArguments arguments) {
  constexpr int kLen = 8;
  const auto token = static_cast<int64_t>(block_idx().x);
  const int32_t id = arguments.tokens[token];
  const bool is_known = id >= 0 && id < arguments.vocab;
  const int32_t row_id = id - arguments.first_id;
  const bool is_here = is_known && row_id >= 0 && row_id < arguments.num_table_rows;
  for (int column = static_cast<int>(thread_idx().x) * kLen; column < arguments.hidden;
       column += kEmbedThreads * kLen) {
    Vector<half16, kLen> row;
    if (is_here) {
      row = load_vector<kLen>(arguments.table + static_cast<int64_t>(row_id) * arguments.hidden + column);
      if (arguments.factor != 1) {
        GPU_UNROLL
        for (int i = 0; i < kLen; ++i) {
          row.at[i] = to_half16(multiply(to_float(row.at[i]), arguments.factor));
        }
      }
    } else {
      GPU_UNROLL
      for (int i = 0; i < kLen; ++i) {
        row.at[i] = is_known ? half16{0} : half16{0x7FFF};
      }
    }
    store_vector<kLen>(arguments.out + token * arguments.hidden + column, row);
  }
}

inline void embed(Stream stream, const EmbedArguments& arguments) {
  require(arguments.hidden > 0 && arguments.hidden % 8 == 0, "embed: hidden has to be a multiple of 8");
  if (arguments.num_tokens > 0) {
    launch(stream,
           {.name = "embed", .grid = {static_cast<unsigned>(arguments.num_tokens)}, .block = {kEmbedThreads}},
           embed_kernel,
           arguments);
  }
}

}  // namespace gpu::DSV3_BACKEND
