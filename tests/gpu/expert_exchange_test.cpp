// Dispatch, receive and combine of several ranks, held against the definition of the sum on the host: to the bit, over steps that use
// the same memory again, with ranks that have no tokens, experts that get all or none, copies of experts and padding.
// One file, because all cases run in one small world of ranks that takes half of it to set up.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "gpu/kernels/dispatch.cuh"
#include "gpu/kernels/pull_combine.cuh"
#include "mutants/combine_no_wait.cuh"
#include "mutants/combine_other_copy.cuh"
#include "mutants/dispatch_no_fence.cuh"
#include "mutants/dispatch_no_wait.cuh"
#include "mutants/forward_no_wait.cuh"
#include "tests/gpu/ranks.hpp"

namespace gpu::DSV3_BACKEND {
namespace {

constexpr int kSteps = 3;
constexpr int kNobody = -1;

enum class Routing { kRandom, kAllToTheFirst, kWithPadding };

struct Case {
  const char* name;
  int num_ranks;
  int num_experts;
  int k;
  int64_t max_tokens;
  std::vector<int64_t> tokens_of_rank;  // turned by one rank with each step
  Routing routing = Routing::kRandom;
  bool is_fp8 = true;
  bool has_copies = false;  // the first half of the experts has two
  bool is_graph = false;
  int hidden = 144;        // its last block of scales is ragged
  int ranks_per_node = 0;  // tokens go by way of nodes; 0: straight
};

void PrintTo(const Case& c, std::ostream* out) {  // NOLINT(readability-identifier-naming): googletest's name
  *out << c.name;
}

// --- What a step is made of, the same for everybody who asks ---

int64_t num_tokens(const Case& c, int step, int rank) {
  return c.tokens_of_rank[static_cast<size_t>((rank + step) % c.num_ranks)];
}

struct Tokens {  // of one rank in one step
  QuantizedRows fp8;
  std::vector<half16> values;
  std::vector<int32_t> ids;
  std::vector<float> weights;
  std::vector<half16> shared;
};

Tokens tokens_of(const Case& c, int step, int rank) {
  const int64_t count = num_tokens(c, step, rank);
  const auto seed = static_cast<uint32_t>(100 * step + rank + 1);
  Tokens tokens;
  tokens.values = random_bf16(count * c.hidden, 1, seed);
  tokens.fp8 = quantized(tokens.values, c.hidden, count);
  tokens.shared = random_bf16(count * c.hidden, 1, seed + 50);
  std::mt19937 engine(seed);
  std::vector<int32_t> experts(static_cast<size_t>(c.num_experts));
  for (int64_t token = 0; token < count; ++token) {
    std::iota(experts.begin(), experts.end(), 0);
    if (c.routing != Routing::kAllToTheFirst) {
      std::shuffle(experts.begin(), experts.end(), engine);
    }
    for (int choice = 0; choice < c.k; ++choice) {
      // Padding: every third token is none, and others miss a choice.
      const bool is_padding =
          c.routing == Routing::kWithPadding && (token % 3 == step % 3 || (token + choice) % 5 == 0);
      tokens.ids.push_back(is_padding ? kNobody : experts[static_cast<size_t>(choice)]);
      tokens.weights.push_back(std::uniform_real_distribution<float>(0.1f, 2)(engine));
    }
  }
  return tokens;
}

ExpertPlacement placement_of(const Case& c) {
  if (!c.has_copies) {
    return contiguous_placement(c.num_experts, c.num_ranks);
  }
  std::vector<int32_t> expert_of_slot;
  for (int copy = 0; copy < c.num_experts + c.num_experts / 2; ++copy) {
    expert_of_slot.push_back(copy % c.num_experts);
  }
  expert_of_slot.resize((expert_of_slot.size() + static_cast<size_t>(c.num_ranks) - 1) /
                            static_cast<size_t>(c.num_ranks) * static_cast<size_t>(c.num_ranks),
                        kNobody);
  return placement_of_slots(expert_of_slot, c.num_experts, c.num_ranks);
}

// What stands in for an expert: it multiplies by a number of its own and rounds.
float factor_of(int32_t expert) {
  return 0.75f + 0.37f * static_cast<float>(expert);
}

// By the definition: FP32, ascending expert ids, each product and each sum rounded, the shared expert last, BF16 once.
std::vector<half16> expected_out(const Case& c, const Tokens& tokens) {
  std::vector<half16> out;
  const auto hidden = static_cast<size_t>(c.hidden);
  const auto k = static_cast<size_t>(c.k);
  const size_t count = tokens.shared.size() / hidden;
  for (size_t token = 0; token < count; ++token) {
    std::vector<std::pair<int32_t, float>> choices;
    for (size_t choice = token * k; choice < (token + 1) * k; ++choice) {
      if (tokens.ids[choice] != kNobody) {
        choices.emplace_back(tokens.ids[choice], tokens.weights[choice]);
      }
    }
    std::sort(choices.begin(), choices.end());
    for (size_t i = 0; i < hidden; ++i) {
      const size_t at = token * hidden + i;
      const float x =
          c.is_fp8 ? model::decode_f8_e4m3(tokens.fp8.codes[at].bits) * tokens.fp8.scales[i / 128 * count + token]
                   : model::decode_bf16(tokens.values[at].bits);
      float sum = 0;
      for (const auto& [expert, weight] : choices) {
        const float y = model::decode_bf16(reference::encode_bf16(x * factor_of(expert)));
        const float product = y * weight;
        sum = sum + product;
      }
      out.push_back({reference::encode_bf16(sum + model::decode_bf16(tokens.shared[at].bits))});
    }
  }
  return out;
}

struct StandInArguments {
  TokenInbox inbox;
  half16* expert_rows = nullptr;
  const float* scales = nullptr;
  const int32_t* token_of_row = nullptr;
  const int32_t* num_valid = nullptr;
  const float* factors = nullptr;  // [slots_per_rank]
  int64_t max_rows = 0;
  int hidden = 0;
};
GPU_KERNEL stand_in_kernel(StandInArguments a) {
  const auto row = static_cast<int64_t>(block_idx().x);
  const auto slot = static_cast<int64_t>(block_idx().y);
  if (row >= a.num_valid[slot]) {
    return;
  }
  const int64_t from = a.token_of_row[slot * a.max_rows + row];
  for (int i = static_cast<int>(thread_idx().x); i < a.hidden; i += kLanes) {
    const float x = a.scales != nullptr
                        ? multiply(to_float(a.inbox.codes[from * a.hidden + i]), a.scales[i / 128 * a.max_rows + from])
                        : to_float(a.inbox.values[from * a.hidden + i]);
    a.expert_rows[(slot * a.max_rows + row) * a.hidden + i] = to_half16(multiply(x, a.factors[slot]));
  }
}

// --- One rank ---

struct Launchers {
  void (*dispatch)(Stream, const DispatchArguments&) = gpu::DSV3_BACKEND::dispatch;
  void (*dispatch_by_nodes)(Stream,
                            const DispatchArguments&,
                            const NodeArguments&) = gpu::DSV3_BACKEND::dispatch_by_nodes;
  void (*receive)(Stream, const ReceiveArguments&) = gpu::DSV3_BACKEND::receive;
  void (*combine)(Stream, const PullCombineArguments&) = pull_combine;
};

class Rank {
 public:
  // `placement`: what this rank believes. factors: what its slots hold.
  Rank(const Case& of,
       int rank,
       const ExpertPlacement& placement,
       const std::vector<float>& of_slots,
       Device& on,
       Stream s)
      : c(of),
        device(on),
        stream(s),
        max_rows(c.num_ranks * c.max_tokens),
        num_slots(placement.slots_per_rank),
        num_blocks((c.hidden + 127) / 128),
        first_copy(on, s, placement.first_copy, "first_copy"),
        place_of_copy(on, s, placement.place_of_copy, "place_of_copy"),
        factors(on, s, of_slots, "factors"),
        inboxes(on, s, c.num_ranks, "inboxes"),
        results(on, s, c.num_ranks, "results"),
        group{inboxes.data(), results.data(), epoch.data(), c.max_tokens, c.num_ranks, rank, c.k, c.hidden},
        places{first_copy.data(), place_of_copy.data(), c.num_experts, num_slots} {}

  [[nodiscard]] TokenInbox inbox() const {
    return {c.is_fp8 ? codes.data() : nullptr,
            c.is_fp8 ? sent_scales.data() : nullptr,
            c.is_fp8 ? nullptr : values.data(),
            slots.data(),
            arrived.data()};
  }
  [[nodiscard]] TokenInbox node_inbox() const {
    return {c.is_fp8 ? node_codes.data() : nullptr,
            c.is_fp8 ? node_scales.data() : nullptr,
            c.is_fp8 ? nullptr : node_values.data(),
            node_slots.data(),
            node_arrived.data()};
  }
  [[nodiscard]] ExpertResults own_results() const {
    return {row_of_choice.data(), expert_rows.data(), finished.data()};
  }

  void upload(const Tokens& tokens) {
    const auto put = [](auto& buffer, const auto& from) {
      if (!from.empty()) {
        buffer.upload(from);
      }
    };
    put(own_codes, tokens.fp8.codes);
    put(own_scales, tokens.fp8.scales);
    put(own_values, tokens.values);
    put(ids, tokens.ids);
    put(weights, tokens.weights);
    put(shared, tokens.shared);
    device.enqueue_fill(
        stream, out.data(), std::byte{0xFF}, c.max_tokens * c.hidden * 2);  // rows without a token stay NaN
  }

  void launch_step(int64_t count, const Launchers& launchers) {
    const DispatchArguments tokens{.group = group,
                                   .places = places,
                                   .codes = c.is_fp8 ? own_codes.data() : nullptr,
                                   .scales = own_scales.data(),
                                   .values = c.is_fp8 ? nullptr : own_values.data(),
                                   .topk_ids = ids.data(),
                                   .arrivals = arrivals.data(),
                                   .num_tokens = count,
                                   .scale_stride = count};
    if (c.ranks_per_node == 0) {
      launchers.dispatch(stream, tokens);
    } else {
      launchers.dispatch_by_nodes(stream,
                                  tokens,
                                  {.inboxes = node_inboxes.data(),
                                   .own = node_inbox(),
                                   .arrivals = forward_arrivals.data(),
                                   .ranks_per_node = c.ranks_per_node});
    }
    launchers.receive(stream,
                      {.group = group,
                       .own = inbox(),
                       .row_of_choice = row_of_choice.data(),
                       .scales = c.is_fp8 ? scales.data() : nullptr,
                       .token_of_row = token_of_row.data(),
                       .num_valid = num_valid.data(),
                       .slots_per_rank = num_slots});
    // Before peers hear that this rank is done with them.
    device.enqueue_copy(
        stream, seen_slots.data(), slots.data(), max_rows * c.k * static_cast<int64_t>(sizeof(int32_t)));
    launch(stream,
           {.name = "stand_in",
            .grid = {static_cast<unsigned>(max_rows), static_cast<unsigned>(num_slots)},
            .block = {kLanes}},
           stand_in_kernel,
           StandInArguments{.inbox = inbox(),
                            .expert_rows = expert_rows.data(),
                            .scales = c.is_fp8 ? scales.data() : nullptr,
                            .token_of_row = token_of_row.data(),
                            .num_valid = num_valid.data(),
                            .factors = factors.data(),
                            .max_rows = max_rows,
                            .hidden = c.hidden});
    launchers.combine(stream,
                      {.group = group,
                       .places = places,
                       .topk_ids = ids.data(),
                       .topk_weights = weights.data(),
                       .shared = shared.data(),
                       .out = out.data(),
                       .num_tokens = count});
  }

  const Case c;
  Device& device;
  const Stream stream;
  const int64_t max_rows;
  const int num_slots;
  const int64_t num_blocks;
  const Buffer<int32_t> first_copy;
  const Buffer<int32_t> place_of_copy;
  const Buffer<float> factors;
  Buffer<TokenInbox> inboxes;
  Buffer<ExpertResults> results;
  Buffer<uint32_t> epoch{device, stream, std::vector<uint32_t>{0}, "epoch"};
  const ExpertGroup group;
  const ExpertPlaces places;
  Buffer<int32_t> arrivals{device, stream, std::vector<int32_t>{0}, "arrivals"};
  Buffer<fp8_e4m3> own_codes{device, stream, c.max_tokens* c.hidden, "own_codes"};
  Buffer<float> own_scales{device, stream, c.max_tokens* num_blocks, "own_scales"};
  Buffer<half16> own_values{device, stream, c.max_tokens* c.hidden, "own_values"};
  Buffer<int32_t> ids{device, stream, c.max_tokens* c.k, "topk_ids"};
  Buffer<float> weights{device, stream, c.max_tokens* c.k, "topk_weights"};
  Buffer<half16> shared{device, stream, c.max_tokens* c.hidden, "shared"};
  Buffer<half16> out{device, stream, c.max_tokens* c.hidden, "out"};
  Buffer<fp8_e4m3> codes{device, stream, max_rows* c.hidden, "codes"};
  Buffer<float> sent_scales{device, stream, max_rows* num_blocks, "sent_scales"};
  Buffer<half16> values{device, stream, max_rows* c.hidden, "values"};
  Buffer<int32_t> slots{device, stream, max_rows* c.k, "slots"};
  Buffer<uint32_t> arrived{device, stream, zero_flags(), "arrived"};
  Buffer<int32_t> seen_slots{device, stream, max_rows* c.k, "seen_slots"};
  Buffer<int32_t> row_of_choice{
      device, stream, std::vector<int32_t>(static_cast<size_t>(max_rows* c.k), 0), "row_of_choice"};
  Buffer<half16> expert_rows{device, stream, num_slots* max_rows* c.hidden, "expert_rows"};
  Buffer<uint32_t> finished{device, stream, zero_flags(), "finished"};
  Buffer<float> scales{device, stream, num_blocks* max_rows, "scales"};
  Buffer<int32_t> token_of_row{device, stream, num_slots* max_rows, "token_of_row"};
  Buffer<int32_t> num_valid{device, stream, num_slots, "num_valid"};
  // For the way by nodes; as many nodes as ranks would be enough for any layout.
  Buffer<TokenInbox> node_inboxes{device, stream, c.num_ranks, "node_inboxes"};
  Buffer<int32_t> forward_arrivals{device, stream, std::vector<int32_t>{0}, "forward_arrivals"};
  Buffer<fp8_e4m3> node_codes{device, stream, max_rows* c.hidden, "node_codes"};
  Buffer<float> node_scales{device, stream, max_rows* num_blocks, "node_scales"};
  Buffer<half16> node_values{device, stream, max_rows* c.hidden, "node_values"};
  Buffer<int32_t> node_slots{device, stream, max_rows* c.k, "node_slots"};
  Buffer<uint32_t> node_arrived{device, stream, zero_flags(), "node_arrived"};

 private:
  [[nodiscard]] std::vector<uint32_t> zero_flags() const {
    return std::vector<uint32_t>(static_cast<size_t>(c.num_ranks), 0);
  }
};

// --- All ranks ---

struct Setting {
  std::vector<ExpertPlacement> believed;    // by each rank
  std::vector<std::vector<float>> factors;  // what each rank's slots hold
  Launchers launchers = {};
  int absent_rank = kNobody;  // takes no part from the second step on
  double peer_timeout_s = 60;
};

Setting right_setting(const Case& c) {
  const auto placement = placement_of(c);
  Setting setting{std::vector<ExpertPlacement>(static_cast<size_t>(c.num_ranks), placement), {}};
  setting.factors.assign(static_cast<size_t>(c.num_ranks),
                         std::vector<float>(static_cast<size_t>(placement.slots_per_rank), std::nanf("")));
  for (int32_t expert = 0; expert < c.num_experts; ++expert) {
    for (auto copy = placement.first_copy[static_cast<size_t>(expert)];
         copy < placement.first_copy[static_cast<size_t>(expert) + 1];
         ++copy) {
      const auto [rank, slot] =
          std::div(placement.place_of_copy[static_cast<size_t>(copy)], static_cast<int>(placement.slots_per_rank));
      setting.factors[static_cast<size_t>(rank)][static_cast<size_t>(slot)] = factor_of(expert);
    }
  }
  return setting;
}

struct StepResult {
  std::vector<half16> out;         // [max_tokens, hidden]
  std::vector<int32_t> slots;      // received
  std::vector<int32_t> num_valid;  // [slots_per_rank]
  int64_t stored_bytes = 0;        // by dispatch, if checked
};

// [rank][step]
std::vector<std::vector<StepResult>> run(const Case& c, const emulation::Order& order, const Setting& setting) {
  Ranks ranks(c.num_ranks, {.order = order, .peer_timeout_s = setting.peer_timeout_s});
  std::vector<std::unique_ptr<Rank>> members;
  std::vector<TokenInbox> inboxes;
  std::vector<TokenInbox> node_inboxes;
  std::vector<ExpertResults> of_experts;
  for (int rank = 0; rank < c.num_ranks; ++rank) {
    const auto at = static_cast<size_t>(rank);
    members.push_back(std::make_unique<Rank>(
        c, rank, setting.believed[at], setting.factors[at], ranks.device(rank), ranks.stream(rank)));
    inboxes.push_back(members.back()->inbox());
    node_inboxes.push_back(members.back()->node_inbox());
    of_experts.push_back(members.back()->own_results());
  }
  for (int rank = 0; rank < c.num_ranks; ++rank) {
    Rank& member = *members[static_cast<size_t>(rank)];
    member.inboxes.upload(inboxes);
    member.results.upload(of_experts);
    std::vector<TokenInbox> of_place;
    for (int other = 0; other < c.num_ranks && c.ranks_per_node > 0; ++other) {
      if (other % c.ranks_per_node == rank % c.ranks_per_node) {
        of_place.push_back(node_inboxes[static_cast<size_t>(other)]);
      }
    }
    member.node_inboxes.upload(of_place);
  }
  std::vector<std::vector<StepResult>> results(members.size());
  ranks.run([&](int rank) {
    Rank& me = *members[static_cast<size_t>(rank)];
    emulation::Graph graph;
    if (c.is_graph) {
      me.device.begin_capture(me.stream);
      me.launch_step(num_tokens(c, 0, rank), setting.launchers);
      graph = me.device.end_capture(me.stream);
    }
    for (int step = 0; step < kSteps && (step == 0 || rank != setting.absent_rank); ++step) {
      me.upload(tokens_of(c, step, rank));
      std::this_thread::sleep_for(std::chrono::milliseconds((rank + step) % 3));  // some ranks come late
      me.device.reset_counters();
      if (c.is_graph) {
        me.device.launch(me.stream, graph);
      } else {
        me.launch_step(num_tokens(c, step, rank), setting.launchers);
      }
      me.device.synchronize();
      const auto& counters = me.device.counters().at("dispatch");
      results[static_cast<size_t>(rank)].push_back(
          {me.out.download(), me.seen_slots.download(), me.num_valid.download(), counters.bytes_stored});
    }
  });
  return results;
}

bool same_bits(half16 a, half16 b) {
  return a.bits == b.bits;
}

// The first row of `out` that is not as expected, NaN beyond the tokens included; kNobody: none.
int64_t first_wrong_row(const Case& c, const Tokens& tokens, const std::vector<half16>& out) {
  std::vector<half16> expected = expected_out(c, tokens);
  expected.resize(out.size(), half16{0xFFFF});
  const auto wrong = std::mismatch(out.begin(), out.end(), expected.begin(), same_bits).first;
  return wrong == out.end() ? kNobody : (wrong - out.begin()) / c.hidden;
}

class ExpertExchange : public testing::TestWithParam<Case> {};

TEST_P(ExpertExchange, GivesTheBitsOfTheDefinition_InEveryOrder) {
  const Case& c = GetParam();
  for (const auto& order : kOrders) {
    const auto got = run(c, order, right_setting(c));
    for (int rank = 0; rank < c.num_ranks; ++rank) {
      for (int step = 0; step < kSteps; ++step) {
        EXPECT_EQ(
            first_wrong_row(c, tokens_of(c, step, rank), got[static_cast<size_t>(rank)][static_cast<size_t>(step)].out),
            kNobody)
            << order_name(order) << ", rank " << rank << ", step " << step;
      }
    }
  }
}

bool is_choice(int32_t id) {
  return id >= 0;
}

// Each choice is computed once, on one rank, and each rank is sent a token once; the counts that the host makes from the routing alone
// are those of what arrived, and its bytes those that dispatch stored.
TEST_P(ExpertExchange, ComputesEachChoiceOnce_AndSendsWhatTheHostCounts) {
  const Case& c = GetParam();
  const auto setting = right_setting(c);
  const ExpertPlacement& placement = setting.believed[0];
  const auto got = run(c, {OrderKind::kForward, 0}, setting);
  const ExchangeSizes sizes{.hidden = c.hidden, .max_tokens = c.max_tokens, .k = c.k, .is_fp8 = c.is_fp8};
  for (int step = 0; step < kSteps; ++step) {
    int64_t num_choices = 0;
    int64_t num_computed = 0;
    for (int from = 0; from < c.num_ranks; ++from) {
      const StepResult& of_sender = got[static_cast<size_t>(from)][static_cast<size_t>(step)];
      const auto ids = tokens_of(c, step, from).ids;
      num_choices += std::count_if(ids.begin(), ids.end(), is_choice);
      num_computed += std::accumulate(of_sender.num_valid.begin(), of_sender.num_valid.end(), int64_t{0});
      std::vector<int64_t> copies;
      std::vector<int64_t> rows;
      for (int to = 0; to < c.num_ranks; ++to) {
        auto choice = got[static_cast<size_t>(to)][static_cast<size_t>(step)].slots.begin() + from * c.max_tokens * c.k;
        copies.push_back(0);
        rows.push_back(0);
        for (int64_t token = 0; token < c.max_tokens; ++token, choice += c.k) {
          const int64_t num_here = std::count_if(choice, choice + c.k, is_choice);
          copies.back() += num_here > 0 ? 1 : 0;
          rows.back() += num_here;
        }
      }
      EXPECT_EQ(copies, count_copies(placement, ids, c.k, from));
      EXPECT_EQ(rows, count_rows(placement, ids, c.k, from));
      if (DSV3_CHECKED != 0) {
        int64_t sent_bytes = 4 * (c.max_tokens + 2);  // arrivals of the blocks, their reset, the epoch
        for (const int64_t count : count_copies(placement, ids, c.k, from, std::max(c.ranks_per_node, 1))) {
          sent_bytes += sizes.dispatch_bytes(count);
        }
        EXPECT_EQ(of_sender.stored_bytes, sent_bytes);
      }
    }
    EXPECT_EQ(num_computed, num_choices);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts,
    ExpertExchange,
    testing::Values(
        Case{"one_rank", 1, 6, 3, 4, {4}},
        Case{"two_ranks_bf16", 2, 8, 2, 5, {5, 2}, Routing::kRandom, false},
        Case{"experts_do_not_divide", 3, 7, 3, 4, {4, 1, 3}},
        Case{"one_token_on_four_ranks", 4, 8, 4, 2, {0, 1, 0, 0}},
        Case{"all_to_the_first_experts", 4, 16, 4, 4, {4, 3, 4, 2}, Routing::kAllToTheFirst},
        Case{"eight_ranks_some_empty", 8, 16, 4, 3, {3, 0, 2, 0, 0, 1, 3, 0}},
        Case{"fewer_experts_than_ranks", 4, 3, 2, 2, {2, 1, 2, 0}},
        Case{"copies_of_experts", 4, 10, 4, 4, {4, 4, 1, 3}, Routing::kRandom, true, true},
        Case{"padding_in_a_graph", 3, 9, 3, 6, {6, 6, 6}, Routing::kWithPadding, true, false, true},
        Case{"two_nodes_of_two", 4, 10, 4, 4, {4, 0, 1, 3}, Routing::kRandom, true, true, false, 144, 2},
        Case{"four_nodes_bf16", 8, 16, 3, 3, {3, 0, 2, 0, 0, 1, 3, 0}, Routing::kRandom, false, false, false, 144, 2},
        Case{"one_node_in_a_graph", 3, 9, 3, 6, {6, 6, 6}, Routing::kWithPadding, true, false, true, 144, 3},
        Case{"520_tokens_to_two_experts", 2, 8, 2, 520, {520, 3}, Routing::kAllToTheFirst, true, false, false, 16},
        Case{"real_width", 2, 4, 2, 2, {2, 1}, Routing::kRandom, true, false, false, 7168}),
    [](const auto& layout) { return std::string(layout.param.name); });

TEST(ExpertExchange, RefusesMoreTokensThanTheMost_ByName) {
  const ExpertGroup group{.max_tokens = 4, .k = 2, .hidden = 16};
  try {
    dispatch({}, {.group = group, .places = {}, .num_tokens = 5});
    FAIL() << "not refused";
  } catch (const ArgumentError& error) {
    EXPECT_STREQ(error.what(), "dispatch: more tokens than max_tokens, the most that a rank may bring");
  }
  EXPECT_THROW(pull_combine({}, {.group = group, .places = {}, .num_tokens = 5}), ArgumentError);
}

// 7168 codes and 56 scales a copy, 8 slot numbers for each row that could be there, a flag; BF16 and a row number for each output.
TEST(ExchangeSizes, OfAMillionCopies_DoNotFitIn32Bits_AndAreRight) {
  const ExchangeSizes sizes{.hidden = 7168, .max_tokens = 4096, .k = 8};
  EXPECT_EQ(sizes.dispatch_bytes(1'000'000), 7'392'131'076);
  EXPECT_EQ(sizes.combine_bytes(1'000'000), 14'340'000'004);
}

TEST(ExpertPlacement, Contiguous_IsThePlansRule) {
  for (const auto& [num_experts, num_ranks] : {std::pair(256, 8), {7, 3}, {3, 4}, {5, 5}, {10, 4}}) {
    const auto placement = contiguous_placement(num_experts, num_ranks);
    for (int expert = 0; expert < num_experts; ++expert) {
      EXPECT_EQ(placement.place(expert, 0, 0) / placement.slots_per_rank, expert * num_ranks / num_experts);
    }
  }
}
TEST(ExpertPlacement, WithoutASlotForAnExpert_OrOfUnequalRanks_IsRefused) {
  EXPECT_THROW(placement_of_slots(std::vector<int32_t>{0, 2, 2, 0}, 3, 2), ArgumentError);
  EXPECT_THROW(placement_of_slots(std::vector<int32_t>{0, 1, 2}, 3, 2), ArgumentError);
  EXPECT_THROW(placement_of_slots(std::vector<int32_t>{0, 1, 3, -1}, 3, 2), ArgumentError);
}
TEST(ExpertPlacement, CopiesOfAnExpert_TakeTurns) {
  const auto placement = placement_of_slots(std::vector<int32_t>{0, 1, 0, 2}, 3, 2);
  EXPECT_EQ(placement.place(0, 0, 0), 0);
  EXPECT_EQ(placement.place(0, 1, 0), 2);
  EXPECT_EQ(placement.place(0, 0, 1), 2);
  EXPECT_EQ(placement.place(2, 1, 1), 3);
}

// --- Faults ---

// By a wrong row, or by a fault of a kernel.
bool is_caught(const Case& c, const Setting& setting, const emulation::Order& order) {
  try {
    const auto got = run(c, order, setting);
    for (int rank = 0; rank < c.num_ranks; ++rank) {
      for (int step = 0; step < kSteps; ++step) {
        if (first_wrong_row(c,
                            tokens_of(c, step, rank),
                            got[static_cast<size_t>(rank)][static_cast<size_t>(step)].out) != kNobody) {
          return true;
        }
      }
    }
    return false;
  } catch (const emulation::Fault&) {
    return true;
  }
}

const Case kFaulty{"faulty", 4, 10, 4, 4, {4, 0, 1, 3}, Routing::kRandom, true, true};

class FaultyExchange : public testing::TestWithParam<emulation::Order> {
 protected:
  Setting setting = right_setting(kFaulty);
};

TEST_P(FaultyExchange, RankThatSkipsTheStepsInWhichItIsEmpty_IsADeadlock) {
  setting.absent_rank = 1;
  setting.peer_timeout_s = 0.3;
  try {
    run(kFaulty, GetParam(), setting);
    FAIL() << "not found";
  } catch (const emulation::Fault& fault) {
    EXPECT_EQ(static_cast<int>(fault.kind), static_cast<int>(emulation::FaultKind::kDeadlock)) << fault.what();
  }
}
TEST_P(FaultyExchange, WrongMapOfRanks_IsCaught) {
  ExpertPlacement& placement = setting.believed[2];
  for (int32_t& place : placement.place_of_copy) {
    place = (place + placement.slots_per_rank) % (placement.num_ranks * placement.slots_per_rank);
  }
  EXPECT_TRUE(is_caught(kFaulty, setting, GetParam()));
}
TEST_P(FaultyExchange, PlacementOfBeforeAMove_IsCaught) {
  // Two experts have changed places; rank 0 has not heard of it.
  for (ExpertPlacement& placement : setting.believed) {
    std::swap(placement.place_of_copy.front(), placement.place_of_copy.back());
  }
  const auto before = placement_of(kFaulty);
  const auto held = [&](int32_t place) -> float& {
    return setting.factors[static_cast<size_t>(place / before.slots_per_rank)]
                          [static_cast<size_t>(place % before.slots_per_rank)];
  };
  std::swap(held(before.place_of_copy.front()), held(before.place_of_copy.back()));
  EXPECT_FALSE(is_caught(kFaulty, setting, GetParam())) << "the move itself is right";
  setting.believed[0] = before;
  EXPECT_TRUE(is_caught(kFaulty, setting, GetParam()));
}
TEST_P(FaultyExchange, CopyOfAnExpertInAnothersSlot_IsCaught) {
  setting.factors[1][0] = setting.factors[0][0];
  EXPECT_TRUE(is_caught(kFaulty, setting, GetParam()));
}
TEST_P(FaultyExchange, CombineThatLooksForAnotherCopy_IsCaught) {
  setting.launchers.combine = combine_other_copy::pull_combine;
  EXPECT_TRUE(is_caught(kFaulty, setting, GetParam()));
}
#if DSV3_CHECKED
void expect_race(const Setting& setting, const emulation::Order& order, const Case& c = kFaulty) {
  try {
    run(c, order, setting);
    FAIL() << "not found";
  } catch (const emulation::Fault& fault) {
    EXPECT_EQ(static_cast<int>(fault.kind), static_cast<int>(emulation::FaultKind::kRace)) << fault.what();
  }
}
TEST_P(FaultyExchange, ReceiveThatDoesNotWait_IsARace) {
  setting.launchers.receive = dispatch_no_wait::receive;
  expect_race(setting, GetParam());
}
TEST_P(FaultyExchange, FlagThatDoesNotFollowTheOtherBlocksRows_IsARace) {
  setting.launchers.dispatch = dispatch_no_fence::dispatch;
  expect_race(setting, GetParam());
}
TEST_P(FaultyExchange, ForwardThatDoesNotWait_IsARace) {
  Case by_nodes = kFaulty;
  by_nodes.ranks_per_node = 2;
  setting.launchers.dispatch_by_nodes = forward_no_wait::dispatch_by_nodes;
  expect_race(setting, GetParam(), by_nodes);
}
TEST_P(FaultyExchange, CombineThatDoesNotWait_IsARace) {
  setting.launchers.combine = combine_no_wait::pull_combine;
  expect_race(setting, GetParam());
}
#endif

INSTANTIATE_TEST_SUITE_P(Orders, FaultyExchange, testing::ValuesIn(kOrders));

}  // namespace
}  // namespace gpu::DSV3_BACKEND
