// What tests of several ranks share: devices that reach into each other's memory, one OS thread a rank.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gpu/emulation/peer_group.hpp"
#include "tests/gpu/harness.hpp"

namespace gpu::DSV3_BACKEND {

class Ranks {
 public:
  // Random orders get a seed of their own on each rank.
  explicit Ranks(int num_ranks, Options options = {}) : peers_(std::make_shared<emulation::PeerGroup>(num_ranks)) {
    options.peers = peers_;
    for (int rank = 0; rank < num_ranks; ++rank) {
      devices_.push_back(std::make_unique<Device>(options));
      streams_.push_back(devices_.back()->create_stream());
      options.order.seed += 100;
    }
  }

  [[nodiscard]] int size() const { return static_cast<int>(devices_.size()); }
  [[nodiscard]] Device& device(int rank) { return *devices_[static_cast<size_t>(rank)]; }
  [[nodiscard]] Stream stream(int rank) const { return streams_[static_cast<size_t>(rank)]; }

  // Each rank's thread meets the others, runs `body` and synchronises its device. Throws what the rank threw that failed first.
  void run(const std::function<void(int rank)>& body) {
    std::vector<std::thread> threads;
    std::vector<std::exception_ptr> failures(devices_.size());
    for (int rank = 0; rank < size(); ++rank) {
      threads.emplace_back([&, rank] {
        try {
          device(rank).meet_peers();
          body(rank);
          device(rank).synchronize();
        } catch (const std::exception& failure) {
          peers_->fail(failure.what());
          failures[static_cast<size_t>(rank)] = std::current_exception();
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    for (const std::exception_ptr& failure : failures) {
      rethrow_if_first(failure);
    }
  }

 private:
  void rethrow_if_first(const std::exception_ptr& failure) const {
    if (failure == nullptr) {
      return;
    }
    try {
      std::rethrow_exception(failure);
    } catch (const std::exception& what) {
      if (what.what() == peers_->failure()) {
        throw;
      }
    }
  }

  std::shared_ptr<emulation::PeerGroup> peers_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<Stream> streams_;
};

}  // namespace gpu::DSV3_BACKEND
