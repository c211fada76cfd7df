// A communicator with a fault in what it does, for tests that have to find it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gpu/comm/communicator.hpp"

namespace tools {

// Stands between an engine and its ranks, and does one thing wrong.
class FaultyRanks : public gpu::comm::Communicator {
 public:
  enum class Fault { kOwnDataOnly, kOwnSumOnly, kNotWaited, kWrongRank, kSharedExpertTwice };

  FaultyRanks(gpu::comm::Communicator& world, Fault fault) : ranks_(&world), fault_(fault) {}
  FaultyRanks(std::unique_ptr<gpu::comm::Communicator> group, Fault fault)
      : owned_(std::move(group)), ranks_(owned_.get()), fault_(fault) {}

  [[nodiscard]] int rank() const override { return ranks_->rank(); }
  [[nodiscard]] int size() const override { return ranks_->size(); }
  // Rank 1 takes its own values for the sum.
  void all_reduce(const void* send, void* receive, int64_t count, gpu::comm::Element element) override {
    const auto num_bytes = static_cast<size_t>(count * gpu::comm::element_bytes(element));
    const bool fails = fault_ == Fault::kOwnSumOnly && owned_ != nullptr && rank() == 1;
    const auto own = std::make_shared<std::vector<std::byte>>(num_bytes);
    if (fails) {
      queue_([=] { std::memcpy(own->data(), send, num_bytes); });
    }
    ranks_->all_reduce(send, receive, count, element);
    if (fails) {
      queue_([=] { std::memcpy(receive, own->data(), num_bytes); });
    }
  }
  // Rank 1 takes its own part for everybody's; or, as if it did not wait for their flags, what was there before.
  void all_gather(const void* send, void* receive, int64_t count, gpu::comm::Element element) override {
    const auto num_bytes = static_cast<size_t>(count * gpu::comm::element_bytes(element));
    auto* const to = static_cast<std::byte*>(receive);
    const auto num_ranks = static_cast<size_t>(size());
    const bool is_faulty = owned_ != nullptr && rank() == 1;
    const auto before = std::make_shared<std::vector<std::byte>>(num_ranks * num_bytes);
    if (is_faulty && fault_ == Fault::kNotWaited) {
      queue_([=] { std::memcpy(before->data(), to, before->size()); });
    }
    ranks_->all_gather(send, receive, count, element);
    if (is_faulty && fault_ == Fault::kNotWaited) {
      queue_([=] { std::memcpy(to, before->data(), num_bytes); });
    }
    if (is_faulty && fault_ == Fault::kSharedExpertTwice && element == gpu::comm::Element::kF32 && count > 0 &&
        num_gathers_++ == kGatherOfSharedExpert) {
      queue_([=, size = size()] { replace_parts_by_sum(static_cast<float*>(receive), count, size); });
    }
    if (is_faulty && fault_ == Fault::kOwnDataOnly) {
      queue_([=] {
        for (size_t other = 0; other < num_ranks; ++other) {
          std::memcpy(to + other * num_bytes, send, num_bytes);
        }
      });
    }
  }
  void reduce_scatter(const void* send, void* receive, int64_t count, gpu::comm::Element element) override {
    ranks_->reduce_scatter(send, receive, count, element);
  }
  void all_to_all(const void* send,
                  std::span<const int64_t> send_counts,
                  void* receive,
                  std::span<const int64_t> receive_counts,
                  gpu::comm::Element element) override {
    ranks_->all_to_all(send, send_counts, receive, receive_counts, element);
  }
  void broadcast(void* values, int64_t count, gpu::comm::Element element, int root) override {
    ranks_->broadcast(values, count, element, root);
  }
  void send(const void* values, int64_t count, gpu::comm::Element element, int to) override {
    ranks_->send(values, count, element, to);
  }
  void receive(void* values, int64_t count, gpu::comm::Element element, int from) override {
    ranks_->receive(values, count, element, from);
  }
  void barrier() override { ranks_->barrier(); }
  // With a wrong map of ranks, those of a group of experts are numbered from behind.
  std::unique_ptr<gpu::comm::Communicator> split(int colour, int key, std::string name) override {
    const bool turns = fault_ == Fault::kWrongRank && name == "ep";
    return std::make_unique<FaultyRanks>(ranks_->split(colour, turns ? -key : key, name), fault_);
  }
  std::vector<void*> peers(void* mine) override { return ranks_->peers(mine); }
  void abort(const std::string& reason) override { ranks_->abort(reason); }
  void set_queue(gpu::comm::Queue queue) override {
    queue_ = queue;
    ranks_->set_queue(std::move(queue));
  }
  [[nodiscard]] const std::map<std::string, int64_t>& sent_bytes() const override { return ranks_->sent_bytes(); }

 private:
  // A tensor-parallel rank gathers FP32 parts of o_proj and of the down projection in each layer. The second layer of the model `par` is
  // the first one with a shared expert.
  static constexpr int64_t kGatherOfSharedExpert = 3;

  // As if every rank had the whole output, and all were added.
  static void replace_parts_by_sum(float* parts, int64_t count, int size) {
    for (int64_t i = 0; i < count; ++i) {
      float sum = 0;
      for (int part = 0; part < size; ++part) {
        sum += parts[part * count + i];
      }
      for (int part = 0; part < size; ++part) {
        parts[part * count + i] = sum;
      }
    }
  }

  int64_t num_gathers_ = 0;
  std::unique_ptr<gpu::comm::Communicator> owned_ = {};
  gpu::comm::Communicator* ranks_;
  Fault fault_;
  gpu::comm::Queue queue_ = [](const std::function<void()>& work) { work(); };
};

}  // namespace tools
