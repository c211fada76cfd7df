// From router logits to experts and their weights. Covers the ops moe.router_scores, group_ids, topk_ids and topk_weights.
#pragma once

#include "gpu/portable/kernel.hpp"
#include "gpu/portable/require.hpp"

namespace gpu {

enum class Scoring : int { kSigmoid, kSoftmax };
// A group's score from its biased scores.
enum class GroupScore : int { kTopTwo, kLargest };

struct RouterArguments {
  const float* logits = nullptr;  // [num_tokens, num_experts]
  const float* bias = nullptr;    // [num_experts], or null
  float* scores = nullptr;        // [num_tokens, num_experts]: without the bias
  int32_t* group_ids = nullptr;   // [num_tokens, kept_groups], or null
  int32_t* topk_ids = nullptr;    // [num_tokens, k]
  float* topk_weights = nullptr;  // [num_tokens, k]
  int64_t num_tokens = 0;
  int num_experts = 0;  // at most 1024, a multiple of num_groups
  int num_groups = 1;   // groups of two or more experts for kTopTwo
  int kept_groups = 1;
  int k = 0;
  float scaling_factor = 1;
  bool normalise = true;  // divide by (sum of the chosen scores + 1e-20)
  Scoring scoring = Scoring::kSigmoid;
  GroupScore group_score = GroupScore::kTopTwo;
};

}  // namespace gpu

namespace gpu::DSV3_BACKEND {

inline constexpr int kRouterThreads = 256;
inline constexpr int kRouterMaxExperts = 1024;

struct RouterShared {
  float scores[kRouterMaxExperts];
  float biased[kRouterMaxExperts];
  float group_scores[kRouterMaxExperts];
  int32_t is_kept[kRouterMaxExperts];  // by group
  int32_t chosen[kRouterMaxExperts];   // by place
};

// Does (a, index i) come before (b, index j)? Larger first, then the lower index; NaN last.
GPU_DEVICE bool comes_before(float a, int i, float b, int j) {
  if (a != a || b != b) {
    return (a == a && b != b) || (a != a && b != b && i < j);
  }
  return a > b || (a == b && i < j);
}

// How many of the values come before number `mine`.
GPU_DEVICE int place_of(const float* values, int count, int mine) {
  int place = 0;
  for (int i = 0; i < count; ++i) {
    place += comes_before(values[i], i, values[mine], mine) ? 1 : 0;
  }
  return place;
}

// Grid: one block a token. Shared memory: RouterShared.
// Rounding: FP32 at every step. Order: the weights' sum in the order of topk_ids, the softmax's in ascending experts.
// Whatever the logits, the ids are k different experts.
GPU_KERNEL router_kernel(RouterArguments arguments) {
  RouterShared& shared = *shared_memory_as<RouterShared>();
  const auto token = static_cast<int64_t>(block_idx().x);
  const int thread = static_cast<int>(thread_idx().x);
  const int num_experts = arguments.num_experts;
  const int group_len = num_experts / arguments.num_groups;
  const float* const logits = arguments.logits + token * num_experts;
  float largest = 0;
  float sum = 1;
  if (arguments.scoring == Scoring::kSoftmax) {
    largest = logits[0];
    for (int e = 1; e < num_experts; ++e) {
      largest = fmaxf(largest, logits[e]);
    }
    sum = 0;
    for (int e = 0; e < num_experts; ++e) {
      sum = add(sum, expf(logits[e] - largest));
    }
  }
  for (int e = thread; e < num_experts; e += kRouterThreads) {
    const float score = arguments.scoring == Scoring::kSoftmax ? divide(expf(logits[e] - largest), sum)
                                                               : divide(1.0f, add(1.0f, expf(-logits[e])));
    shared.scores[e] = score;
    shared.biased[e] = arguments.bias != nullptr ? add(score, arguments.bias[e]) : score;
    arguments.scores[token * num_experts + e] = score;
  }
  sync_threads();
  for (int group = thread; group < arguments.num_groups; group += kRouterThreads) {
    const float* const biased = shared.biased + group * group_len;
    float first = biased[0];
    float second = -INFINITY;
    for (int i = 1; i < group_len; ++i) {
      second = fmaxf(second, biased[i] < first ? biased[i] : first);
      first = fmaxf(first, biased[i]);
    }
    shared.group_scores[group] = arguments.group_score == GroupScore::kTopTwo ? add(first, second) : first;
  }
  sync_threads();
  for (int group = thread; group < arguments.num_groups; group += kRouterThreads) {
    const int place = place_of(shared.group_scores, arguments.num_groups, group);
    shared.is_kept[group] = place < arguments.kept_groups ? 1 : 0;
    if (place < arguments.kept_groups && arguments.group_ids != nullptr) {
      arguments.group_ids[token * arguments.kept_groups + place] = group;
    }
  }
  sync_threads();
  for (int e = thread; e < num_experts; e += kRouterThreads) {
    if (shared.is_kept[e / group_len] == 0) {
      shared.biased[e] = -INFINITY;
    }
  }
  sync_threads();
  for (int e = thread; e < num_experts; e += kRouterThreads) {
    const int place = place_of(shared.biased, num_experts, e);
    if (place < arguments.k) {
      shared.chosen[place] = e;
      arguments.topk_ids[token * arguments.k + place] = e;
    }
  }
  sync_threads();
  if (thread < arguments.k) {
    float denominator = 1;
    if (arguments.normalise) {
      float chosen_sum = 0;
      for (int slot = 0; slot < arguments.k; ++slot) {
        chosen_sum = add(chosen_sum, shared.scores[shared.chosen[slot]]);
      }
      denominator = add(chosen_sum, 1e-20f);
    }
    arguments.topk_weights[token * arguments.k + thread] =
        multiply(divide(shared.scores[shared.chosen[thread]], denominator), arguments.scaling_factor);
  }
}

inline void router(Stream stream, const RouterArguments& arguments) {
  require(arguments.num_experts >= 1 && arguments.num_experts <= kRouterMaxExperts, "router: 1 to 1024 experts");
  require(arguments.num_groups >= 1 && arguments.num_experts % arguments.num_groups == 0,
          "router: the experts have to fall into equal groups");
  require(arguments.kept_groups >= 1 && arguments.kept_groups <= arguments.num_groups,
          "router: kept_groups of num_groups");
  require(arguments.num_groups == 1 || arguments.group_score == GroupScore::kLargest ||
              arguments.num_experts / arguments.num_groups >= 2,
          "router: the sum of the top two needs groups of two");
  require(arguments.k >= 1 && arguments.k <= kRouterThreads && arguments.k <= arguments.num_experts,
          "router: k of num_experts");
  if (arguments.num_tokens > 0) {
    launch(stream,
           {.name = "router",
            .grid = {static_cast<unsigned>(arguments.num_tokens)},
            .block = {kRouterThreads},
            .shared_bytes = sizeof(RouterShared)},
           router_kernel,
           arguments);
  }
}

}  // namespace gpu::DSV3_BACKEND
