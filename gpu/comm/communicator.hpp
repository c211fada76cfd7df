// Collectives among the ranks of a group, one small interface for every way of connecting them: itself alone, threads of this process,
// MPI, NCCL. What a sum is, is part of it: the same bits with every back end that adds in the order of ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace gpu::comm {

enum class Element { kByte, kI32, kF32, kBf16, kF16 };
int64_t element_bytes(Element element);

// A collective that did not happen: a rank failed, left, did not come in time, or came for another call. One line: rank, group,
// collective, why. The job is over then: every later call of every rank throws.
class CommError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Does the work that it is given at once, or in the order of a stream.
using Queue = std::function<void(std::function<void()>)>;

// Every rank of a group makes the same calls in the same order, from one thread. Buffers are what a queue's work can touch when it is done
// (host memory, an emulated device's memory); they may be the same where it says so, and never overlap otherwise. Counts are of elements,
// and are read when the call is made. A call returns when its work is queued; with the default queue, when it is done. No rank's work is
// done before every rank of the group has come to it. Which calls belong together is settled when they are made: queues with threads of
// their own may come to them in any order. Throws CommError, and ArgumentError (portable/require.hpp) for arguments that fit no group.
class Communicator {
 public:
  virtual ~Communicator() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  // Sums are of FP32 values of BF16 and FP16 elements, rank 0's first, rounded once at the end (to nearest even); kI32 wraps around.
  // In place where send == receive.
  virtual void all_reduce(const void* send, void* receive, int64_t count, Element element) = 0;
  // `count` elements of each rank, rank 0's first. In place where send is this rank's part of receive.
  virtual void all_gather(const void* send, void* receive, int64_t count, Element element) = 0;
  // Of the sum of size() * count elements, the rank's own `count`.
  virtual void reduce_scatter(const void* send, void* receive, int64_t count, Element element) = 0;
  // Part r of `send` goes to rank r; the parts lie one behind another, likewise those received. What a rank sends to itself is copied.
  virtual void all_to_all(const void* send,
                          std::span<const int64_t> send_counts,
                          void* receive,
                          std::span<const int64_t> receive_counts,
                          Element element) = 0;
  virtual void broadcast(void* values, int64_t count, Element element, int root) = 0;
  // A send is done when it is received: two ranks that both send first wait for each other until time is up.
  virtual void send(const void* values, int64_t count, Element element, int to) = 0;
  virtual void receive(void* values, int64_t count, Element element, int from) = 0;
  virtual void barrier() = 0;

  // The ranks that give the same colour become a group, ordered by key, then by rank. `name` stands in errors ("tp", "ep"). The new
  // group has this one's queue. Done at once, whatever the queue.
  virtual std::unique_ptr<Communicator> split(int colour, int key, std::string name) = 0;
  // The pointers that every rank gives, where this rank can use them as they are (threads); empty where it cannot. A collective, done at
  // once.
  virtual std::vector<void*> peers(void* mine) = 0;
  // Makes every call of every rank of the job, in whichever group, now or later, throw with this reason. From any thread.
  virtual void abort(const std::string& reason) = 0;

  // Later calls go there; by default they are done at once.
  virtual void set_queue(Queue queue) = 0;
  // What this rank sent to others so far, by collective ("all_reduce"), counted as if each part went straight to whom it is for:
  // all_reduce and all_gather count * (size - 1) elements, reduce_scatter likewise.
  [[nodiscard]] virtual const std::map<std::string, int64_t>& sent_bytes() const = 0;
};

struct Timing {
  double timeout_s = 60;  // after which a rank that waits gives up
};

std::unique_ptr<Communicator> make_self();

// Runs `body` once for each rank, each on a thread of its own. When a rank throws, the others' collectives throw too; so do those that
// wait for a rank whose body has returned. When all have ended, rethrows the exception of the rank that failed first. `on_failure` hears
// of every rank that failed, one line each, one at a time, as it happens. A thread cannot be ended from outside: a rank that neither
// returns nor comes to a collective keeps this function from returning, after the others have failed.
void run_thread_ranks(int num_ranks,
                      const Timing& timing,
                      const std::function<void(Communicator&)>& body,
                      const std::function<void(int rank, const std::string& what)>& on_failure = {});

}  // namespace gpu::comm
