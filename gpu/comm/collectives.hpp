// A communicator over any transport: says each collective as a meeting.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gpu/comm/checked_communicator.hpp"
#include "gpu/comm/transport.hpp"

namespace gpu::comm {

class Collectives final : public CheckedCommunicator {
 public:
  explicit Collectives(std::unique_ptr<Transport> transport);

  [[nodiscard]] int rank() const override { return transport_->rank(); }
  [[nodiscard]] int size() const override { return transport_->size(); }

  void barrier() override;

  std::unique_ptr<Communicator> split(int colour, int key, std::string name) override;
  std::vector<void*> peers(void* mine) override;
  void abort(const std::string& reason) override { transport_->abort(reason); }

 protected:
  void do_all_reduce(const void* send, void* receive, int64_t count, Element element) override;
  void do_all_gather(const void* send, void* receive, int64_t count, Element element) override;
  void do_reduce_scatter(const void* send, void* receive, int64_t count, Element element) override;
  void do_all_to_all(const void* send,
                     const std::vector<int64_t>& send_counts,
                     void* receive,
                     const std::vector<int64_t>& receive_counts,
                     Element element) override;
  void do_broadcast(void* values, int64_t count, Element element, int root) override;
  void do_send(const void* values, int64_t count, Element element, int to) override;
  void do_receive(void* values, int64_t count, Element element, int from) override;

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

  std::unique_ptr<Transport> transport_;
  int64_t num_meetings_ = 0;
  std::map<Pair, int64_t> num_pair_meetings_;
};

}  // namespace gpu::comm
