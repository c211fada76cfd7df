#include "simulator/pipeline.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "model/check.hpp"

namespace simulator {
namespace {

constexpr std::array kSchedules{
    PipelineSchedule::kForward, PipelineSchedule::k1F1B, PipelineSchedule::kZb1P, PipelineSchedule::kDualPipe};

double real(int64_t value) {
  return static_cast<double>(value);
}

enum class Pass { kForward, kBackward };

// What one stage does with one micro-batch of one direction; direction 1 runs from the last rank to the first.
struct Chunk {
  Pass pass = Pass::kForward;
  int64_t direction = 0;
  int64_t batch = 0;

  auto operator<=>(const Chunk&) const = default;
};

// One or two chunks at once, or weight gradients, which need nothing that is not there.
struct PipelineOp {
  std::vector<Chunk> chunks = {};
  double duration = 0;
};

// Writes down a rank's list; counts micro-batches and weight gradients that are put off.
class RankList {
 public:
  explicit RankList(const PipelineTimes& times) : times_(times) {}

  void forward(int64_t direction) { ops_.push_back({{next(Pass::kForward, direction)}, times_.forward}); }
  void backward(int64_t direction) { ops_.push_back({{next(Pass::kBackward, direction)}, times_.backward}); }
  void backward_for_inputs(int64_t direction) {
    ops_.push_back({{next(Pass::kBackward, direction)}, times_.backward - times_.weight});
    ++num_put_off_;
  }
  void weights() {
    CHECK(num_put_off_ > 0);
    --num_put_off_;
    ops_.push_back({{}, times_.weight});
  }
  void both(int64_t forward_direction, int64_t backward_direction) {
    const Chunk forward = next(Pass::kForward, forward_direction);
    ops_.push_back({{forward, next(Pass::kBackward, backward_direction)}, times_.both});
  }

  std::vector<PipelineOp> done() {
    CHECK_EQ(num_put_off_, 0);
    return std::move(ops_);
  }

 private:
  Chunk next(Pass pass, int64_t direction) { return {pass, direction, num_of_[{pass, direction}]++}; }

  PipelineTimes times_;
  std::map<std::pair<Pass, int64_t>, int64_t> num_of_;
  int64_t num_put_off_ = 0;
  std::vector<PipelineOp> ops_;
};

std::vector<PipelineOp> one_way_list(
    PipelineSchedule schedule, int64_t rank, int64_t num_stages, int64_t num_batches, const PipelineTimes& times) {
  RankList list(times);
  const bool has_backward = schedule != PipelineSchedule::kForward;
  const bool puts_off = schedule == PipelineSchedule::kZb1P;
  const int64_t ahead = has_backward ? std::min(num_stages - 1 - rank, num_batches) : num_batches;
  for (int64_t i = 0; i < ahead; ++i) {
    list.forward(0);
  }
  if (!has_backward) {
    return list.done();
  }
  for (int64_t i = 0; i < num_batches; ++i) {
    if (i + ahead < num_batches) {
      list.forward(0);
    }
    if (puts_off) {
      // Later stages put off more: they have the activations of fewer micro-batches to keep.
      list.backward_for_inputs(0);
      if (i >= rank) {
        list.weights();
      }
    } else {
      list.backward(0);
    }
  }
  for (int64_t i = 0; puts_off && i < std::min(rank, num_batches); ++i) {
    list.weights();
  }
  return list.done();
}

// The report's figure 5 in eight parts. Ranks of the second half see the directions the other way round.
std::vector<PipelineOp> dual_pipe_list(int64_t rank,
                                       int64_t num_stages,
                                       int64_t num_batches,
                                       const PipelineTimes& times) {
  RankList list(times);
  const int64_t from_end = std::min(rank, num_stages - 1 - rank);
  const int64_t to_middle = num_stages / 2 - 1 - from_end;
  const bool is_middle = to_middle == 0;
  const int64_t own = rank < num_stages / 2 ? 0 : 1;
  const int64_t other = 1 - own;
  const auto repeat = [](int64_t times_to_do, const auto& body) {
    for (int64_t i = 0; i < times_to_do; ++i) {
      body(i);
    }
  };
  repeat(2 * to_middle, [&](int64_t) { list.forward(own); });
  repeat(from_end + 1, [&](int64_t) {
    list.forward(own);
    list.forward(other);
  });
  repeat(to_middle, [&](int64_t) {
    list.backward_for_inputs(other);
    list.weights();
    list.forward(other);
  });
  repeat(num_batches / 2 - num_stages + from_end + 1, [&](int64_t i) {
    if (i == 0 && is_middle) {
      list.forward(own);
      list.backward(other);
    } else {
      list.both(own, other);
    }
    list.both(other, own);
  });
  repeat(to_middle, [&](int64_t) {
    list.backward(other);
    list.both(other, own);
  });
  // From half of these on, weight gradients wait for the gaps of the end.
  const int64_t turn = (from_end + 1) / 2;
  repeat(from_end + 1, [&](int64_t i) {
    const bool other_waits = i > turn || (i == turn && from_end % 2 == 1);
    const bool own_waits = i >= turn;
    other_waits ? list.backward_for_inputs(other) : list.backward(other);
    own_waits ? list.backward_for_inputs(own) : list.backward(own);
  });
  repeat(to_middle, [&](int64_t) {
    list.weights();
    list.backward_for_inputs(own);
  });
  repeat(from_end + 1, [&](int64_t) { list.weights(); });
  return list.done();
}

constexpr std::string_view kDualPipeNeeds = "needs even numbers, and two micro-batches a stage";

bool fits_dual_pipe(int64_t num_stages, int64_t num_batches) {
  return num_stages % 2 == 0 && num_batches % 2 == 0 && num_batches >= 2 * num_stages;
}

// When results of a chunk are there, by (chunk, rank).
using Finished = std::map<std::pair<Chunk, int64_t>, double>;

// When the inputs of a chunk are on the rank; empty while they are not.
std::optional<double> ready(const Finished& finished, const Chunk& chunk, int64_t rank, int64_t num_stages) {
  const bool moves_up = (chunk.pass == Pass::kForward) == (chunk.direction == 0);
  const int64_t source = moves_up ? rank - 1 : rank + 1;
  if (source >= 0 && source < num_stages) {
    const auto found = finished.find({chunk, source});
    return found == finished.end() ? std::nullopt : std::optional(found->second);
  }
  if (chunk.pass == Pass::kForward) {
    return 0;
  }
  const auto found = finished.find({{Pass::kForward, chunk.direction, chunk.batch}, rank});
  return found == finished.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace

std::string_view schedule_name(PipelineSchedule schedule) {
  switch (schedule) {
    case PipelineSchedule::kForward: return "forward";
    case PipelineSchedule::k1F1B: return "1F1B";
    case PipelineSchedule::kZb1P: return "ZB1P";
    case PipelineSchedule::kDualPipe: return "DualPipe";
  }
  return "";
}

void check_pipeline(PipelineSchedule schedule, int64_t num_stages, int64_t num_batches) {
  constexpr int64_t kMost = 1 << 18;
  if (num_stages < 1 || num_stages > kMost || num_batches < 1 || num_batches > kMost / num_stages) {
    model::throw_input_error(
        "{} stages, {} micro-batches: expected at least 1 of each, and {} of them multiplied at most",
        num_stages,
        num_batches,
        kMost);
  }
  if (schedule == PipelineSchedule::kDualPipe && !fits_dual_pipe(num_stages, num_batches)) {
    model::throw_input_error(
        "DualPipe with {} stages and {} micro-batches: {}", num_stages, num_batches, kDualPipeNeeds);
  }
}

double bubble_formula(PipelineSchedule schedule, int64_t num_stages, const PipelineTimes& times) {
  const double gaps = real(num_stages - 1);
  switch (schedule) {
    case PipelineSchedule::kForward: return gaps * times.forward;
    case PipelineSchedule::k1F1B: return gaps * (times.forward + times.backward);
    case PipelineSchedule::kZb1P: return gaps * (times.forward + times.backward - 2 * times.weight);
    case PipelineSchedule::kDualPipe:
      return (real(num_stages) / 2 - 1) * (times.both + times.backward - 3 * times.weight);
  }
  return 0;
}

double PipelineRun::bubble() const {
  return makespan - std::ranges::min(busy);
}

PipelineRun run_pipeline(PipelineSchedule schedule,
                         int64_t num_stages,
                         int64_t num_batches,
                         const PipelineTimes& times) {
  check_pipeline(schedule, num_stages, num_batches);
  std::vector<std::vector<PipelineOp>> lists;
  for (int64_t rank = 0; rank < num_stages; ++rank) {
    lists.push_back(schedule == PipelineSchedule::kDualPipe
                        ? dual_pipe_list(rank, num_stages, num_batches, times)
                        : one_way_list(schedule, rank, num_stages, num_batches, times));
  }
  PipelineRun run{.makespan = 0, .busy = std::vector<double>(lists.size(), 0.0)};
  Finished finished;
  std::vector<size_t> next(lists.size(), 0);
  std::vector<double> free_at(lists.size(), 0.0);
  // Times follow from inputs alone, so ranks may be served in any order, as long as somebody gets on.
  for (bool has_moved = true; has_moved;) {
    has_moved = false;
    for (size_t rank = 0; rank < lists.size(); ++rank) {
      while (next[rank] < lists[rank].size()) {
        const PipelineOp& op = lists[rank][next[rank]];
        double start = free_at[rank];
        const bool is_ready = std::ranges::all_of(op.chunks, [&](const Chunk& chunk) {
          const std::optional<double> at = ready(finished, chunk, static_cast<int64_t>(rank), num_stages);
          start = std::max(start, at.value_or(0));
          return at.has_value();
        });
        if (!is_ready) {
          break;
        }
        free_at[rank] = start + op.duration;
        run.busy[rank] += op.duration;
        for (const Chunk& chunk : op.chunks) {
          finished[{chunk, static_cast<int64_t>(rank)}] = free_at[rank];
        }
        ++next[rank];
        has_moved = true;
      }
    }
  }
  for (size_t rank = 0; rank < lists.size(); ++rank) {
    CHECK_EQ(next[rank], lists[rank].size());  // a schedule that waits for itself
    run.makespan = std::max(run.makespan, free_at[rank]);
  }
  return run;
}

Table pipeline_table(int64_t num_stages, int64_t num_batches, const PipelineTimes& times) {
  Table table{.name = "pipeline",
              .title = "Schedules of one pipeline, times in the unit of the flags",
              .columns = {{"schedule", "schedule"},
                          {"bubble", "bubble by formula", {}, 1, 3},
                          {"run_bubble", "by running it", {}, 1, 3},
                          {"makespan", "all micro-batches", {}, 1, 3},
                          {"idle_pct", "idle", "%", 1, 1},
                          {"formula", "formula"}}};
  constexpr std::array kFormulas{"(P-1) F", "(P-1)(F+B)", "(P-1)(F+B-2W)", "(P/2-1)(F&B+B-3W)"};
  for (size_t i = 0; i < kSchedules.size(); ++i) {
    const PipelineSchedule schedule = kSchedules.at(i);
    if (schedule == PipelineSchedule::kDualPipe && !fits_dual_pipe(num_stages, num_batches)) {
      table.add({std::string(schedule_name(schedule)), {}, {}, {}, {}, std::string(kDualPipeNeeds)});
      continue;
    }
    const PipelineRun run = run_pipeline(schedule, num_stages, num_batches, times);
    table.add({std::string(schedule_name(schedule)),
               bubble_formula(schedule, num_stages, times),
               run.bubble(),
               run.makespan,
               100 * run.bubble() / run.makespan,
               std::string(kFormulas.at(i))});
  }
  return table;
}

}  // namespace simulator
