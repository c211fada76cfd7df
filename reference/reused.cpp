#include "reference/reused.hpp"

#include <array>
#include <bit>
#include <new>
#include <utility>

namespace reference {
namespace {

constexpr size_t kLine = 64;
constexpr size_t kLargestKept = size_t{1} << 20;

// Sizes come in classes of 1 to 8 lines, then four for each doubling, so that at most a quarter is wasted.
struct SizeClass {
  explicit SizeClass(size_t num_bytes) {
    const size_t num_lines = (num_bytes + kLine - 1) / kLine;
    const size_t shift = num_lines <= 8 ? 0 : static_cast<size_t>(std::bit_width(num_lines - 1)) - 3;
    const size_t units = (num_lines + (size_t{1} << shift) - 1) >> shift;
    index = 4 * shift + units;
    bytes = (units << shift) * kLine;
  }
  size_t index;
  size_t bytes;
};

struct FreeBlock {
  FreeBlock* next;
};

// Free blocks of a thread by class. Without a destructor: memory may be given back after the thread's objects are gone.
struct FreeLists {
  std::array<FreeBlock*, 64> first;
  bool is_closed;
};
constinit thread_local FreeLists lists{};

void release(void* memory) noexcept {
  ::operator delete (memory, std::align_val_t{kLine});
}

// Empties the lists when the thread ends.
struct Closer {
  Closer() = default;
  Closer(const Closer&) = delete;
  Closer& operator=(const Closer&) = delete;
  ~Closer() {
    lists.is_closed = true;
    for (FreeBlock* block : lists.first) {
      while (block != nullptr) {
        release(std::exchange(block, block->next));
      }
    }
    lists.first = {};
  }
  void keep_alive() const {}
};
thread_local const Closer closer;

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kReuses = false;  // so that a read of memory given back is seen
#else
constexpr bool kReuses = true;
#endif

}  // namespace

void* take_memory(size_t num_bytes) {
  const SizeClass found(num_bytes);
  if (found.bytes <= kLargestKept) {
    FreeBlock*& first = lists.first[found.index];
    if (first != nullptr) {
      return std::exchange(first, first->next);
    }
  }
  return ::operator new (found.bytes, std::align_val_t{kLine});
}

void give_memory(void* memory, size_t num_bytes) noexcept {
  const SizeClass found(num_bytes);
  if (!kReuses || lists.is_closed || found.bytes > kLargestKept) {
    release(memory);
    return;
  }
  closer.keep_alive();  // made by its first use
  FreeBlock*& first = lists.first[found.index];
  first = new (memory) FreeBlock{first};
}

}  // namespace reference
