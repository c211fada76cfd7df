// A communicator over any transport: checks the arguments, counts the bytes, and says each collective as a meeting.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gpu/comm/communicator.hpp"
#include "gpu/comm/transport.hpp"

namespace gpu::comm {

class Collectives final : public Communicator {
 public:
  explicit Collectives(std::unique_ptr<Transport> transport);

  [[nodiscard]] int rank() const override { return transport_->rank(); }
  [[nodiscard]] int size() const override { return transport_->size(); }

  void all_reduce(const void* send, void* receive, int64_t count, Element element) override;
  void all_gather(const void* send, void* receive, int64_t count, Element element) override;
  void reduce_scatter(const void* send, void* receive, int64_t count, Element element) override;
  void all_to_all(const void* send,
                  std::span<const int64_t> send_counts,
                  void* receive,
                  std::span<const int64_t> receive_counts,
                  Element element) override;
  void broadcast(void* values, int64_t count, Element element, int root) override;
  void send(const void* values, int64_t count, Element element, int to) override;
  void receive(void* values, int64_t count, Element element, int from) override;
  void barrier() override;

  std::unique_ptr<Communicator> split(int colour, int key, std::string name) override;
  std::vector<void*> peers(void* mine) override;
  void abort(const std::string& reason) override { transport_->abort(reason); }
  void set_queue(Queue queue) override { queue_ = std::move(queue); }
  [[nodiscard]] const std::map<std::string, int64_t>& sent_bytes() const override { return sent_bytes_; }

 private:
  // Numbers are given when a call is made, so that calls meet rightly in whatever order the ranks' queues come to them.
  Meeting next_meeting(std::string text);
  Meeting next_meeting(std::string text, Pair pair);
  // The same part for every rank.
  [[nodiscard]] Parts for_all(const void* values, int64_t num_bytes) const;
  // Nothing but a part for one rank.
  [[nodiscard]] Parts for_one(int rank, const void* values, int64_t num_bytes) const;
  // What every rank holds there, this rank's own value among it; at once.
  template <typename T>
  std::vector<T> gather_now(const Meeting& meeting, const T& mine);
  void count_sent(const std::string& collective, int64_t num_elements, Element element);
  void require_rank(int rank) const;

  std::unique_ptr<Transport> transport_;
  Queue queue_;
  int64_t num_meetings_ = 0;
  std::map<Pair, int64_t> num_pair_meetings_;
  std::map<std::string, int64_t> sent_bytes_;
};

}  // namespace gpu::comm
