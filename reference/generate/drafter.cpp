#include "reference/generate/drafter.hpp"

#include <algorithm>
#include <array>

#include "reference/values.hpp"

namespace reference {

// One sequence's share of a call.
struct Drafter::Work {
  const DraftJob* job = nullptr;
  int64_t first = 0;         // position of the first row of `states`
  model::TensorView states;  // that the next layer reads [rows, hidden]
  std::vector<int32_t> drafts;

  [[nodiscard]] int64_t num_rows() const { return states.num_rows(); }
  // The token that the row at a position reads, `ahead` places on: a known one or a draft.
  [[nodiscard]] int32_t token(int64_t position) const {
    const auto known = static_cast<int64_t>(job->tokens.size());
    return position < known ? job->tokens[static_cast<size_t>(position)]
                            : drafts.at(static_cast<size_t>(position - known));
  }
};

void Drafter::observe(int64_t sequence, const model::TensorView& states) {
  Pending& pending = pending_[sequence];
  pending.states = join_rows(std::array{pending.states, states});
}

// Runs one MTP layer on the states of every job and appends the draft that its last row makes. Row i, at the layer's depth d, reads
// the token d + 1 places on. Afterwards `states` are the layer's own.
void Drafter::run_layer(
    int64_t mtp_layer, std::vector<Work>& work, model::AttentionForm form, LatentCache& cache, StepProbe* probe) {
  std::vector<std::vector<model::TensorView>> made(work.size());
  std::vector<int64_t> done(work.size());
  while (true) {
    std::vector<int64_t> left;
    for (size_t w = 0; w < work.size(); ++w) {
      left.push_back(work[w].num_rows() - done[w]);
    }
    const auto pieces = next_pieces(left, piece_len_);
    if (pieces.empty()) {
      break;
    }
    StepInput input;
    input.workload.attention_form = form;
    input.workload.only_mtp_layer = mtp_layer;
    input.mtp_tokens.resize(static_cast<size_t>(mtp_layer) + 1);
    std::vector<model::TensorView> states;
    std::vector<RowOrigin> origins;
    for (const auto& [item, count] : pieces) {
      const Work& part = work[item];
      const int64_t begin = part.first + done[item];
      input.workload.sequences.push_back({.num_cached = begin, .num_new = count});
      input.cache_sequences.push_back(part.job->sequence);
      states.push_back(model::slice_rows(part.states, done[item], done[item] + count));
      // The last row always reads the newest token: the last known one, or the draft before.
      const auto newest = static_cast<int64_t>(part.job->tokens.size() + part.drafts.size()) - 1;
      const int64_t ahead = newest - (part.first + part.num_rows() - 1);
      for (int64_t position = begin; position < begin + count; ++position) {
        input.mtp_tokens.back().push_back(part.token(position + ahead));
        origins.push_back({.request = part.job->sequence, .position = position});
      }
    }
    input.mtp_state = join_rows(states);
    input.with_logits = false;
    if (probe != nullptr) {
      probe->enter_step(std::move(origins));
    }
    StateProbe watch("mtp." + std::to_string(mtp_layer) + ".norm", probe);
    transformer_.step(input, cache, watch);
    int64_t row = 0;
    for (const auto& [item, count] : pieces) {
      made[item].push_back(model::slice_rows(watch.state(), row, row + count));
      row += count;
      done[item] += count;
    }
  }
  std::vector<model::TensorView> last;
  for (size_t w = 0; w < work.size(); ++w) {
    work[w].states = join_rows(made[w]);
    last.push_back(model::slice_rows(work[w].states, work[w].num_rows() - 1, work[w].num_rows()));
  }
  const auto logits = transformer_.logits(join_rows(last), mtp_layer, probe);
  for (size_t w = 0; w < work.size(); ++w) {
    const auto row = load<double>(model::slice_rows(logits, static_cast<int64_t>(w), static_cast<int64_t>(w) + 1));
    work[w].drafts.push_back(work[w].job->choose(work[w].drafts, row));
  }
}

std::vector<std::vector<int32_t>> Drafter::propose(std::span<const DraftJob> jobs,
                                                   model::AttentionForm form,
                                                   LatentCache& cache,
                                                   StepProbe* probe) {
  const int64_t num_mtp_layers = transformer_.config().num_nextn_predict_layers;
  CHECK(num_mtp_layers > 0);
  std::vector<Work> work;
  std::vector<size_t> job_of_work;
  int64_t most = 0;
  for (size_t j = 0; j < jobs.size(); ++j) {
    if (jobs[j].count > 0) {
      const Pending& pending = pending_.at(jobs[j].sequence);
      CHECK_EQ(pending.first + pending.states.num_rows(), static_cast<int64_t>(jobs[j].tokens.size()) - 1);
      work.push_back({.job = &jobs[j], .first = pending.first, .states = pending.states, .drafts = {}});
      job_of_work.push_back(j);
      most = std::max(most, jobs[j].count);
    }
  }
  std::vector<std::vector<int32_t>> drafts(jobs.size());
  for (int64_t k = 0; k < most; ++k) {
    if (k < num_mtp_layers) {
      run_layer(k, work, form, cache, probe);
    } else {
      for (Work& part : work) {
        const int64_t rows = part.num_rows();
        part.first += rows;
        part.states = model::slice_rows(part.states, rows - 1, rows);
      }
      run_layer(num_mtp_layers - 1, work, decode_form_, cache, probe);
    }
    for (size_t w = work.size(); w-- > 0;) {
      if (work[w].job->count == k + 1) {
        drafts[job_of_work[w]] = std::move(work[w].drafts);
        work.erase(work.begin() + static_cast<int64_t>(w));
        job_of_work.erase(job_of_work.begin() + static_cast<int64_t>(w));
      }
    }
  }
  // Rows of depth k that read a draft are not for good; the deepest layer has num_mtp_layers - 1 of them. All start again there.
  for (const DraftJob& job : jobs) {
    if (job.count > 0) {
      Pending& pending = pending_.at(job.sequence);
      const int64_t end = pending.first + pending.states.num_rows();
      const int64_t kept_first = std::max<int64_t>(0, end - (num_mtp_layers - 1));
      cache.truncate(job.sequence, kept_first, transformer_.config().num_hidden_layers);
      pending.states = kept_first == end
                           ? model::TensorView{}
                           : model::slice_rows(pending.states, kept_first - pending.first, end - pending.first);
      pending.first = kept_first;
    }
  }
  return drafts;
}

}  // namespace reference
