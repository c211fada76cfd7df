// Generates tokens for a batch of requests: prefill in chunks, then one token a step, or several that MTP layers drafted.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "model/sampling.hpp"
#include "reference/generate/drafter.hpp"
#include "reference/generate/step_rows.hpp"
#include "reference/transformer.hpp"

namespace reference {

struct Request {
  std::vector<int32_t> prompt = {};  // at least one token
  int64_t max_new_tokens = 0;        // at least one
  model::Sampling sampling = {};
  int64_t draw_request = 0;               // model::DrawPlace::request
  std::vector<int32_t> stop_tokens = {};  // generation ends with the first of them, which is still given
};

struct GeneratedToken {
  int32_t id = 0;
  std::optional<int32_t> draft = {};                 // what was drafted for this place; accepted if equal
  double logprob = 0;                                // only with num_logprobs > 0, like the next
  std::vector<std::pair<int32_t, double>> top = {};  // likeliest tokens at this place
};

enum class FinishReason { kLength, kStop };

struct GeneratorOptions {
  model::AttentionForm prefill_form = model::AttentionForm::kExpanded;
  model::AttentionForm decode_form = model::AttentionForm::kAbsorbed;  // draft verification too
  int64_t chunk_len = 512;                                             // prompt tokens of all sequences in one step
  int64_t num_drafts = 0;
  int64_t num_logprobs = 0;
  int64_t page_rows = LatentCache::kDefaultPageRows;
};

struct GenerationStats {
  int64_t num_prompt_tokens = 0;
  int64_t num_new_tokens = 0;
  double prefill_s = 0;  // until the last sequence has its first token; drafting for it included
  double decode_s = 0;
  std::vector<int64_t> num_drafted = {};   // by place of the draft in its step
  std::vector<int64_t> num_accepted = {};  // likewise
};

class Generator {
 public:
  // Called with each new token in order; false ends that request (FinishReason::kStop).
  using OnToken = std::function<bool(size_t request, const GeneratedToken& token)>;

  // `weights` must outlive this. Throws InputError when drafts are asked for and the model has no MTP layer.
  Generator(const model::WeightSource& weights,
            Rules rules,
            int num_threads,
            GeneratorOptions options,
            Transformer::RunOp run = {});

  // Throws InputError, before anything is computed, for an empty prompt, a token id outside the vocabulary, or a sequence that
  // would not fit the model's positions. `probe` may be null; the origins it gets name requests by index.
  // The tokens of a request do not depend on the others, on chunk_len, page_rows, num_drafts, nor on the number of threads.
  std::vector<FinishReason> run(const std::vector<Request>& requests,
                                const OnToken& on_token,
                                StepProbe* probe = nullptr);

  [[nodiscard]] const GenerationStats& stats() const { return stats_; }

 private:
  struct Sequence;

  void prefill(std::vector<Sequence>& sequences, const OnToken& on_token, StepProbe* probe);
  void decode(std::vector<Sequence*>& active, const OnToken& on_token, StepProbe* probe);
  void draft(const std::vector<Sequence*>& active, model::AttentionForm form, StepProbe* probe);
  model::TensorView main_step(StepInput input, std::vector<RowOrigin> origins, StepProbe* probe);
  // Chooses the token after the sequence, gives it to the caller, and returns it.
  int32_t add_token(Sequence& sequence,
                    std::span<const double> logits,
                    std::optional<int32_t> draft,
                    const OnToken& on_token);
  void finish(Sequence& sequence, FinishReason reason);

  Transformer transformer_;
  GeneratorOptions options_;
  LatentCache cache_;
  Drafter drafter_;
  GenerationStats stats_;
};

// Throws InputError as Generator::run says; `what` opens the message ("--prompt", "line 3").
void check_request(const model::ModelConfig& config, const Request& request, const std::string& what);

}  // namespace reference
