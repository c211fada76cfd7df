// Generates tokens for many requests at once: every step takes one token, and its drafts, of each sequence that decodes and a chunk of
// the prompts of those that do not yet; a request starts when there is room for all of it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <optional>
#include <span>
#include <vector>

#include "gpu/engine/engine.hpp"
#include "gpu/engine/page_pool.hpp"
#include "model/sampling.hpp"

namespace gpu {

struct Request {
  std::vector<int32_t> prompt = {};  // at least one token, inside the vocabulary
  int64_t max_new_tokens = 1;
  model::Sampling sampling = {};
  int64_t draw_request = 0;               // model::DrawPlace::request
  std::vector<int32_t> stop_tokens = {};  // generation ends with the first of them, which is still given
};

struct NewToken {
  int32_t id = 0;
  std::optional<int32_t> draft = {};   // what was drafted for this place; accepted if equal
  std::span<const float> logits = {};  // [vocab], with SchedulerOptions::with_logits; valid during the call
};

enum class FinishReason { kLength, kStop };

struct SchedulerOptions {
  int64_t chunk_len = 512;  // prompt tokens of all sequences in one step
  int64_t num_drafts = 0;   // draft k by MTP layer k; beyond the last layer by that one, fed with its own state
  bool with_logits = false;
};

struct SchedulerStats {
  int64_t num_prompt_tokens = 0;
  int64_t num_new_tokens = 0;
  double prefill_s = 0;                    // of steps in which a prompt is read, drafting included
  double decode_s = 0;                     // of the others
  std::vector<int64_t> num_drafted = {};   // by place of the draft in its step
  std::vector<int64_t> num_accepted = {};  // likewise
};

// A step as somebody who watches sees it.
struct StepInfo {
  struct Row {
    int64_t request = 0;
    int64_t position = 0;
  };
  std::vector<Row> rows = {};
  model::Workload workload =
      {};                 // of the main model, or of an MTP layer alone; expanded attention if a sequence prefills
  bool prefills = false;  // some sequence reads its prompt
};

class Scheduler {
 public:
  // Called with each new token in order; false ends that request (FinishReason::kStop).
  using OnToken = std::function<bool(size_t request, const NewToken& token)>;
  // Asked before each step who watches it; may be null.
  using OnStep = std::function<Watch(const StepInfo& step)>;

  // The engine's limits must hold a chunk, and a row and its drafts for each of its max_sequences.
  Scheduler(Engine& engine, const SchedulerOptions& options);

  // Throws InputError when a request alone does not fit into the engine's pages or positions.
  // The tokens of a request do not depend on the others, on chunk_len or num_drafts.
  std::vector<FinishReason> run(const std::vector<Request>& requests,
                                const OnToken& on_token,
                                const OnStep& on_step = {});

  [[nodiscard]] const SchedulerStats& stats() const { return stats_; }

  // Limits of an engine for up to max_sequences sequences of up to max_len positions under these options.
  static StepLimits limits_of(const model::ModelConfig& config,
                              const SchedulerOptions& options,
                              int64_t max_sequences,
                              int64_t max_len);

 private:
  struct Sequence;
  struct Share;  // a sequence's part of the step under way
  struct HeadRow;
  struct DraftJob;

  void admit();
  void step();
  std::vector<Share> plan_step();
  void accept(std::vector<Share>& shares, const std::vector<HeadRow>& heads, const std::vector<int32_t>& sampled);
  bool add_token(Sequence& sequence, int32_t token, std::optional<int32_t> draft, std::span<const float> logits);
  void draft(const std::vector<Share>& shares);
  std::vector<DraftJob> plan_drafts(const std::vector<Share>& shares);
  void draft_next(int64_t place, std::vector<DraftJob>& jobs);
  std::vector<int32_t> sample(const std::vector<HeadRow>& heads);
  Watch watch_of(const StepInput& input, const std::vector<Sequence*>& owners, std::optional<int64_t> mtp_layer) const;

  Engine& engine_;
  SchedulerOptions options_;
  int64_t mtp_depth_;  // MTP layers that draft
  PagePool pool_;
  SchedulerStats stats_;
  std::deque<Sequence*> waiting_;
  std::vector<Sequence*> active_;
  const OnToken* on_token_ = nullptr;
  const OnStep* on_step_ = nullptr;
};

}  // namespace gpu
