#include "gpu/comm/collectives.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "gpu/comm/rank_sum.hpp"

namespace gpu::comm {

namespace {

Bytes bytes_at(const void* values, int64_t num_bytes) {
  return {static_cast<const std::byte*>(values), static_cast<size_t>(num_bytes)};
}

// Where a part lies already is left alone: others may be reading it.
void copy(Bytes from, std::byte* to) {
  if (!from.empty() && from.data() != to) {
    std::memcpy(to, from.data(), from.size());
  }
}

}  // namespace

Collectives::Collectives(std::unique_ptr<Transport> transport) : transport_(std::move(transport)) {}

void Collectives::do_all_reduce(const void* send, void* receive, int64_t count, Element element) {
  const int64_t num_bytes = count * element_bytes(element);
  queue()([=, this, meeting = next_meeting(text_of("all_reduce", count, element))] {
    // In place, others still read what this rank has when its sum is ready.
    std::vector<std::byte> sum(static_cast<size_t>(num_bytes));
    transport_->meet(meeting, for_all(send, num_bytes), [&](const Parts& found) {
      sum_in_rank_order(found, sum.data(), count, element);
    });
    copy(sum, static_cast<std::byte*>(receive));
  });
}

void Collectives::do_all_gather(const void* send, void* receive, int64_t count, Element element) {
  const int64_t num_bytes = count * element_bytes(element);
  auto* const to = static_cast<std::byte*>(receive);
  queue()([=, this, meeting = next_meeting(text_of("all_gather", count, element))] {
    transport_->meet(meeting, for_all(send, num_bytes), [&](const Parts& found) {
      for (int from = 0; from < size(); ++from) {
        copy(found[static_cast<size_t>(from)], to + from * num_bytes);
      }
    });
  });
}

void Collectives::do_reduce_scatter(const void* send, void* receive, int64_t count, Element element) {
  const int64_t num_bytes = count * element_bytes(element);
  Parts parts;
  for (int to = 0; to < size(); ++to) {
    parts.push_back(bytes_at(static_cast<const std::byte*>(send) + to * num_bytes, num_bytes));
  }
  queue()([=, this, meeting = next_meeting(text_of("reduce_scatter", count, element))] {
    transport_->meet(meeting, parts, [&](const Parts& found) {
      sum_in_rank_order(found, static_cast<std::byte*>(receive), count, element);
    });
  });
}

void Collectives::do_all_to_all(const void* send,
                                const std::vector<int64_t>& send_counts,
                                void* receive,
                                const std::vector<int64_t>& receive_counts,
                                Element element) {
  const int64_t each = element_bytes(element);
  Parts parts;
  const auto* next_part = static_cast<const std::byte*>(send);
  for (const int64_t count : send_counts) {
    parts.push_back(bytes_at(next_part, count * each));
    next_part += count * each;
  }
  queue()(
      [=, this, expected = receive_counts, meeting = next_meeting(fmt::format("all_to_all of {}", name_of(element)))] {
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

void Collectives::do_broadcast(void* values, int64_t count, Element element, int root) {
  const int64_t num_bytes = count * element_bytes(element);
  const bool is_root = rank() == root;
  auto meeting = next_meeting(fmt::format("{} from rank {}", text_of("broadcast", count, element), root));
  queue()([=, this, meeting = std::move(meeting)] {
    const Parts parts = is_root ? for_all(values, num_bytes) : Parts(static_cast<size_t>(size()));
    transport_->meet(meeting, parts, [&](const Parts& found) {
      copy(found[static_cast<size_t>(root)], static_cast<std::byte*>(values));
    });
  });
}

void Collectives::do_send(const void* values, int64_t count, Element element, int to) {
  auto meeting = next_meeting(text_of("send/receive", count, element), {rank(), to});
  queue()([=, this, meeting = std::move(meeting)] {
    transport_->meet(meeting, for_one(to, values, count * element_bytes(element)), [](const Parts&) {});
  });
}

void Collectives::do_receive(void* values, int64_t count, Element element, int from) {
  auto meeting = next_meeting(text_of("send/receive", count, element), {from, rank()});
  queue()([=, this, meeting = std::move(meeting)] {
    transport_->meet(meeting, Parts(static_cast<size_t>(size())), [&](const Parts& found) {
      copy(found[static_cast<size_t>(from)], static_cast<std::byte*>(values));
    });
  });
}

void Collectives::barrier() {
  queue()([this, meeting = next_meeting("barrier")] {
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
  group->set_queue(queue());
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

}  // namespace gpu::comm
