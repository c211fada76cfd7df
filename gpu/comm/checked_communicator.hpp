// What every back end does with a call before it carries it out: holds the arguments against each other and counts what is sent.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gpu/comm/communicator.hpp"

namespace gpu::comm {

// The call in errors: "all_reduce of 12 f32".
std::string text_of(const char* collective, int64_t count, Element element);
const char* name_of(Element element);

class CheckedCommunicator : public Communicator {
 public:
  void all_reduce(const void* send, void* receive, int64_t count, Element element) final;
  void all_gather(const void* send, void* receive, int64_t count, Element element) final;
  void reduce_scatter(const void* send, void* receive, int64_t count, Element element) final;
  void all_to_all(const void* send,
                  std::span<const int64_t> send_counts,
                  void* receive,
                  std::span<const int64_t> receive_counts,
                  Element element) final;
  void broadcast(void* values, int64_t count, Element element, int root) final;
  void send(const void* values, int64_t count, Element element, int to) final;
  void receive(void* values, int64_t count, Element element, int from) final;

  void set_queue(Queue queue) final { queue_ = std::move(queue); }
  [[nodiscard]] const std::map<std::string, int64_t>& sent_bytes() const final { return sent_bytes_; }

 protected:
  // The same calls, with arguments that fit each other and the group.
  virtual void do_all_reduce(const void* send, void* receive, int64_t count, Element element) = 0;
  virtual void do_all_gather(const void* send, void* receive, int64_t count, Element element) = 0;
  virtual void do_reduce_scatter(const void* send, void* receive, int64_t count, Element element) = 0;
  virtual void do_all_to_all(const void* send,
                             const std::vector<int64_t>& send_counts,
                             void* receive,
                             const std::vector<int64_t>& receive_counts,
                             Element element) = 0;
  virtual void do_broadcast(void* values, int64_t count, Element element, int root) = 0;
  virtual void do_send(const void* values, int64_t count, Element element, int to) = 0;
  virtual void do_receive(void* values, int64_t count, Element element, int from) = 0;

  [[nodiscard]] const Queue& queue() const { return queue_; }

 private:
  void count_sent(const std::string& collective, int64_t num_elements, Element element);
  void require_other_rank(int other) const;

  Queue queue_ = [](const std::function<void()>& work) { work(); };
  std::map<std::string, int64_t> sent_bytes_;
};

}  // namespace gpu::comm
