// Tokens to the ranks that have their experts, and the experts' outputs back, over any communicator: the plain form of dispatch and
// combine. A token goes once to each rank that has experts of it; every expert's output comes back as it is, so that the sum is made
// where the token came from, in the order of one rank. Where experts are cut, that holds for every slice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gpu/comm/communicator.hpp"
#include "gpu/kernels/expert_places.hpp"

namespace gpu::comm {

// A row as it is sent: `row_bytes` of elements and, for FP8, its scales.
struct ExchangeFormat {
  int num_slices = 1;  // of an expert: rank s * n + e of n * num_slices has slice s of what rank e of a placement has
  int k = 0;           // experts of a token
  int64_t row_bytes = 0;     // of a token
  int64_t num_scales = 0;    // FP32, of a token
  int64_t output_bytes = 0;  // of an expert's output, or of what a slice of it gives
  int64_t capacity = 0;      // tokens that a rank can receive
};

class TokenExchange {
 public:
  // `ranks` must outlive this.
  TokenExchange(Communicator& ranks, ExchangeFormat format);

  struct Tokens {
    const std::byte* rows = nullptr;  // [count, row_bytes]
    const float* scales = nullptr;    // [num_scales, scale_stride]: of these tokens the first `count` columns
    int64_t scale_stride = 0;
    const int32_t* topk_ids = nullptr;  // [count, k]; an id that no rank has is no expert
    int64_t count = 0;
  };
  struct Received {
    std::byte* rows = nullptr;         // [capacity, row_bytes]
    float* scales = nullptr;           // [num_scales, capacity]
    int32_t* local_experts = nullptr;  // [capacity, k]: slots of this rank; -1: not here, and in rows that nobody sent
  };
  // Collective. Rows come in the order of their source ranks, a rank's in its own order. Throws CommError when they are more than
  // the capacity.
  void dispatch(const Tokens& tokens, const ExpertPlacement& placement, const Received& received);

  // Of all calls so far.
  struct Counts {
    int64_t num_sent_tokens = 0;    // to other ranks: one for each token and rank that has experts of it
    int64_t num_computed_rows = 0;  // outputs that this rank's experts gave, its own tokens' included
    int64_t num_returned_rows = 0;  // of these, to other ranks
  };
  [[nodiscard]] const Counts& counts() const { return counts_; }
  // Of what travels: a token with its scales, an output.
  [[nodiscard]] int64_t token_bytes() const { return format_.row_bytes + format_.num_scales * int64_t{sizeof(float)}; }
  [[nodiscard]] int64_t output_bytes() const { return format_.output_bytes; }

  // Collective, after dispatch(). expert_rows: outputs, row_of_slot [capacity, k]: where that of a received slot lies.
  // returned [num_slices, count, k, output_bytes]: those of the rank's own tokens; what belongs to no expert stays as it is.
  void give_back(const std::byte* expert_rows, const int32_t* row_of_slot, std::byte* returned);

 private:
  [[nodiscard]] int64_t message_bytes() const;

  Communicator& ranks_;
  ExchangeFormat format_;
  // Of the last dispatch.
  std::vector<std::vector<int64_t>> sent_slots_;  // to each rank: token * k + slot, ascending
  int64_t num_slots_ = 0;                         // of all tokens
  std::vector<int64_t> num_received_;             // tokens, by source
  std::vector<int32_t> received_experts_;         // [tokens received, k]
  Counts counts_;
};

}  // namespace gpu::comm
