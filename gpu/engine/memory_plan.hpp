// Everything the engine wants to hold on the device, listed before any of it is allocated.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gpu/engine/backend.hpp"

namespace gpu {

class MemoryPlan {
 public:
  // What is added from here on is part of this group ("weights", "latent cache", "workspace").
  void enter_group(std::string name) { groups_.push_back({std::move(name), 0}); }

  // `count` elements; allocate() sets `pointer`, which stays where it is until then. Zero elements: it stays null.
  template <typename T>
  void add(T*& pointer, int64_t count, std::string what) {
    if (count > 0) {
      add_bytes(count * static_cast<int64_t>(sizeof(T)), std::move(what), [&pointer](std::byte* start) {
        pointer = reinterpret_cast<T*>(start);
      });
    }
  }

  [[nodiscard]] int64_t num_bytes() const;
  // "weights 7.9 MB, latent cache 1.3 MB, workspace 12.0 MB: 21.2 MB"
  [[nodiscard]] std::string text() const;
  // Throws InputError, before anything is allocated, when the device has less free.
  void allocate(Backend& backend) const;

 private:
  struct Group {
    std::string name;
    int64_t num_bytes = 0;
  };
  struct Entry {
    std::string what;
    int64_t num_bytes = 0;
    std::function<void(std::byte*)> set;
  };

  void add_bytes(int64_t num_bytes, std::string what, std::function<void(std::byte*)> set);

  std::vector<Group> groups_;
  std::vector<Entry> entries_;
};

}  // namespace gpu
