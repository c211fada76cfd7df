#include "reference/generate/generator.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "reference/generate/sampler.hpp"
#include "reference/values.hpp"

namespace reference {
namespace {

Reused<double> logits_row(const model::TensorView& logits, int64_t row) {
  return load<double>(model::slice_rows(logits, row, row + 1));
}

class Stopwatch {
 public:
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

struct Generator::Sequence {
  const Request* request = nullptr;
  int64_t index = 0;            // in the batch and in the cache
  std::vector<int32_t> tokens;  // prompt and generated ones
  int64_t num_fed = 0;          // rows in the cache of the main model
  std::vector<int32_t> drafts = {};
  std::optional<FinishReason> finished = {};

  [[nodiscard]] int64_t num_generated() const { return static_cast<int64_t>(tokens.size() - request->prompt.size()); }
  [[nodiscard]] TokensSoFar tokens_so_far(std::span<const int32_t> all) const {
    return {all.first(request->prompt.size()), all.subspan(request->prompt.size())};
  }
};

void check_request(const model::ModelConfig& config, const Request& request, const std::string& what) {
  if (request.prompt.empty()) {
    model::throw_input_error("{}: the prompt has no tokens", what);
  }
  for (const int32_t id : request.prompt) {
    if (id < 0 || id >= config.vocab_size) {
      model::throw_input_error("{}: token id {} is outside the vocabulary of {}", what, id, config.vocab_size);
    }
  }
  const auto prompt_len = static_cast<int64_t>(request.prompt.size());
  if (request.max_new_tokens < 1 || prompt_len + request.max_new_tokens > config.max_position_embeddings) {
    model::throw_input_error("{}: {} prompt tokens and {} new ones do not fit the model's {} positions",
                             what,
                             prompt_len,
                             request.max_new_tokens,
                             config.max_position_embeddings);
  }
}

Generator::Generator(
    const model::WeightSource& weights, Rules rules, int num_threads, GeneratorOptions options, Transformer::RunOp run)
    : transformer_(weights, rules, num_threads, std::move(run)),
      options_(options),
      cache_(options.page_rows),
      drafter_(transformer_, options.chunk_len, options.decode_form) {
  CHECK(options.chunk_len > 0 && options.num_drafts >= 0);
  if (options.num_drafts > 0 && weights.config().num_nextn_predict_layers == 0) {
    model::throw_input_error("drafts: the model has no MTP layer (num_nextn_predict_layers 0)");
  }
}

std::vector<FinishReason> Generator::run(const std::vector<Request>& requests,
                                         const OnToken& on_token,
                                         StepProbe* probe) {
  std::vector<Sequence> sequences;
  for (size_t r = 0; r < requests.size(); ++r) {
    check_request(transformer_.config(), requests[r], "request " + std::to_string(r));
    sequences.push_back({.request = &requests[r], .index = static_cast<int64_t>(r), .tokens = requests[r].prompt});
  }
  stats_ = {};
  stats_.num_drafted.resize(static_cast<size_t>(options_.num_drafts));
  stats_.num_accepted.resize(static_cast<size_t>(options_.num_drafts));
  const Stopwatch prefill_watch;
  prefill(sequences, on_token, probe);
  stats_.prefill_s = prefill_watch.seconds();
  const Stopwatch decode_watch;
  while (true) {
    std::vector<Sequence*> active;
    for (Sequence& sequence : sequences) {
      if (!sequence.finished) {
        active.push_back(&sequence);
      }
    }
    if (active.empty()) {
      break;
    }
    decode(active, on_token, probe);
  }
  stats_.decode_s = decode_watch.seconds();
  std::vector<FinishReason> reasons;
  for (const Sequence& sequence : sequences) {
    reasons.push_back(*sequence.finished);
  }
  return reasons;
}

// Returns the normed states of all rows [rows, hidden].
model::TensorView Generator::main_step(StepInput input, std::vector<RowOrigin> origins, StepProbe* probe) {
  input.with_logits = false;
  if (probe != nullptr) {
    probe->enter_step(std::move(origins));
  }
  StateProbe watch("final_norm", probe);
  transformer_.step(input, cache_, watch);
  return watch.state();
}

int32_t Generator::add_token(Sequence& sequence,
                             std::span<const double> logits,
                             std::optional<int32_t> draft,
                             const OnToken& on_token) {
  const Request& request = *sequence.request;
  GeneratedToken token{
      .id = sample(request.sampling,
                   sequence.tokens_so_far(sequence.tokens),
                   logits,
                   {.request = request.draw_request, .position = static_cast<int64_t>(sequence.tokens.size())})};
  token.draft = draft;
  if (options_.num_logprobs > 0) {
    token.logprob = logprob(logits, token.id);
    token.top = top_logprobs(logits, options_.num_logprobs);
  }
  sequence.tokens.push_back(token.id);
  ++stats_.num_new_tokens;
  const bool goes_on = on_token(static_cast<size_t>(sequence.index), token);
  if (!goes_on || std::ranges::find(request.stop_tokens, token.id) != request.stop_tokens.end()) {
    finish(sequence, FinishReason::kStop);
  } else if (sequence.num_generated() == request.max_new_tokens) {
    finish(sequence, FinishReason::kLength);
  }
  return token.id;
}

void Generator::finish(Sequence& sequence, FinishReason reason) {
  sequence.finished = reason;
  cache_.remove(sequence.index);
  drafter_.forget(sequence.index);
}

void Generator::prefill(std::vector<Sequence>& sequences, const OnToken& on_token, StepProbe* probe) {
  while (true) {
    std::vector<int64_t> left;
    for (const Sequence& sequence : sequences) {
      left.push_back(std::max<int64_t>(0, static_cast<int64_t>(sequence.request->prompt.size()) - sequence.num_fed));
    }
    const auto pieces = next_pieces(left, options_.chunk_len);
    if (pieces.empty()) {
      return;
    }
    StepInput input;
    input.workload.attention_form = options_.prefill_form;
    std::vector<RowOrigin> origins;
    for (const auto& [item, count] : pieces) {
      const Sequence& sequence = sequences[item];
      input.workload.sequences.push_back({.num_cached = sequence.num_fed, .num_new = count});
      input.cache_sequences.push_back(sequence.index);
      for (int64_t position = sequence.num_fed; position < sequence.num_fed + count; ++position) {
        input.tokens.push_back(sequence.tokens[static_cast<size_t>(position)]);
        origins.push_back({.request = sequence.index, .position = position});
      }
    }
    const auto states = main_step(std::move(input), std::move(origins), probe);
    int64_t row = 0;
    std::vector<model::TensorView> last_states;
    std::vector<Sequence*> ready;
    for (const auto& [item, count] : pieces) {
      Sequence& sequence = sequences[item];
      if (options_.num_drafts > 0) {
        drafter_.observe(sequence.index, model::slice_rows(states, row, row + count));
      }
      row += count;
      sequence.num_fed += count;
      stats_.num_prompt_tokens += count;
      if (sequence.num_fed == static_cast<int64_t>(sequence.request->prompt.size())) {
        last_states.push_back(model::slice_rows(states, row - 1, row));
        ready.push_back(&sequence);
      }
    }
    if (ready.empty()) {
      continue;
    }
    const auto logits = transformer_.logits(join_rows(last_states), {}, probe);
    for (size_t i = 0; i < ready.size(); ++i) {
      add_token(*ready[i], logits_row(logits, static_cast<int64_t>(i)), {}, on_token);
    }
    draft(ready, options_.prefill_form, probe);
  }
}

void Generator::draft(const std::vector<Sequence*>& active, model::AttentionForm form, StepProbe* probe) {
  std::vector<DraftJob> jobs;
  std::vector<Sequence*> drafted;
  for (Sequence* sequence : active) {
    // The step that verifies them makes one token more than there are drafts.
    const int64_t count =
        std::min(options_.num_drafts, sequence->request->max_new_tokens - sequence->num_generated() - 1);
    sequence->drafts.clear();
    if (!sequence->finished && count > 0) {
      drafted.push_back(sequence);
      jobs.push_back({.sequence = sequence->index,
                      .tokens = sequence->tokens,
                      .count = count,
                      .choose = [sequence](const std::vector<int32_t>& drafts, std::span<const double> logits) {
                        std::vector<int32_t> tokens = sequence->tokens;
                        tokens.insert(tokens.end(), drafts.begin(), drafts.end());
                        return sample(sequence->request->sampling,
                                      sequence->tokens_so_far(tokens),
                                      logits,
                                      {.request = sequence->request->draw_request,
                                       .position = static_cast<int64_t>(tokens.size())});
                      }});
    }
  }
  if (jobs.empty()) {
    return;
  }
  auto drafts = drafter_.propose(jobs, form, cache_, probe);
  for (size_t i = 0; i < drafted.size(); ++i) {
    drafted[i]->drafts = std::move(drafts[i]);
  }
}

// Feeds each sequence its last token and its drafts. A draft is accepted while it is the token that the model chooses itself at
// that place, with the draw of that place: so the tokens are those of plain decoding, whatever was drafted.
void Generator::decode(std::vector<Sequence*>& active, const OnToken& on_token, StepProbe* probe) {
  StepInput input;
  input.workload.attention_form = options_.decode_form;
  std::vector<RowOrigin> origins;
  for (const Sequence* sequence : active) {
    const auto num_drafts = static_cast<int64_t>(sequence->drafts.size());
    input.workload.sequences.push_back({.num_cached = sequence->num_fed, .num_new = 1 + num_drafts});
    input.cache_sequences.push_back(sequence->index);
    input.tokens.push_back(sequence->tokens.back());
    input.tokens.insert(input.tokens.end(), sequence->drafts.begin(), sequence->drafts.end());
    for (int64_t i = 0; i <= num_drafts; ++i) {
      origins.push_back({.request = sequence->index, .position = sequence->num_fed + i});
    }
  }
  const auto states = main_step(std::move(input), std::move(origins), probe);
  const auto logits = transformer_.logits(states, {}, probe);
  int64_t row = 0;
  for (Sequence* sequence : active) {
    const std::vector<int32_t>& drafts = sequence->drafts;
    for (size_t place = 0; place < drafts.size(); ++place) {
      ++stats_.num_drafted[place];
    }
    const int64_t first_row = row;
    row += 1 + static_cast<int64_t>(drafts.size());
    size_t num_accepted = 0;
    while (true) {
      const int64_t at = first_row + static_cast<int64_t>(num_accepted);
      const auto draft = num_accepted < drafts.size() ? std::optional(drafts[num_accepted]) : std::nullopt;
      const bool accepted = add_token(*sequence, logits_row(logits, at), draft, on_token) == draft;
      if (accepted) {
        ++stats_.num_accepted[num_accepted++];
      }
      if (!accepted || sequence->finished) {
        break;
      }
    }
    if (!sequence->finished) {
      const auto num_kept = static_cast<int64_t>(num_accepted) + 1;
      sequence->num_fed += num_kept;
      cache_.truncate(sequence->index, sequence->num_fed);
      if (options_.num_drafts > 0) {
        drafter_.observe(sequence->index, model::slice_rows(states, first_row, first_row + num_kept));
      }
    }
  }
  draft(active, options_.decode_form, probe);
}

}  // namespace reference
