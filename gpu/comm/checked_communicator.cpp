#include "gpu/comm/checked_communicator.hpp"

#include <fmt/format.h>

#include <numeric>

#include "gpu/portable/require.hpp"

namespace gpu::comm {

namespace {

void require_buffer(const void* values, int64_t count) {
  require(count >= 0, "a collective's count is negative");
  require(count == 0 || values != nullptr, "a collective's buffer is null");
}

void require_summable(Element element) {
  require(element != Element::kByte, "bytes have no sum");
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

void require_counts(std::span<const int64_t> counts, int group_size) {
  require(static_cast<int>(counts.size()) == group_size, "all_to_all needs a count a rank");
  for (const int64_t count : counts) {
    require(count >= 0, "a collective's count is negative");
  }
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

void CheckedCommunicator::all_reduce(const void* send, void* receive, int64_t count, Element element) {
  require_buffer(send, count);
  require_buffer(receive, count);
  require_summable(element);
  const int64_t num_bytes = count * element_bytes(element);
  if (send != receive) {
    require_apart(send, num_bytes, receive, num_bytes);
  }
  count_sent("all_reduce", count * (size() - 1), element);
  do_all_reduce(send, receive, count, element);
}

void CheckedCommunicator::all_gather(const void* send, void* receive, int64_t count, Element element) {
  require_buffer(send, count);
  require_buffer(receive, count);
  const int64_t num_bytes = count * element_bytes(element);
  if (send != static_cast<const std::byte*>(receive) + rank() * num_bytes) {
    require_apart(send, num_bytes, receive, size() * num_bytes);
  }
  count_sent("all_gather", count * (size() - 1), element);
  do_all_gather(send, receive, count, element);
}

void CheckedCommunicator::reduce_scatter(const void* send, void* receive, int64_t count, Element element) {
  require_buffer(send, count);
  require_buffer(receive, count);
  require_summable(element);
  const int64_t num_bytes = count * element_bytes(element);
  require_apart(send, size() * num_bytes, receive, num_bytes);
  count_sent("reduce_scatter", count * (size() - 1), element);
  do_reduce_scatter(send, receive, count, element);
}

void CheckedCommunicator::all_to_all(const void* send,
                                     std::span<const int64_t> send_counts,
                                     void* receive,
                                     std::span<const int64_t> receive_counts,
                                     Element element) {
  require_counts(send_counts, size());
  require_counts(receive_counts, size());
  require_buffer(send, total(send_counts));
  require_buffer(receive, total(receive_counts));
  const int64_t each = element_bytes(element);
  require_apart(send, total(send_counts) * each, receive, total(receive_counts) * each);
  count_sent("all_to_all", total(send_counts) - send_counts[static_cast<size_t>(rank())], element);
  do_all_to_all(
      send, {send_counts.begin(), send_counts.end()}, receive, {receive_counts.begin(), receive_counts.end()}, element);
}

void CheckedCommunicator::broadcast(void* values, int64_t count, Element element, int root) {
  require_buffer(values, count);
  require(root >= 0 && root < size(), "a broadcast's root is not a rank of the group");
  count_sent("broadcast", rank() == root ? count * (size() - 1) : 0, element);
  do_broadcast(values, count, element, root);
}

void CheckedCommunicator::send(const void* values, int64_t count, Element element, int to) {
  require_buffer(values, count);
  require_other_rank(to);
  count_sent("send", count, element);
  do_send(values, count, element, to);
}

void CheckedCommunicator::receive(void* values, int64_t count, Element element, int from) {
  require_buffer(values, count);
  require_other_rank(from);
  do_receive(values, count, element, from);
}

void CheckedCommunicator::count_sent(const std::string& collective, int64_t num_elements, Element element) {
  sent_bytes_[collective] += num_elements * element_bytes(element);
}

void CheckedCommunicator::require_other_rank(int other) const {
  require(other >= 0 && other < size() && other != rank(),
          "a rank sends to or receives from no other rank of the group");
}

}  // namespace gpu::comm
