#include "gpu/comm/token_exchange.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

namespace gpu::comm {
namespace {

std::vector<int64_t> times(std::vector<int64_t> counts, int64_t factor) {
  for (int64_t& count : counts) {
    count *= factor;
  }
  return counts;
}

int64_t sum(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

}  // namespace

TokenExchange::TokenExchange(Communicator& ranks, ExchangeFormat format)
    : ranks_(ranks), format_(std::move(format)), sent_slots_(static_cast<size_t>(ranks.size())) {}

// Elements, scales, and for each slot the receiver's expert.
int64_t TokenExchange::message_bytes() const {
  return token_bytes() + format_.k * int64_t{sizeof(int32_t)};
}

void TokenExchange::dispatch(const Tokens& tokens, const ExpertPlacement& placement, const Received& received) {
  const auto num_ranks = static_cast<size_t>(ranks_.size());
  const int64_t k = format_.k;
  num_slots_ = tokens.count * k;
  std::vector<int32_t> places(static_cast<size_t>(num_slots_), -1);
  for (int64_t slot = 0; slot < num_slots_; ++slot) {
    const int32_t expert = tokens.topk_ids[slot];
    if (expert >= 0 && expert < placement.num_experts()) {
      places[static_cast<size_t>(slot)] = placement.place(expert, slot / k, ranks_.rank());
    }
  }
  std::vector<std::byte> outgoing;
  std::vector<int64_t> num_sent(num_ranks);
  for (size_t rank = 0; rank < num_ranks; ++rank) {
    const auto first = static_cast<int32_t>(rank) % placement.num_ranks * placement.slots_per_rank;
    const int32_t end = first + placement.slots_per_rank;
    sent_slots_[rank].clear();
    for (int64_t token = 0; token < tokens.count; ++token) {
      std::vector<int32_t> experts(static_cast<size_t>(k), -1);
      bool goes_there = false;
      for (int64_t slot = 0; slot < k; ++slot) {
        const int32_t place = places[static_cast<size_t>(token * k + slot)];
        if (place >= first && place < end) {
          experts[static_cast<size_t>(slot)] = place - first;
          sent_slots_[rank].push_back(token * k + slot);
          goes_there = true;
        }
      }
      if (!goes_there) {
        continue;
      }
      ++num_sent[rank];
      const std::byte* const row = tokens.rows + token * format_.row_bytes;
      outgoing.insert(outgoing.end(), row, row + format_.row_bytes);
      for (int64_t block = 0; block < format_.num_scales; ++block) {
        const auto scale = std::as_bytes(std::span(tokens.scales + block * tokens.scale_stride + token, 1));
        outgoing.insert(outgoing.end(), scale.begin(), scale.end());
      }
      const auto ids = std::as_bytes(std::span(experts));
      outgoing.insert(outgoing.end(), ids.begin(), ids.end());
    }
  }
  const auto own = static_cast<size_t>(ranks_.rank());
  counts_.num_sent_tokens += sum(num_sent) - num_sent[own];
  const std::vector<int64_t> ones(num_ranks, int64_t{sizeof(int64_t)});
  num_received_.assign(num_ranks, 0);
  ranks_.all_to_all(num_sent.data(), ones, num_received_.data(), ones, Element::kByte);
  const int64_t count = sum(num_received_);
  if (count > format_.capacity) {
    throw CommError(fmt::format(
        "dispatch: rank {} was sent {} tokens and has room for {}", ranks_.rank(), count, format_.capacity));
  }
  std::vector<std::byte> incoming(static_cast<size_t>(count * message_bytes()));
  ranks_.all_to_all(outgoing.data(),
                    times(num_sent, message_bytes()),
                    incoming.data(),
                    times(num_received_, message_bytes()),
                    Element::kByte);
  received_experts_.assign(static_cast<size_t>(count * k), -1);
  for (int64_t token = 0; token < count; ++token) {
    const std::byte* from = incoming.data() + token * message_bytes();
    std::memcpy(received.rows + token * format_.row_bytes, from, static_cast<size_t>(format_.row_bytes));
    from += format_.row_bytes;
    for (int64_t block = 0; block < format_.num_scales; ++block, from += sizeof(float)) {
      std::memcpy(received.scales + block * format_.capacity + token, from, sizeof(float));
    }
    std::memcpy(received_experts_.data() + token * k, from, static_cast<size_t>(k) * sizeof(int32_t));
  }
  std::ranges::copy(received_experts_, received.local_experts);
  std::fill(received.local_experts + count * k, received.local_experts + format_.capacity * k, -1);
}

void TokenExchange::give_back(const std::byte* expert_rows, const int32_t* row_of_slot, std::byte* returned) {
  const auto num_ranks = static_cast<size_t>(ranks_.size());
  const int64_t k = format_.k;
  const int64_t len = format_.output_bytes;
  std::vector<std::byte> outgoing;
  std::vector<int64_t> num_sent(num_ranks);
  std::vector<int64_t> num_returned(num_ranks);
  int64_t token = 0;
  for (size_t rank = 0; rank < num_ranks; ++rank) {
    for (const int64_t end = token + num_received_[rank]; token < end; ++token) {
      for (int64_t slot = token * k; slot < (token + 1) * k; ++slot) {
        if (received_experts_[static_cast<size_t>(slot)] >= 0) {
          const std::byte* const row = expert_rows + row_of_slot[slot] * len;
          outgoing.insert(outgoing.end(), row, row + len);
          ++num_sent[rank];
        }
      }
    }
    num_returned[rank] = static_cast<int64_t>(sent_slots_[rank].size());
  }
  counts_.num_computed_rows += sum(num_sent);
  counts_.num_returned_rows += sum(num_sent) - num_sent[static_cast<size_t>(ranks_.rank())];
  std::vector<std::byte> incoming(static_cast<size_t>(sum(num_returned) * len));
  ranks_.all_to_all(outgoing.data(), times(num_sent, len), incoming.data(), times(num_returned, len), Element::kByte);
  const std::byte* from = incoming.data();
  const size_t ranks_per_slice = num_ranks / static_cast<size_t>(format_.num_slices);
  for (size_t rank = 0; rank < num_ranks; ++rank) {
    std::byte* const slice = returned + static_cast<int64_t>(rank / ranks_per_slice) * num_slots_ * len;
    for (const int64_t slot : sent_slots_[rank]) {
      std::memcpy(slice + slot * len, from, static_cast<size_t>(len));
      from += len;
    }
  }
}

}  // namespace gpu::comm
