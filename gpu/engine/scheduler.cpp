#include "gpu/engine/scheduler.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "model/check.hpp"

namespace gpu {

struct Scheduler::Sequence {
  const Request* request = nullptr;
  size_t index = 0;             // of the request
  std::vector<int32_t> tokens;  // prompt and generated ones
  int64_t num_fed = 0;          // rows in the main model's cache
  std::vector<int32_t> pages = {};
  std::vector<int32_t> drafts = {};
  int64_t place = 0;       // among those that are active
  int64_t first_kept = 0;  // position of the first row that the MTP layers have not read for good
  std::optional<FinishReason> finished = {};

  [[nodiscard]] int64_t len() const { return static_cast<int64_t>(tokens.size()); }
  [[nodiscard]] int64_t prompt_len() const { return static_cast<int64_t>(request->prompt.size()); }
  [[nodiscard]] bool decodes() const { return num_fed >= prompt_len(); }
  // A known token, or a draft.
  [[nodiscard]] int32_t token(int64_t position) const {
    return position < len() ? tokens[static_cast<size_t>(position)] : drafts.at(static_cast<size_t>(position - len()));
  }
  // Drafts that the next step can verify: it makes one token more than there are.
  [[nodiscard]] int64_t num_wanted_drafts(int64_t most) const {
    return std::min(most, request->max_new_tokens - (len() - prompt_len()) - 1);
  }
};

struct Scheduler::Share {
  Sequence* sequence = nullptr;
  int64_t first_row = 0;
  int64_t num_rows = 0;
  int64_t first_position = 0;
  bool prefills = false;
  int64_t first_head = 0;  // its rows among the head rows
  int64_t num_heads = 0;
  int64_t num_kept = 0;  // rows whose tokens turned out to be right
};

// A sequence's part of a round of drafts: rows of consecutive positions.
struct Scheduler::DraftJob {
  Sequence* sequence = nullptr;
  int64_t first_position = 0;
  std::vector<int32_t> state_rows;  // that the next MTP layer reads
  bool prefills = false;
  int64_t num_drafts = 0;  // 0: the rows are only read
};

// A row whose logits decide a token: the tokens before it are the sequence's, and `ahead` drafts more.
struct Scheduler::HeadRow {
  const Sequence* sequence = nullptr;
  std::vector<int32_t> ahead = {};
};

Scheduler::Scheduler(Engine& engine, const SchedulerOptions& options)
    : engine_(engine),
      options_(options),
      mtp_depth_(std::min(options.num_drafts, engine.config().num_nextn_predict_layers)),
      pool_(engine.options().num_pages) {
  CHECK(options.chunk_len >= 1 && options.num_drafts >= 0);
  CHECK(options.num_drafts == 0 || engine.config().num_nextn_predict_layers > 0);
}

StepLimits Scheduler::limits_of(const model::ModelConfig& config,
                                const SchedulerOptions& options,
                                int64_t max_sequences,
                                int64_t max_len) {
  const int64_t num_read_again =
      std::max<int64_t>(0, std::min(options.num_drafts, config.num_nextn_predict_layers) - 1);
  const int64_t decode_rows = 1 + options.num_drafts + num_read_again;
  return {.max_rows = std::min(options.chunk_len, max_sequences * max_len) + max_sequences * decode_rows,
          .max_sequences = max_sequences,
          .max_len = max_len,
          .max_decode_rows = decode_rows,
          .max_head_rows = max_sequences * (1 + options.num_drafts),
          .max_prefill_keys = std::max(max_len, options.chunk_len),
          .max_kept_states = max_sequences * num_read_again};
}

std::vector<FinishReason> Scheduler::run(const std::vector<Request>& requests,
                                         const OnToken& on_token,
                                         const OnStep& on_step) {
  std::vector<Sequence> sequences;
  for (size_t r = 0; r < requests.size(); ++r) {
    const Request& request = requests[r];
    const auto num_positions = static_cast<int64_t>(request.prompt.size()) + request.max_new_tokens;
    CHECK(!request.prompt.empty() && request.max_new_tokens >= 1);
    if (num_positions > engine_.options().limits.max_len ||
        (num_positions + kPageRows - 1) / kPageRows > engine_.options().num_pages) {
      model::throw_input_error(
          "request {}: {} positions do not fit into the device's latent cache: {} pages of {}, sequences of up to {}",
          r,
          num_positions,
          engine_.options().num_pages,
          kPageRows,
          engine_.options().limits.max_len);
    }
    sequences.push_back({.request = &request, .index = r, .tokens = request.prompt});
  }
  stats_ = {};
  stats_.num_drafted.resize(static_cast<size_t>(options_.num_drafts));
  stats_.num_accepted.resize(static_cast<size_t>(options_.num_drafts));
  on_token_ = &on_token;
  on_step_ = &on_step;
  for (Sequence& sequence : sequences) {
    waiting_.push_back(&sequence);
  }
  for (admit(); engine_.on_any_rank(!active_.empty()); admit()) {
    step();
  }
  std::vector<FinishReason> reasons;
  for (const Sequence& sequence : sequences) {
    reasons.push_back(*sequence.finished);
  }
  return reasons;
}

// In order; the pages for all that a request may become are set aside at once.
void Scheduler::admit() {
  while (!waiting_.empty() && static_cast<int64_t>(active_.size()) < engine_.options().limits.max_sequences) {
    Sequence& next = *waiting_.front();
    const int64_t num_pages = (next.len() + next.request->max_new_tokens + kPageRows - 1) / kPageRows;
    if (num_pages > pool_.num_free()) {
      return;
    }
    next.pages = pool_.take(num_pages);
    while (std::ranges::count(active_, next.place, &Sequence::place) > 0) {
      ++next.place;
    }
    active_.push_back(&next);
    waiting_.pop_front();
  }
}

// Those that decode first, then chunks of prompts as far as chunk_len goes.
std::vector<Scheduler::Share> Scheduler::plan_step() {
  std::vector<Share> shares;
  int64_t budget = options_.chunk_len;
  int64_t key_budget = engine_.options().limits.max_prefill_keys;  // kv_b works on all positions of a sequence
  for (const bool decodes : {true, false}) {
    for (Sequence* sequence : active_) {
      if (sequence->decodes() != decodes) {
        continue;
      }
      const int64_t count =
          decodes ? 1 + static_cast<int64_t>(sequence->drafts.size())
                  : std::min({budget, key_budget - sequence->num_fed, sequence->prompt_len() - sequence->num_fed});
      if (count <= 0) {
        continue;
      }
      if (!decodes) {
        budget -= count;
        key_budget -= sequence->num_fed + count;
      }
      const bool ends = sequence->num_fed + count >= sequence->prompt_len();
      shares.push_back({.sequence = sequence,
                        .num_rows = count,
                        .first_position = sequence->num_fed,
                        .prefills = !decodes,
                        .num_heads = decodes ? count : (ends ? 1 : 0)});
    }
  }
  return shares;
}

void Scheduler::step() {
  const auto start = std::chrono::steady_clock::now();
  auto shares = plan_step();
  StepInput input;
  std::vector<HeadRow> heads;
  std::vector<Sequence*> owners;
  bool prefills = false;
  for (Share& share : shares) {
    const Sequence& sequence = *share.sequence;
    share.first_row = static_cast<int64_t>(input.tokens.size());
    share.first_head = static_cast<int64_t>(heads.size());
    input.sequences.push_back({share.first_position, share.num_rows, share.prefills, sequence.pages});
    owners.push_back(share.sequence);
    const auto first = sequence.tokens.begin() + share.first_position;
    const int64_t num_known = std::min(share.num_rows, sequence.len() - share.first_position);
    input.tokens.insert(input.tokens.end(), first, first + num_known);
    input.tokens.insert(input.tokens.end(), sequence.drafts.begin(), sequence.drafts.end());
    for (int64_t i = 0; i < share.num_heads; ++i) {
      input.head_rows.push_back(static_cast<int32_t>(share.first_row + share.num_rows - share.num_heads + i));
      heads.push_back({&sequence, {sequence.drafts.begin(), sequence.drafts.begin() + i}});
    }
    stats_.num_prompt_tokens += share.prefills ? share.num_rows : 0;
    prefills = prefills || share.prefills;
  }
  engine_.run_main(input, watch_of(input, owners, {}));
  accept(shares, heads, sample(heads));
  draft(shares);
  std::erase_if(active_, [&](Sequence* sequence) {
    if (sequence->finished) {
      pool_.give_back(sequence->pages);
    }
    return sequence->finished.has_value();
  });
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  (prefills ? stats_.prefill_s : stats_.decode_s) += seconds;
}

// A draft is accepted while it is the token that the model chooses itself at that place, with the draw of that place: so the tokens are
// those of plain decoding, whatever was drafted.
void Scheduler::accept(std::vector<Share>& shares,
                       const std::vector<HeadRow>& heads,
                       const std::vector<int32_t>& sampled) {
  std::vector<float> logits;
  if (options_.with_logits && !heads.empty()) {
    logits = engine_.logits();
  }
  const auto vocab = static_cast<size_t>(engine_.config().vocab_size);
  for (Share& share : shares) {
    Sequence& sequence = *share.sequence;
    const std::vector<int32_t> drafts = std::exchange(sequence.drafts, {});
    for (size_t place = 0; place < drafts.size(); ++place) {
      ++stats_.num_drafted[place];
    }
    share.num_kept = share.prefills ? share.num_rows : 1;
    for (int64_t i = 0; i < share.num_heads; ++i) {
      const auto head = static_cast<size_t>(share.first_head + i);
      const auto place = static_cast<size_t>(i);
      const auto draft = place < drafts.size() ? std::optional(drafts[place]) : std::nullopt;
      const auto row = logits.empty() ? std::span<const float>() : std::span(logits).subspan(head * vocab, vocab);
      const bool goes_on = add_token(sequence, sampled[head], draft, row);
      if (sampled[head] != draft) {
        break;
      }
      ++stats_.num_accepted[place];
      if (!goes_on) {
        break;
      }
      ++share.num_kept;
    }
    sequence.num_fed += share.num_kept;
  }
}

// False when the sequence is finished with it.
bool Scheduler::add_token(Sequence& sequence,
                          int32_t token,
                          std::optional<int32_t> draft,
                          std::span<const float> logits) {
  sequence.tokens.push_back(token);
  ++stats_.num_new_tokens;
  const bool wanted = (*on_token_)(sequence.index, {token, draft, logits});
  if (!wanted || std::ranges::count(sequence.request->stop_tokens, token) > 0) {
    sequence.finished = FinishReason::kStop;
  } else if (sequence.len() - sequence.prompt_len() == sequence.request->max_new_tokens) {
    sequence.finished = FinishReason::kLength;
  }
  return !sequence.finished;
}

// Draft k comes from MTP layer k, whose row at a position reads the state of the layer before there and the token k + 1 places on; the
// last row reads the draft before. Beyond the last layer, that layer makes one more row of its own state and the draft before. What rows
// that read a draft leave in the cache is overwritten: the next round reads them again, and with them the last rows but one of the
// main model's state, which are kept.
void Scheduler::draft(const std::vector<Share>& shares) {
  if (options_.num_drafts == 0) {
    return;
  }
  auto jobs = plan_drafts(shares);
  std::vector<int32_t> kept_from;
  std::vector<int32_t> kept_to;
  for (DraftJob& job : jobs) {
    Sequence& sequence = *job.sequence;
    const int64_t num_kept = std::min(sequence.num_fed - job.first_position, mtp_depth_ - 1);
    const int64_t first_slot = engine_.options().limits.first_kept_state() + sequence.place * (mtp_depth_ - 1);
    kept_from.insert(kept_from.end(), job.state_rows.end() - num_kept, job.state_rows.end());
    for (int64_t i = 0; i < num_kept; ++i) {
      kept_to.push_back(static_cast<int32_t>(first_slot + i));
    }
    sequence.first_kept = sequence.num_fed - num_kept;
    if (job.num_drafts == 0) {
      job.state_rows.resize(job.state_rows.size() - static_cast<size_t>(num_kept));
    }
  }
  std::erase_if(jobs, [](const DraftJob& job) { return job.state_rows.empty(); });
  // Data-parallel ranks run every step together, also those for which they have nothing.
  const bool in_step = engine_.options().layout.dp > 1;
  for (int64_t place = 0; in_step ? place < options_.num_drafts : !jobs.empty(); ++place) {
    draft_next(place, jobs);
  }
  engine_.keep_states(kept_from, kept_to);
}

// All rows of the main model's state that the MTP layers have not read for good: kept ones, then those of the step that were right.
std::vector<Scheduler::DraftJob> Scheduler::plan_drafts(const std::vector<Share>& shares) {
  std::vector<DraftJob> jobs;
  for (const Share& share : shares) {
    Sequence& sequence = *share.sequence;
    const int64_t num_drafts = share.num_heads > 0 ? sequence.num_wanted_drafts(options_.num_drafts) : 0;
    if (sequence.finished || (share.num_heads > 0 && num_drafts <= 0)) {
      continue;
    }
    const int64_t first_slot = engine_.options().limits.first_kept_state() + sequence.place * (mtp_depth_ - 1);
    std::vector<int32_t> state_rows;
    for (int64_t position = sequence.first_kept; position < sequence.num_fed; ++position) {
      state_rows.push_back(static_cast<int32_t>(position < share.first_position
                                                    ? first_slot + position - sequence.first_kept
                                                    : share.first_row + position - share.first_position));
    }
    jobs.push_back({&sequence, sequence.first_kept, std::move(state_rows), share.prefills, num_drafts});
  }
  return jobs;
}

// One MTP step: draft `place` of every job that wants it.
void Scheduler::draft_next(int64_t place, std::vector<DraftJob>& jobs) {
  StepInput input;
  MtpInput mtp{.layer = std::min(place, mtp_depth_ - 1), .reads_main_state = place == 0};
  std::vector<HeadRow> heads;
  std::vector<Sequence*> owners;
  for (DraftJob& job : jobs) {
    const Sequence& sequence = *job.sequence;
    if (place >= mtp_depth_) {
      job.first_position = sequence.len() - 1 + place - mtp_depth_;
      job.state_rows = {job.state_rows.back()};
      job.prefills = false;
    }
    input.sequences.push_back(
        {job.first_position, static_cast<int64_t>(job.state_rows.size()), job.prefills, sequence.pages});
    owners.push_back(job.sequence);
    mtp.state_rows.insert(mtp.state_rows.end(), job.state_rows.begin(), job.state_rows.end());
    int64_t position = job.first_position;
    for (int32_t& row : job.state_rows) {
      row = static_cast<int32_t>(input.tokens.size());
      input.tokens.push_back(sequence.token(position + mtp.layer + 1));
      ++position;
    }
    if (job.num_drafts > 0) {
      input.head_rows.push_back(job.state_rows.back());
      heads.push_back({&sequence, sequence.drafts});
    }
  }
  engine_.run_mtp(mtp, input, watch_of(input, owners, mtp.layer));
  const auto sampled = sample(heads);
  auto draft = sampled.begin();
  for (const DraftJob& job : jobs) {
    if (job.num_drafts > 0) {
      job.sequence->drafts.push_back(*draft++);
    }
  }
  std::erase_if(jobs,
                [&](const DraftJob& job) { return place + 1 == (job.num_drafts > 0 ? job.num_drafts : mtp_depth_); });
}

std::vector<int32_t> Scheduler::sample(const std::vector<HeadRow>& heads) {
  if (heads.empty()) {
    return {};
  }
  std::vector<SamplerRow> rows;
  bool has_penalties = false;
  for (const auto& [sequence, ahead] : heads) {
    const model::Sampling& s = sequence->request->sampling;
    has_penalties = has_penalties || s.repetition_penalty != 1 || s.presence_penalty != 0 || s.frequency_penalty != 0;
    rows.push_back({.temperature = s.temperature,
                    .top_p = s.top_p,
                    .min_p = s.min_p,
                    .repetition_penalty = s.repetition_penalty,
                    .presence_penalty = s.presence_penalty,
                    .frequency_penalty = s.frequency_penalty,
                    .top_k = s.top_k,
                    .seed = s.seed,
                    .request = sequence->request->draw_request,
                    .position = sequence->len() + static_cast<int64_t>(ahead.size())});
  }
  if (!has_penalties) {
    return engine_.sample(rows);
  }
  const auto vocab = static_cast<size_t>(engine_.config().vocab_size);
  std::vector<uint8_t> is_in_prompt(heads.size() * vocab);
  std::vector<int32_t> num_generated(heads.size() * vocab);
  for (size_t row = 0; row < heads.size(); ++row) {
    const Sequence& sequence = *heads[row].sequence;
    for (int64_t i = 0; i < sequence.len(); ++i) {
      const size_t at = row * vocab + static_cast<size_t>(sequence.tokens[static_cast<size_t>(i)]);
      if (i < sequence.prompt_len()) {
        is_in_prompt[at] = 1;
      } else {
        ++num_generated[at];
      }
    }
    for (const int32_t draft : heads[row].ahead) {
      ++num_generated[row * vocab + static_cast<size_t>(draft)];
    }
  }
  return engine_.sample(rows, is_in_prompt, num_generated);
}

Watch Scheduler::watch_of(const StepInput& input,
                          const std::vector<Sequence*>& owners,
                          std::optional<int64_t> mtp_layer) const {
  if (!*on_step_) {
    return {};
  }
  StepInfo info;

  info.workload.only_mtp_layer = mtp_layer;
  for (size_t s = 0; s < owners.size(); ++s) {
    const auto& [num_cached, num_new, prefills, pages] = input.sequences[s];
    for (int64_t i = 0; i < num_new; ++i) {
      info.rows.push_back({static_cast<int64_t>(owners[s]->index), num_cached + i});
    }
    info.workload.sequences.push_back({num_cached, num_new});
    info.prefills = info.prefills || prefills;
  }
  info.workload.attention_form = info.prefills ? model::AttentionForm::kExpanded : model::AttentionForm::kAbsorbed;
  return (*on_step_)(info);
}

}  // namespace gpu
