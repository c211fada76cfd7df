// The experts of a MoE layer on several ranks, with the grouped linears and swiglu that one rank runs, in the masked form and in the
// contiguous one: the same bits as one rank with align and combine.
#include <gtest/gtest.h>

#include "gpu/kernels/dispatch.cuh"
#include "gpu/kernels/fp8_linear.cuh"
#include "gpu/kernels/fp8_linear_sm90.cuh"
#include "gpu/kernels/pack_rows.cuh"
#include "gpu/kernels/pull_combine.cuh"
#include "gpu/kernels/swiglu.cuh"
#include "tests/gpu/ranks.hpp"

namespace gpu::DSV3_BACKEND {
namespace {

constexpr int kHidden = 256;
constexpr int kDim = 128;  // of an expert
constexpr int kExperts = 10;
constexpr int kChoices = 3;
constexpr int64_t kMaxTokens = 3;
constexpr int64_t kGateUp = int64_t{2} * kDim;

std::vector<fp8_e4m3> random_codes(int64_t count, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0, 20);
  std::vector<fp8_e4m3> codes;
  for (int64_t i = 0; i < count; ++i) {
    codes.push_back({reference::encode_f8_e4m3(normal(engine))});
  }
  return codes;
}

// Of one expert; every one has its own.
struct ExpertWeights {
  explicit ExpertWeights(int32_t expert)
      : gate_up(random_codes(kGateUp * kHidden, static_cast<uint32_t>(2 * expert + 1))),
        down(random_codes(int64_t{kHidden} * kDim, static_cast<uint32_t>(2 * expert + 2))) {
    for (int block = 0; block < 4; ++block) {
      gate_up_scales.push_back(0.001f * static_cast<float>(expert + block + 1));
    }
    down_scales = {0.002f, 0.001f * static_cast<float>(expert + 1)};
  }
  std::vector<fp8_e4m3> gate_up;      // [2 * dim, hidden]
  std::vector<float> gate_up_scales;  // [2, 2]
  std::vector<fp8_e4m3> down;         // [hidden, dim]
  std::vector<float> down_scales;     // [2, 1]
};

template <typename T>
std::vector<T> joined(const std::vector<int32_t>& experts, std::vector<T> ExpertWeights::*part) {
  std::vector<T> all;
  for (const int32_t expert : experts) {
    const ExpertWeights weights(std::max(expert, 0));  // an empty slot may hold anything
    all.insert(all.end(), (weights.*part).begin(), (weights.*part).end());
  }
  return all;
}

enum class Form { kMasked, kContiguous };

// What the experts of a device read.
struct ExpertInput {
  const fp8_e4m3* codes = nullptr;
  const float* scales = nullptr;
  const int32_t* ids = nullptr;  // as align had them
  int32_t* row_of_choice = nullptr;
};

// The experts that a device holds, and room for what they make of at most `rows` rows each.
class Experts {
 public:
  Experts(Device& device, Stream on, Form form, const std::vector<int32_t>& held, int64_t rows)
      : stream_(on),
        form_(form),
        num_groups_(static_cast<int>(held.size())),
        max_rows_(rows),
        num_tiles_(packed_tiles(rows, kChoices, num_groups_)),
        num_rows_(form == Form::kMasked ? num_groups_ * rows : num_tiles_ * kSm90Tokens),
        gate_up_(device, on, joined(held, &ExpertWeights::gate_up), "gate_up"),
        gate_up_scales_(device, on, joined(held, &ExpertWeights::gate_up_scales), "gate_up_scales"),
        down_(device, on, joined(held, &ExpertWeights::down), "down"),
        down_scales_(device, on, joined(held, &ExpertWeights::down_scales), "down_scales"),
        hidden_(device, on, num_rows_ * kGateUp, "gate_up_rows"),
        codes_(device, on, num_rows_ * kDim, "act_codes"),
        scales_(device, on, num_rows_, "act_scales"),
        packed_codes_(device, on, num_tiles_ * kSm90Tokens * kHidden, "packed_codes"),
        packed_scales_(device, on, num_tiles_ * kSm90Tokens * 2, "packed_scales"),
        group_of_tile_(device, on, num_tiles_, "group_of_tile"),
        rows_of_tile_(device, on, num_tiles_, "rows_of_tile"),
        token_of_row(device, on, num_groups_ * rows, "token_of_row"),
        num_valid(device, on, num_groups_, "num_valid"),
        out(device, on, num_rows_ * kHidden, "expert_rows") {}

  // Scales: [2, max_rows].
  void run(const ExpertInput& input) { form_ == Form::kMasked ? run_masked(input) : run_contiguous(input); }

 private:
  void run_masked(const ExpertInput& input) {
    fp8_linear(stream_,
               {.x = input.codes,
                .x_scale = input.scales,
                .token_of_row = token_of_row.data(),
                .num_valid = num_valid.data(),
                .weight = gate_up_.data(),
                .weight_scale = gate_up_scales_.data(),
                .y = hidden_.data(),
                .num_tokens = max_rows_,
                .x_scale_stride = max_rows_,
                .out_dim = kGateUp,
                .in_dim = kHidden,
                .num_groups = num_groups_});
    swiglu(stream_,
           {.gate_up = hidden_.data(),
            .num_rows = num_valid.data(),
            .codes = codes_.data(),
            .scales = scales_.data(),
            .max_rows = max_rows_,
            .num_groups = num_groups_,
            .dim = kDim});
    fp8_linear(stream_,
               {.x = codes_.data(),
                .x_scale = scales_.data(),
                .num_valid = num_valid.data(),
                .weight = down_.data(),
                .weight_scale = down_scales_.data(),
                .y = out.data(),
                .num_tokens = max_rows_,
                .x_scale_stride = max_rows_,
                .out_dim = kHidden,
                .in_dim = kDim,
                .num_groups = num_groups_});
  }

  void run_contiguous(const ExpertInput& input) {
    pack_rows(stream_,
              {.codes = input.codes,
               .scales = input.scales,
               .ids = input.ids,
               .num_valid = num_valid.data(),
               .row_of_choice = input.row_of_choice,
               .packed_codes = packed_codes_.data(),
               .packed_scales = packed_scales_.data(),
               .group_of_tile = group_of_tile_.data(),
               .rows_of_tile = rows_of_tile_.data(),
               .num_tokens = max_rows_,
               .num_tiles = num_tiles_,
               .num_groups = num_groups_,
               .k = kChoices,
               .hidden = kHidden});
    fp8_linear_sm90(stream_,
                    {.x = packed_codes_.data(),
                     .x_scale = packed_scales_.data(),
                     .group_of_tile = group_of_tile_.data(),
                     .rows_of_tile = rows_of_tile_.data(),
                     .weight = gate_up_.data(),
                     .weight_scale = gate_up_scales_.data(),
                     .y = hidden_.data(),
                     .num_tokens = num_rows_,
                     .x_scale_stride = kSm90Tokens,
                     .x_scale_tile_stride = 2 * kSm90Tokens,
                     .out_dim = kGateUp,
                     .in_dim = kHidden,
                     .num_groups = num_groups_});
    swiglu(stream_,
           {.gate_up = hidden_.data(),
            .num_rows = rows_of_tile_.data(),
            .codes = codes_.data(),
            .scales = scales_.data(),
            .max_rows = kSm90Tokens,
            .num_groups = static_cast<int>(num_tiles_),
            .dim = kDim});
    fp8_linear_sm90(stream_,
                    {.x = codes_.data(),
                     .x_scale = scales_.data(),
                     .group_of_tile = group_of_tile_.data(),
                     .rows_of_tile = rows_of_tile_.data(),
                     .weight = down_.data(),
                     .weight_scale = down_scales_.data(),
                     .y = out.data(),
                     .num_tokens = num_rows_,
                     .x_scale_stride = kSm90Tokens,
                     .out_dim = kHidden,
                     .in_dim = kDim,
                     .num_groups = num_groups_});
  }

  Stream stream_;
  Form form_;
  int num_groups_;
  int64_t max_rows_;
  int64_t num_tiles_;
  int64_t num_rows_;  // of all experts together
  Buffer<fp8_e4m3> gate_up_;
  Buffer<float> gate_up_scales_;
  Buffer<fp8_e4m3> down_;
  Buffer<float> down_scales_;
  Buffer<half16> hidden_;
  Buffer<fp8_e4m3> codes_;
  Buffer<float> scales_;
  Buffer<fp8_e4m3> packed_codes_;
  Buffer<float> packed_scales_;
  Buffer<int32_t> group_of_tile_;
  Buffer<int32_t> rows_of_tile_;

 public:
  Buffer<int32_t> token_of_row;
  Buffer<int32_t> num_valid;
  Buffer<half16> out;
};

struct Tokens {  // of one rank: room for the most, of which `count` are there
  explicit Tokens(int rank)
      : count(rank == 1 ? 0 : kMaxTokens - rank % 2),
        x(quantized(random_bf16(kMaxTokens * kHidden, 1, static_cast<uint32_t>(rank + 1)), kHidden, kMaxTokens)),
        shared(random_bf16(kMaxTokens * kHidden, 1, static_cast<uint32_t>(rank + 100))) {
    std::mt19937 engine(static_cast<uint32_t>(rank + 7));
    for (int64_t token = 0; token < kMaxTokens; ++token) {
      const auto first = static_cast<int32_t>(engine() % kExperts);
      for (int32_t choice = 0; choice < kChoices; ++choice) {
        ids.push_back((first + choice * 3) % kExperts);  // 3 and 6 apart: different
        weights.push_back(std::uniform_real_distribution<float>(0.1f, 2)(engine));
      }
    }
  }
  int64_t count;
  QuantizedRows x;  // scales [2, kMaxTokens]
  std::vector<half16> shared;
  std::vector<int32_t> ids;
  std::vector<float> weights;
};

// What a step needs of a rank's tokens on its device.
struct TokenBuffers {
  TokenBuffers(Device& device, Stream stream, const Tokens& tokens)
      : codes(device, stream, tokens.x.codes, "codes"),
        scales(device, stream, tokens.x.scales, "scales"),
        shared(device, stream, tokens.shared, "shared"),
        ids(device, stream, tokens.ids, "topk_ids"),
        weights(device, stream, tokens.weights, "topk_weights"),
        out(device, stream, kMaxTokens * kHidden, "out") {}
  Buffer<fp8_e4m3> codes;
  Buffer<float> scales;
  Buffer<half16> shared;
  Buffer<int32_t> ids;
  Buffer<float> weights;
  Buffer<half16> out;
};

std::vector<half16> on_one_rank(const Tokens& tokens, Form form) {
  Device device;
  const Stream stream = device.create_stream();
  const TokenBuffers mine(device, stream, tokens);
  std::vector<int32_t> all(kExperts);
  for (int32_t expert = 0; expert < kExperts; ++expert) {
    all[static_cast<size_t>(expert)] = expert;
  }
  Experts experts(device, stream, form, all, kMaxTokens);
  // align's rows of an expert are num_tokens apart, the linears' num_tokens likewise.
  const Buffer<int32_t> padded_ids(device, stream, std::vector<int32_t>(kMaxTokens * kChoices, -1), "padded_ids");
  device.enqueue_copy(stream, padded_ids.data(), mine.ids.data(), tokens.count * kChoices * 4);
  const Buffer<int32_t> row_of_slot(device, stream, kMaxTokens * kChoices, "row_of_slot");
  align(stream,
        {.topk_ids = padded_ids.data(),
         .token_of_row = experts.token_of_row.data(),
         .num_valid = experts.num_valid.data(),
         .row_of_slot = row_of_slot.data(),
         .num_tokens = kMaxTokens,
         .num_experts = kExperts,
         .k = kChoices});
  experts.run({mine.codes.data(), mine.scales.data(), padded_ids.data(), row_of_slot.data()});
  combine(stream,
          {.expert_rows = experts.out.data(),
           .row_of_slot = row_of_slot.data(),
           .topk_ids = mine.ids.data(),
           .topk_weights = mine.weights.data(),
           .shared = mine.shared.data(),
           .out = mine.out.data(),
           .num_tokens = tokens.count,
           .hidden = kHidden,
           .k = kChoices});
  device.synchronize();
  return mine.out.download();
}

struct Member {
  Member(Device& device, Stream stream, Form form, int rank, int num_ranks, const ExpertPlacement& placement)
      : tokens(rank),
        max_rows(num_ranks * kMaxTokens),
        mine(device, stream, tokens),
        experts(device, stream, form, held_by(placement, rank), max_rows),
        first_copy(device, stream, placement.first_copy, "first_copy"),
        place_of_copy(device, stream, placement.place_of_copy, "place_of_copy"),
        zeros(device, stream, std::vector<uint32_t>(static_cast<size_t>(2 * num_ranks + 1), 0), "flags and epoch"),
        arrivals(device, stream, std::vector<int32_t>{0}, "arrivals"),
        codes(device, stream, max_rows * kHidden, "received codes"),
        sent_scales(device, stream, max_rows * 2, "received scales"),
        scales(device, stream, max_rows * 2, "scales"),
        slots(device, stream, max_rows * kChoices, "slots"),
        row_of_choice(device, stream, max_rows * kChoices, "row_of_choice"),
        inboxes(device, stream, num_ranks, "inboxes"),
        results(device, stream, num_ranks, "results"),
        group{inboxes.data(),
              results.data(),
              zeros.data() + 2 * num_ranks,
              kMaxTokens,
              num_ranks,
              rank,
              kChoices,
              kHidden},
        places{first_copy.data(), place_of_copy.data(), kExperts, placement.slots_per_rank} {}

  static std::vector<int32_t> held_by(const ExpertPlacement& placement, int rank) {
    std::vector<int32_t> held(static_cast<size_t>(placement.slots_per_rank), -1);
    for (int32_t expert = 0; expert < kExperts; ++expert) {
      const int32_t place = placement.place(expert, 0, 0);
      if (place / placement.slots_per_rank == rank) {
        held[static_cast<size_t>(place % placement.slots_per_rank)] = expert;
      }
    }
    return held;
  }
  [[nodiscard]] TokenInbox inbox() const {
    return {codes.data(), sent_scales.data(), nullptr, slots.data(), zeros.data()};
  }
  [[nodiscard]] ExpertResults own_results() const {
    return {row_of_choice.data(), experts.out.data(), zeros.data() + group.num_ranks};
  }
  void run(Stream stream) {
    dispatch(stream,
             {.group = group,
              .places = places,
              .codes = mine.codes.data(),
              .scales = mine.scales.data(),
              .topk_ids = mine.ids.data(),
              .arrivals = arrivals.data(),
              .num_tokens = tokens.count,
              .scale_stride = kMaxTokens});
    receive(stream,
            {.group = group,
             .own = inbox(),
             .row_of_choice = row_of_choice.data(),
             .scales = scales.data(),
             .token_of_row = experts.token_of_row.data(),
             .num_valid = experts.num_valid.data(),
             .slots_per_rank = places.slots_per_rank});
    experts.run({codes.data(), scales.data(), slots.data(), row_of_choice.data()});
    pull_combine(stream,
                 {.group = group,
                  .places = places,
                  .topk_ids = mine.ids.data(),
                  .topk_weights = mine.weights.data(),
                  .shared = mine.shared.data(),
                  .out = mine.out.data(),
                  .num_tokens = tokens.count});
  }

  const Tokens tokens;
  const int64_t max_rows;
  TokenBuffers mine;
  Experts experts;
  Buffer<int32_t> first_copy;
  Buffer<int32_t> place_of_copy;
  Buffer<uint32_t> zeros;  // [2 * num_ranks + 1]: arrived, finished, the epoch
  Buffer<int32_t> arrivals;
  Buffer<fp8_e4m3> codes;
  Buffer<float> sent_scales;
  Buffer<float> scales;
  Buffer<int32_t> slots;
  Buffer<int32_t> row_of_choice;
  Buffer<TokenInbox> inboxes;
  Buffer<ExpertResults> results;
  const ExpertGroup group;
  const ExpertPlaces places;
};

class ExpertsOnFourRanks : public testing::TestWithParam<Form> {};

TEST_P(ExpertsOnFourRanks, GiveTheBitsOfOneRank_StepAfterStep) {
  constexpr int kRanks = 4;
  const auto placement = contiguous_placement(kExperts, kRanks);
  Ranks ranks(kRanks, {.order = {OrderKind::kRandom, 1}});
  std::vector<std::unique_ptr<Member>> members;
  std::vector<TokenInbox> inboxes;
  std::vector<ExpertResults> results;
  for (int rank = 0; rank < kRanks; ++rank) {
    members.push_back(
        std::make_unique<Member>(ranks.device(rank), ranks.stream(rank), GetParam(), rank, kRanks, placement));
    inboxes.push_back(members.back()->inbox());
    results.push_back(members.back()->own_results());
  }
  for (const auto& member : members) {
    member->inboxes.upload(inboxes);
    member->results.upload(results);
  }
  for (int step = 0; step < 2; ++step) {
    ranks.run([&](int rank) { members[static_cast<size_t>(rank)]->run(ranks.stream(rank)); });
    for (const auto& member : members) {
      const auto got = member->mine.out.download();
      const auto expected = on_one_rank(member->tokens, GetParam());
      for (int64_t i = 0; i < kMaxTokens * kHidden; ++i) {
        const auto at = static_cast<size_t>(i);
        ASSERT_EQ(got[at].bits, expected[at].bits)
            << "rank " << member->group.rank << ", step " << step << ", element " << i;
        ASSERT_EQ(got[at].bits == 0xFFFF, i >= member->tokens.count * kHidden) << "NaN where a token is not, only";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Forms,
                         ExpertsOnFourRanks,
                         testing::Values(Form::kMasked, Form::kContiguous),
                         [](const auto& form) { return form.param == Form::kMasked ? "masked" : "contiguous"; });

// Of 130 tokens all choose group 1, every second one group 3 as well, the third group does not exist; groups 0 and 2 get none.
TEST(PackRows, PutsGroupsOneBehindAnother_InWholeTiles) {
  constexpr int kTokens = 130;
  constexpr int kGroups = 4;
  Device device;
  const Stream stream = device.create_stream();
  const QuantizedRows x = quantized(random_bf16(kTokens * kHidden, 1, 1), kHidden, kTokens);
  std::vector<int32_t> ids;
  std::vector<int32_t> rows;
  for (int32_t token = 0; token < kTokens; ++token) {
    const bool is_second = token % 2 == 1;
    ids.insert(ids.end(), {is_second ? 3 : -1, 1, 9});
    rows.insert(rows.end(), {3 * kTokens + token / 2, kTokens + token, -7});
  }
  const int64_t num_tiles = packed_tiles(kTokens, 3, kGroups);
  const Buffer<fp8_e4m3> codes(device, stream, x.codes, "codes");
  const Buffer<float> scales(device, stream, x.scales, "scales");
  const Buffer<int32_t> id_buffer(device, stream, ids, "ids");
  const Buffer<int32_t> num_valid(device, stream, std::vector<int32_t>{0, kTokens, 0, kTokens / 2}, "num_valid");
  const Buffer<int32_t> row_of_choice(device, stream, rows, "row_of_choice");
  const Buffer<fp8_e4m3> packed_codes(device, stream, num_tiles * 64 * kHidden, "packed_codes");
  const Buffer<float> packed_scales(device, stream, num_tiles * 64 * 2, "packed_scales");
  const Buffer<int32_t> group_of_tile(device, stream, num_tiles, "group_of_tile");
  const Buffer<int32_t> rows_of_tile(device, stream, num_tiles, "rows_of_tile");
  PackRowsArguments arguments{.codes = codes.data(),
                              .scales = scales.data(),
                              .ids = id_buffer.data(),
                              .num_valid = num_valid.data(),
                              .row_of_choice = row_of_choice.data(),
                              .packed_codes = packed_codes.data(),
                              .packed_scales = packed_scales.data(),
                              .group_of_tile = group_of_tile.data(),
                              .rows_of_tile = rows_of_tile.data(),
                              .num_tokens = kTokens,
                              .num_tiles = num_tiles,
                              .num_groups = kGroups,
                              .k = 3,
                              .hidden = kHidden};
  pack_rows(stream, arguments);
  auto expected_groups = std::vector<int32_t>{1, 1, 1, 3, 3};  // 130 rows are three tiles, 65 are two
  expected_groups.resize(static_cast<size_t>(num_tiles), -1);
  EXPECT_EQ(group_of_tile.download(), expected_groups);
  auto expected_counts = std::vector<int32_t>{64, 64, 2, 64, 1};
  expected_counts.resize(static_cast<size_t>(num_tiles), 0);
  EXPECT_EQ(rows_of_tile.download(), expected_counts);
  const auto got_rows = row_of_choice.download();
  const auto got_codes = packed_codes.download();
  const auto got_scales = packed_scales.download();
  for (size_t token = 0; token < kTokens; ++token) {
    EXPECT_EQ(got_rows[token * 3 + 1], static_cast<int32_t>(token));
    EXPECT_EQ(got_rows[token * 3 + 2], -7);
    if (token % 2 == 1) {
      EXPECT_EQ(got_rows[token * 3], 192 + static_cast<int32_t>(token) / 2);
    }
    for (size_t choice = token % 2 == 1 ? 0 : 1; choice < 2; ++choice) {
      const auto row = static_cast<size_t>(got_rows[token * 3 + choice]);
      EXPECT_EQ(std::memcmp(&got_codes[row * kHidden], &x.codes[token * kHidden], kHidden), 0);
      EXPECT_EQ(got_scales[row / 64 * 128 + row % 64], x.scales[token]);
      EXPECT_EQ(got_scales[row / 64 * 128 + 64 + row % 64], x.scales[kTokens + token]);
    }
  }
  for (size_t row : {size_t{130}, size_t{191}, size_t{192 + 65}}) {
    EXPECT_EQ(got_codes[row * kHidden].bits, 0xFF) << "padding row " << row << " was written";
  }
  --arguments.num_tiles;
  EXPECT_THROW(pack_rows(stream, arguments), ArgumentError);
}

}  // namespace
}  // namespace gpu::DSV3_BACKEND
