// Drafts tokens with the MTP layers: draft k comes from MTP layer k, and beyond the last layer from that layer again, fed with its
// own normed state and the draft before (docs/inference.md).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "reference/generate/step_rows.hpp"
#include "reference/transformer.hpp"

namespace reference {

// What a sequence wants drafted.
struct DraftJob {
  int64_t sequence = 0;             // its number in the cache, and its index for a StepProbe
  std::span<const int32_t> tokens;  // all so far; the last one has not been fed
  int64_t count = 0;                // how many drafts
  // The draft for logits [vocab] of the MTP layer, given the drafts before it.
  std::function<int32_t(const std::vector<int32_t>& drafts, std::span<const double> logits)> choose;
};

class Drafter {
 public:
  // `transformer` must outlive this. At most `piece_len` rows go into one step.
  Drafter(const Transformer& transformer, int64_t piece_len, model::AttentionForm decode_form)
      : transformer_(transformer), piece_len_(piece_len), decode_form_(decode_form) {}

  // The main model's normed states [rows, hidden] of the sequence's next positions, in order and without the rejected ones.
  void observe(int64_t sequence, const model::TensorView& states);
  void forget(int64_t sequence) { pending_.erase(sequence); }

  // Drafts for each job: the MTP layers first catch up with what was observed, in the given form, which makes the first drafts; one
  // more row in the form of decoding makes each further one. What they wrote for drafts is gone from the cache afterwards. For a
  // sequence, `count` must not grow from call to call.
  std::vector<std::vector<int32_t>> propose(std::span<const DraftJob> jobs,
                                            model::AttentionForm form,
                                            LatentCache& cache,
                                            StepProbe* probe);

 private:
  // States of positions [first, first + rows) that the MTP layers have not yet read for good.
  struct Pending {
    int64_t first = 0;
    model::TensorView states;
  };
  struct Work;

  void run_layer(
      int64_t mtp_layer, std::vector<Work>& work, model::AttentionForm form, LatentCache& cache, StepProbe* probe);

  const Transformer& transformer_;
  int64_t piece_len_;
  model::AttentionForm decode_form_;
  std::map<int64_t, Pending> pending_;  // by sequence
};

}  // namespace reference
