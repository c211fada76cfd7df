#include "gpu/comm/collectives.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "gpu/comm/rank_sum.hpp"
#include "gpu/portable/require.hpp"

namespace gpu::comm {

namespace {

const char* name_of(Element element) {
  switch (element) {
    case Element::kByte: return "byte";
    case Element::kI32: return "i32";
    case Element::kF32: return "f32";
    case Element::kBf16: return "bf16";
    case Element::kF16: return "f16";
  }
  return "?";
}

std::string text_of(const char* collective, int64_t count, Element element) {
  return fmt::format("{} of {} {}", collective, count, name_of(element));
}

Bytes bytes_at(const void* values, int64_t num_bytes) {
  return {static_cast<const std::byte*>(values), static_cast<size_t>(num_bytes)};
}

// Where a part lies already is left alone: others may be reading it.
void copy(Bytes from, std::byte* to) {
  if (!from.empty() && from.data() != to) {
    std::memcpy(to, from.data(), from.size());
  }
}

void require_buffer(const void* values, int64_t count) {
  require(count >= 0, "a collective's count is negative");
  require(count == 0 || values != nullptr, "a collective's buffer is null");
}

void require_apart(const void* a, int64_t a_bytes, const void* b, int64_t b_bytes) {
  const auto a_start = reinterpret_cast<uintptr_t>(a);
  const auto b_start = reinterpret_cast<uintptr_t>(b);
  require(a_start + static_cast<uintptr_t>(a_bytes) <= b_start || b_start + static_cast<uintptr_t>(b_bytes) <= a_start,
          "what a collective sends and receives overlaps");
}

int64_t total(std::span<const int64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

}  // namespace

int64_t element_bytes(Element element) {
  switch (element) {
    case Element::kByte: return 1;
    case Element::kI32:
    case Element::kF32: return 4;
    case Element::kBf16:
    case Element::kF16: return 2;
  }
  return 0;
}

Collectives::Collectives(std::unique_ptr<Transport> transport)
    : transport_(std::move(transport)), queue_([](const std::function<void()>& work) { work(); }) {}

void Collectives::all_reduce(const void* send, void* receive, int64_t count, Element element) {
  const int64_t num_bytes = count * element_bytes(element);
  require_buffer(send, count);
  require_buffer(receive, count);
  require(element != Element::kByte, "bytes have no sum");
  if (send != receive) {
    require_apart(send, num_bytes, receive, num_bytes);
  }
  count_sent("all_reduce", count * (size() - 1), element);
  queue_([=, this, meeting = next_meeting(text_of("all_reduce", count, element))] {
    // In place, others still read what this rank has when its sum is ready.
    std::vector<std::byte> sum(static_cast<size_t>(num_bytes));
    transport_->meet(meeting, for_all(send, num_bytes), [&](const Parts& found) {
      sum_in_rank_order(found, sum.data(), count, element);
    });
    copy(sum, static_cast<std::byte*>(receive));
  });
}

void Collectives::all_gather(const void* send, void* receive, int64_t count, Element element) {
  const int64_t num_bytes = count * element_bytes(element);
  require_buffer(send, count);
  require_buffer(receive, count);
  auto* const to = static_cast<std::byte*>(receive);
  if (send != to + rank() * num_bytes) {
    require_apart(send, num_bytes, receive, size() * num_bytes);
  }
  count_sent("all_gather", count * (size() - 1), element);
  queue_([=, this, meeting = next_meeting(text_of("all_gather", count, element))] {
    transport_->meet(meeting, for_all(send, num_bytes), [&](const Parts& found) {
      for (int from = 0; from < size(); ++from) {
        copy(found[static_cast<size_t>(from)], to + from * num_bytes);
      }
    });
  });
}

void Collectives::reduce_scatter(const void* send, void* receive, int64_t count, Element element) {
  const int64_t num_bytes = count * element_bytes(element);
  require_buffer(send, count);
  require_buffer(receive, count);
  require(element != Element::kByte, "bytes have no sum");
  require_apart(send, size() * num_bytes, receive, num_bytes);
  count_sent("reduce_scatter", count * (size() - 1), element);
  Parts parts;
  for (int to = 0; to < size(); ++to) {
    parts.push_back(bytes_at(static_cast<const std::byte*>(send) + to * num_bytes, num_bytes));
  }
  queue_([=, this, meeting = next_meeting(text_of("reduce_scatter", count, element))] {
    transport_->meet(meeting, parts, [&](const Parts& found) {
      sum_in_rank_order(found, static_cast<std::byte*>(receive), count, element);
    });
  });
}

void Collectives::all_to_all(const void* send,
                             std::span<const int64_t> send_counts,
                             void* receive,
                             std::span<const int64_t> receive_counts,
                             Element element) {
  const int64_t each = element_bytes(element);
  const auto group_size = static_cast<size_t>(size());
  require(send_counts.size() == group_size && receive_counts.size() == group_size, "all_to_all needs a count a rank");
  for (size_t other = 0; other < group_size; ++other) {
    require(send_counts[other] >= 0 && receive_counts[other] >= 0, "a collective's count is negative");
  }
  require_buffer(send, total(send_counts));
  require_buffer(receive, total(receive_counts));
  require_apart(send, total(send_counts) * each, receive, total(receive_counts) * each);
  count_sent("all_to_all", total(send_counts) - send_counts[static_cast<size_t>(rank())], element);
  Parts parts;
  const auto* next_part = static_cast<const std::byte*>(send);
  for (const int64_t count : send_counts) {
    parts.push_back(bytes_at(next_part, count * each));
    next_part += count * each;
  }
  const std::vector<int64_t> expected(receive_counts.begin(), receive_counts.end());
  queue_([=, this, meeting = next_meeting(fmt::format("all_to_all of {}", name_of(element)))] {
    transport_->meet(meeting, parts, [&](const Parts& found) {
      auto* to = static_cast<std::byte*>(receive);
      for (size_t from = 0; from < found.size(); ++from) {
        const int64_t num_bytes = expected[from] * each;
        if (static_cast<int64_t>(found[from].size()) != num_bytes) {
          transport_->fail(
              meeting,
              fmt::format("rank {} sends {} bytes where {} are expected", from, found[from].size(), num_bytes));
        }
        copy(found[from], to);
        to += num_bytes;
      }
    });
  });
}

void Collectives::broadcast(void* values, int64_t count, Element element, int root) {
  const int64_t num_bytes = count * element_bytes(element);
  require_buffer(values, count);
  require_rank(root);
  const bool is_root = rank() == root;
  count_sent("broadcast", is_root ? count * (size() - 1) : 0, element);
  auto meeting = next_meeting(fmt::format("{} from rank {}", text_of("broadcast", count, element), root));
  queue_([=, this, meeting = std::move(meeting)] {
    const Parts parts = is_root ? for_all(values, num_bytes) : Parts(static_cast<size_t>(size()));
    transport_->meet(meeting, parts, [&](const Parts& found) {
      copy(found[static_cast<size_t>(root)], static_cast<std::byte*>(values));
    });
  });
}

void Collectives::send(const void* values, int64_t count, Element element, int to) {
  require_buffer(values, count);
  require_rank(to);
  require(to != rank(), "a rank sends to itself");
  count_sent("send", count, element);
  auto meeting = next_meeting(text_of("send/receive", count, element), {rank(), to});
  queue_([=, this, meeting = std::move(meeting)] {
    transport_->meet(meeting, for_one(to, values, count * element_bytes(element)), [](const Parts&) {});
  });
}

void Collectives::receive(void* values, int64_t count, Element element, int from) {
  require_buffer(values, count);
  require_rank(from);
  require(from != rank(), "a rank receives from itself");
  auto meeting = next_meeting(text_of("send/receive", count, element), {from, rank()});
  queue_([=, this, meeting = std::move(meeting)] {
    transport_->meet(meeting, Parts(static_cast<size_t>(size())), [&](const Parts& found) {
      copy(found[static_cast<size_t>(from)], static_cast<std::byte*>(values));
    });
  });
}

void Collectives::barrier() {
  queue_([this, meeting = next_meeting("barrier")] {
    transport_->meet(meeting, Parts(static_cast<size_t>(size())), [](const Parts&) {});
  });
}

std::unique_ptr<Communicator> Collectives::split(int colour, int key, std::string name) {
  struct Wish {
    int colour;
    int key;
  };
  const Meeting meeting = next_meeting("split");
  const auto wishes = gather_now(meeting, Wish{colour, key});
  std::vector<int> members;
  for (int other = 0; other < size(); ++other) {
    if (wishes[static_cast<size_t>(other)].colour == colour) {
      members.push_back(other);
    }
  }
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
    return wishes[static_cast<size_t>(a)].key < wishes[static_cast<size_t>(b)].key;
  });
  auto group = std::make_unique<Collectives>(transport_->split(members, meeting.number, colour, std::move(name)));
  group->set_queue(queue_);
  return group;
}

std::vector<void*> Collectives::peers(void* mine) {
  return transport_->shares_memory() ? gather_now(next_meeting("peers"), mine) : std::vector<void*>{};
}

template <typename T>
std::vector<T> Collectives::gather_now(const Meeting& meeting, const T& mine) {
  std::vector<T> all(static_cast<size_t>(size()));
  transport_->meet(meeting, for_all(&mine, sizeof(T)), [&](const Parts& found) {
    for (size_t from = 0; from < found.size(); ++from) {
      std::memcpy(&all[from], found[from].data(), sizeof(T));
    }
  });
  return all;
}

Meeting Collectives::next_meeting(std::string text) {
  return {std::move(text), std::nullopt, num_meetings_++};
}

Meeting Collectives::next_meeting(std::string text, Pair pair) {
  text += fmt::format(" from rank {} to {}", pair.from, pair.to);
  return {std::move(text), pair, num_pair_meetings_[pair]++};
}

Parts Collectives::for_all(const void* values, int64_t num_bytes) const {
  return Parts(static_cast<size_t>(size()), bytes_at(values, num_bytes));
}

Parts Collectives::for_one(int rank, const void* values, int64_t num_bytes) const {
  Parts parts(static_cast<size_t>(size()));
  parts[static_cast<size_t>(rank)] = bytes_at(values, num_bytes);
  return parts;
}

void Collectives::count_sent(const std::string& collective, int64_t num_elements, Element element) {
  sent_bytes_[collective] += num_elements * element_bytes(element);
}

void Collectives::require_rank(int rank) const {
  require(rank >= 0 && rank < size(), "a collective names a rank that the group does not have");
}

}  // namespace gpu::comm
