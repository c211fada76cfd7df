#include "gpu/engine/memory_plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "model/check.hpp"

namespace gpu {
namespace {

constexpr int64_t kAlignment = 256;

std::string megabytes(int64_t num_bytes) {
  return fmt::format("{:.1f} MB", static_cast<double>(num_bytes) / 1e6);
}

}  // namespace

void MemoryPlan::add_bytes(int64_t num_bytes, std::string what, std::function<void(std::byte*)> set) {
  CHECK(!groups_.empty());
  const int64_t room = (num_bytes + kAlignment - 1) / kAlignment * kAlignment;
  groups_.back().num_bytes += room;
  entries_.push_back({std::move(what), num_bytes, std::move(set)});
}

int64_t MemoryPlan::num_bytes() const {
  int64_t sum = 0;
  for (const Group& group : groups_) {
    sum += group.num_bytes;
  }
  return sum;
}

std::string MemoryPlan::text() const {
  std::vector<std::string> parts;
  for (const Group& group : groups_) {
    parts.push_back(group.name + " " + megabytes(group.num_bytes));
  }
  return fmt::format("{}: {}", fmt::join(parts, ", "), megabytes(num_bytes()));
}

void MemoryPlan::allocate(Backend& backend) const {
  if (num_bytes() > backend.free_bytes()) {
    model::throw_input_error("device memory: {}, but {} are free", text(), megabytes(backend.free_bytes()));
  }
  for (const Entry& entry : entries_) {
    entry.set(backend.allocate(entry.num_bytes, entry.what));
  }
}

}  // namespace gpu
