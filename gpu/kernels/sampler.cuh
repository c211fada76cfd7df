// The next token from logits, as model/sampling.hpp describes it: penalties, then the largest, or temperature, min-p, top-k, top-p and
// a draw. Nothing is sorted: the filters find their threshold by narrowing down an interval of bit patterns. All in FP64.
#pragma once

#include "gpu/kernels/philox.cuh"
#include "gpu/portable/kernel.hpp"
#include "gpu/portable/require.hpp"

namespace gpu {

// One row's wishes; fields as in model::Sampling and model::DrawPlace.
struct SamplerRow {
  double temperature = 0;
  double top_p = 1;
  double min_p = 0;
  double repetition_penalty = 1;
  double presence_penalty = 0;
  double frequency_penalty = 0;
  int64_t top_k = 0;
  uint64_t seed = 0;
  int64_t request = 0;
  int64_t position = 0;
  uint32_t draw = 0;
};

struct SamplerArguments {
  const float* logits = nullptr;     // [num_rows, vocab]
  const SamplerRow* rows = nullptr;  // [num_rows]
  const uint8_t* is_in_prompt =
      nullptr;  // [num_rows, vocab]: 1 for tokens of the prompt; null: none has a repetition penalty
  const int32_t* num_generated =
      nullptr;                // [num_rows, vocab]: how often each token was generated; null: no penalties at all
  double* weights = nullptr;  // [num_rows, vocab]: workspace
  int32_t* tokens = nullptr;  // [num_rows]
  int64_t num_rows = 0;
  int64_t vocab = 0;
};

}  // namespace gpu

namespace gpu::DSV3_BACKEND {

inline constexpr int kSamplerThreads = 256;
inline constexpr int kProbes = 7;  // thresholds tried in one pass over the vocabulary: 3 bits

struct SamplerShared {
  double values[kSamplerThreads];
  int64_t ids[kSamplerThreads];
  double sums[kProbes][kSamplerThreads];
  double all;
  double above[kProbes];
};

// A row of the vocabulary, cut into as many runs of neighbouring ids as there are threads.
struct SamplerSlice {
  int64_t begin;
  int64_t end;
};

GPU_DEVICE double penalised_logit(const SamplerArguments& arguments, const SamplerRow& wish, int64_t row, int64_t id) {
  const int64_t at = row * arguments.vocab + id;
  double logit = static_cast<double>(arguments.logits[at]);
  if (arguments.num_generated == nullptr) {
    return logit;
  }
  const int32_t count = arguments.num_generated[at];
  const bool was_seen = count > 0 || (arguments.is_in_prompt != nullptr && arguments.is_in_prompt[at] != 0);
  if (was_seen && wish.repetition_penalty != 1) {
    logit = logit > 0 ? logit / wish.repetition_penalty : logit * wish.repetition_penalty;
  }
  if (count > 0) {
    logit = logit - wish.frequency_penalty * static_cast<double>(count);
    logit = logit - wish.presence_penalty;
  }
  return logit;
}

// The smallest t, as bits, for which what lies above t amounts to less than `limit`: counted (by_count), or summed. Positive FP64
// numbers are ordered as their bits. Weights are in [0, 1].
GPU_DEVICE double threshold_of(
    const double* weights, const SamplerSlice& slice, double limit, bool by_count, SamplerShared& shared) {
  const int thread = static_cast<int>(thread_idx().x);
  int64_t low = -1;                    // too much lies above, as far as known; -1: above nothing at all
  int64_t high = bits_of_double(1.0);  // nothing lies above 1
  while (high - low > 1) {
    const int64_t step = (high - low + kProbes) / (kProbes + 1);
    double above[kProbes] = {};
    for (int64_t id = slice.begin; id < slice.end; ++id) {
      const double weight = weights[id];
      const int64_t bits = bits_of_double(weight);
      for (int i = 0; i < kProbes; ++i) {
        above[i] = above[i] + (bits > low + step * (i + 1) ? (by_count ? 1.0 : weight) : 0.0);
      }
    }
    for (int i = 0; i < kProbes; ++i) {
      shared.sums[i][thread] = above[i];
    }
    sync_threads();
    if (thread < kProbes) {
      double sum = 0;
      for (int i = 0; i < kSamplerThreads; ++i) {
        sum = sum + shared.sums[thread][i];
      }
      shared.above[thread] = sum;
    }
    sync_threads();
    int64_t next_low = low;
    int64_t next_high = high;
    for (int i = kProbes - 1; i >= 0; --i) {
      const int64_t probe = low + step * (i + 1);
      if (probe < high) {
        if (shared.above[i] < limit) {
          next_high = probe;
        } else {
          next_low = next_low < probe ? probe : next_low;
        }
      }
    }
    low = next_low;
    high = next_high;
  }
  return double_of_bits(high);
}

// What a thread's slice amounts to, and the sum of the slices before it.
struct SliceSums {
  double before;
  double all;
};
GPU_DEVICE SliceSums scan_slices(double mine, SamplerShared& shared) {
  const int thread = static_cast<int>(thread_idx().x);
  shared.values[thread] = mine;
  sync_threads();
  if (thread == 0) {
    double sum = 0;
    for (double& value : shared.values) {
      const double of_thread = value;
      value = sum;
      sum = sum + of_thread;
    }
    shared.all = sum;
  }
  sync_threads();
  return {shared.values[thread], shared.all};  // nobody writes either before the barrier of the next scan
}

// Keeps, largest first and ties by ascending id, what comes before the sum reaches top_p of it all.
GPU_DEVICE void keep_top_p(double top_p, double* weights, const SamplerSlice& slice, SamplerShared& shared) {
  double mine = 0;
  for (int64_t id = slice.begin; id < slice.end; ++id) {
    mine = mine + weights[id];
  }
  const double limit = top_p * scan_slices(mine, shared).all;
  const double threshold = threshold_of(weights, slice, limit, false, shared);
  double above = 0;
  double num_ties = 0;
  for (int64_t id = slice.begin; id < slice.end; ++id) {
    above = above + (weights[id] > threshold ? weights[id] : 0);
    num_ties = num_ties + (weights[id] == threshold ? 1 : 0);
  }
  const double all_above = scan_slices(above, shared).all;
  double ties_before = scan_slices(num_ties, shared).before;
  for (int64_t id = slice.begin; id < slice.end; ++id) {
    if (weights[id] == threshold) {
      weights[id] = all_above + ties_before * threshold < limit ? threshold : 0;
      ties_before = ties_before + 1;
    } else if (weights[id] < threshold) {
      weights[id] = 0;
    }
  }
}

// Grid: one block a row. Shared memory: SamplerShared. Order of sums: a thread's ids ascending, then threads ascending.
GPU_KERNEL sampler_kernel(SamplerArguments arguments) {
  SamplerShared& shared = *shared_memory_as<SamplerShared>();
  const auto row = static_cast<int64_t>(block_idx().x);
  const int thread = static_cast<int>(thread_idx().x);
  const SamplerRow& wish = arguments.rows[row];
  const int64_t slice_len = (arguments.vocab + kSamplerThreads - 1) / kSamplerThreads;
  SamplerSlice slice{thread * slice_len, (thread + 1) * slice_len};
  slice.begin = slice.begin < arguments.vocab ? slice.begin : arguments.vocab;
  slice.end = slice.end < arguments.vocab ? slice.end : arguments.vocab;

  double most = -INFINITY;
  int64_t best = arguments.vocab;
  for (int64_t id = slice.begin; id < slice.end; ++id) {
    const double logit = penalised_logit(arguments, wish, row, id);
    if (logit > most || best == arguments.vocab) {
      most = logit;
      best = id;
    }
  }
  shared.values[thread] = most;
  shared.ids[thread] = best;
  sync_threads();
  if (thread == 0) {
    for (int i = 1; i < kSamplerThreads; ++i) {
      if (shared.ids[i] < arguments.vocab && shared.values[i] > shared.values[0]) {
        shared.values[0] = shared.values[i];
        shared.ids[0] = shared.ids[i];
      }
    }
  }
  sync_threads();
  most = shared.values[0];
  best = shared.ids[0];
  sync_threads();
  if (wish.temperature == 0) {
    if (thread == 0) {
      arguments.tokens[row] = static_cast<int32_t>(best);
    }
    return;
  }
  double* const weights = arguments.weights + row * arguments.vocab;
  for (int64_t id = slice.begin; id < slice.end; ++id) {
    const double weight = exp_double((penalised_logit(arguments, wish, row, id) - most) / wish.temperature);
    weights[id] = weight < wish.min_p ? 0 : weight;  // the largest is 1
  }
  if (wish.top_k > 0 && wish.top_k < arguments.vocab) {
    const double kth = threshold_of(weights, slice, static_cast<double>(wish.top_k), true, shared);
    for (int64_t id = slice.begin; id < slice.end; ++id) {
      weights[id] = weights[id] < kth ? 0 : weights[id];
    }
  }
  if (wish.top_p < 1) {
    keep_top_p(wish.top_p, weights, slice, shared);
  }
  // The token whose share of [0, all) holds the draw; the last one with a share also takes what rounding leaves.
  double mine = 0;
  int64_t last = -1;
  for (int64_t id = slice.begin; id < slice.end; ++id) {
    mine = mine + weights[id];
    last = weights[id] > 0 ? id : last;
  }
  const auto [before, all] = scan_slices(mine, shared);
  const double target = uniform_draw(wish.seed, wish.request, wish.position, wish.draw) * all;
  double up_to_here = before;
  int64_t found = arguments.vocab;
  for (int64_t id = slice.begin; id < slice.end && found == arguments.vocab; ++id) {
    up_to_here = up_to_here + weights[id];
    if (weights[id] > 0 && target < up_to_here) {
      found = id;
    }
  }
  shared.ids[thread] = found;
  shared.values[thread] = static_cast<double>(last);
  sync_threads();
  if (thread == 0) {
    int64_t token = arguments.vocab;
    int64_t last_of_all = -1;
    for (int i = 0; i < kSamplerThreads; ++i) {
      token = shared.ids[i] < token ? shared.ids[i] : token;
      last_of_all = shared.values[i] >= 0 ? static_cast<int64_t>(shared.values[i]) : last_of_all;
    }
    arguments.tokens[row] = static_cast<int32_t>(token < arguments.vocab ? token : last_of_all);
  }
}

inline void sampler(Stream stream, const SamplerArguments& arguments) {
  require(arguments.vocab >= 1 && arguments.vocab <= INT32_MAX, "sampler: token ids have 32 bits");
  require(arguments.is_in_prompt == nullptr || arguments.num_generated != nullptr,
          "sampler: is_in_prompt comes with num_generated");
  if (arguments.num_rows > 0) {
    launch(stream,
           {.name = "sampler",
            .grid = {static_cast<unsigned>(arguments.num_rows)},
            .block = {kSamplerThreads},
            .shared_bytes = sizeof(SamplerShared)},
           sampler_kernel,
           arguments);
  }
}

}  // namespace gpu::DSV3_BACKEND
