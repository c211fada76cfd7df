#include "gpu/comm/nccl.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <nccl.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpu/comm/checked_communicator.hpp"
#include "gpu/comm/nccl_library.hpp"
#include "gpu/portable/require.hpp"

namespace gpu::comm {

namespace {

ncclDataType_t type_of(Element element) {
  switch (element) {
    case Element::kByte: return ncclUint8;
    case Element::kI32: return ncclInt32;
    case Element::kF32: return ncclFloat32;
    case Element::kBf16: return ncclBfloat16;
    case Element::kF16: return ncclFloat16;
  }
  return ncclUint8;
}

void check_cuda(cudaError_t status, const char* call) {
  if (status != cudaSuccess) {
    throw CommError(fmt::format("{}: {}", call, cudaGetErrorString(status)));
  }
}

// Calls return at once and are asked after, so that a rank that does not come cannot hold up the host.
ncclConfig_t non_blocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

// NCCL's handle of one group on this rank.
class NcclGroup {
 public:
  NcclGroup(std::string name, int rank, const Timing& timing)
      : name_(std::move(name)), rank_(rank), timing_(timing), nccl_(nccl_library()) {}
  ~NcclGroup() {
    const std::lock_guard lock(mutex_);
    if (handle_ == nullptr) {
      return;
    }
    try {
      await("leaving the group", nccl_.comm_finalize(handle_), &handle_);
      nccl_.comm_destroy(handle_);
    } catch (const CommError&) {
      nccl_.comm_abort(handle_);
    }
  }
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  // Does one call of NCCL and waits until it is on its way; `call` gets NCCL's functions and this group's handle.
  template <typename Call>
  void run(const std::string& text, const Call& call) {
    const std::lock_guard lock(mutex_);
    throw_if_aborted(text);
    await(text, call(nccl_, handle_), &handle_);
  }

  // Makes `group` a part of this one: a collective.
  void split_into(NcclGroup& group, int colour) {
    const std::lock_guard lock(mutex_);
    throw_if_aborted("split");
    auto config = non_blocking();
    const ncclResult_t result = nccl_.comm_split(handle_, colour, group.rank_, &group.handle_, &config);
    await("split", result, &handle_);
    group.await("split", ncclInProgress, &group.handle_);
  }

  void abort(const std::string& reason) {
    {
      const std::lock_guard lock(reason_mutex_);
      if (!std::exchange(is_aborted_, true)) {
        abort_reason_ = reason;
      }
    }
    const std::lock_guard lock(mutex_);  // a call that waits gives it up, now that there is a reason
    if (handle_ != nullptr) {
      nccl_.comm_abort(std::exchange(handle_, nullptr));
    }
  }

  // First call of a new group.
  void join(int num_ranks, const ncclUniqueId& id) {
    run("joining the group", [&](const NcclLibrary& nccl, ncclComm_t) {
      auto config = non_blocking();
      return nccl.comm_init_rank_config(&handle_, num_ranks, id, rank_, &config);
    });
  }

 private:
  [[noreturn]] void fail(const std::string& text, const std::string& why) const {
    throw CommError(fmt::format("rank {} of group {}: {}: {}", rank_, name_, text, why));
  }

  void throw_if_aborted(const std::string& text) const {
    const std::lock_guard lock(reason_mutex_);
    if (is_aborted_) {
      fail(text, abort_reason_);
    }
  }

  // `mutex_` is held by whoever calls. `handle` may be set while the call is in progress.
  void await(const std::string& text, ncclResult_t result, const ncclComm_t* handle) const {
    const auto start = std::chrono::steady_clock::now();
    const std::chrono::duration<double> timeout(timing_.timeout_s);
    while (result == ncclInProgress) {
      throw_if_aborted(text);
      if (std::chrono::steady_clock::now() - start > timeout) {
        fail(text, fmt::format("NCCL was not ready within {} s", timeout.count()));
      }
      std::this_thread::sleep_for(std::chrono::microseconds(20));
      if (const ncclResult_t asked = nccl_.comm_get_async_error(*handle, &result); asked != ncclSuccess) {
        result = asked;
      }
    }
    if (result != ncclSuccess) {
      fail(text, fmt::format("NCCL: {} ({})", nccl_.get_error_string(result), nccl_.get_last_error(*handle)));
    }
  }

  std::string name_;
  int rank_;
  Timing timing_;
  const NcclLibrary& nccl_;
  std::mutex mutex_;
  ncclComm_t handle_ = nullptr;

  mutable std::mutex reason_mutex_;
  bool is_aborted_ = false;
  std::string abort_reason_;
};

// Where memory of a rank is, for those that want to reach it.
struct PeerPointer {
  std::array<char, 64> machine = {};
  pid_t process = 0;
  int device = 0;
  void* address = nullptr;         // in its process
  cudaIpcMemHandle_t handle = {};  // in others of the machine
};

class NcclCommunicator final : public CheckedCommunicator {
 public:
  // `ranks` has the same ranks in the same order.
  NcclCommunicator(std::unique_ptr<NcclGroup> group, Communicator& ranks, const NcclPlace& place, const Timing& timing)
      : group_(std::move(group)), ranks_(ranks), place_(place), timing_(timing) {
    check_cuda(cudaSetDevice(place.device), "cudaSetDevice");
    check_cuda(cudaMalloc(&one_, sizeof(int32_t)), "cudaMalloc");
  }
  ~NcclCommunicator() override {
    cudaFree(one_);
    for (void* const memory : opened_) {
      cudaIpcCloseMemHandle(memory);
    }
  }

  [[nodiscard]] int rank() const override { return ranks_.rank(); }
  [[nodiscard]] int size() const override { return ranks_.size(); }

  void barrier() override {
    enqueue("barrier", [this](const NcclLibrary& nccl, ncclComm_t handle) {
      return nccl.all_reduce(one_, one_, 1, ncclInt32, ncclMax, handle, stream());
    });
  }

  std::unique_ptr<Communicator> split(int colour, int key, std::string name) override {
    require(colour >= 0, "NCCL's colours are not negative");
    auto ranks = ranks_.split(colour, key, name);
    auto group = std::make_unique<NcclGroup>(std::move(name), ranks->rank(), timing_);
    group_->split_into(*group, colour);
    auto part = std::make_unique<NcclCommunicator>(std::move(group), *ranks, place_, timing_);
    part->own_ranks_ = std::move(ranks);
    part->set_queue(queue());
    return part;
  }

  std::vector<void*> peers(void* mine) override {
    const auto everybody = gather(where_is(mine));
    std::vector<void*> found;
    bool reaches_all = true;
    for (const PeerPointer& of_rank : everybody) {
      found.push_back(reach(of_rank, everybody[static_cast<size_t>(rank())]));
      reaches_all = reaches_all && found.back() != nullptr;
    }
    int32_t num_blind = reaches_all ? 0 : 1;
    ranks_.all_reduce(&num_blind, &num_blind, 1, Element::kI32);
    return num_blind == 0 ? found : std::vector<void*>{};
  }

  void abort(const std::string& reason) override {
    group_->abort(reason);
    ranks_.abort(reason);
  }

 protected:
  void do_all_reduce(const void* send, void* receive, int64_t count, Element element) override {
    enqueue(text_of("all_reduce", count, element), [=, this](const NcclLibrary& nccl, ncclComm_t handle) {
      return nccl.all_reduce(send, receive, elements(count), type_of(element), ncclSum, handle, stream());
    });
  }

  void do_all_gather(const void* send, void* receive, int64_t count, Element element) override {
    enqueue(text_of("all_gather", count, element), [=, this](const NcclLibrary& nccl, ncclComm_t handle) {
      return nccl.all_gather(send, receive, elements(count), type_of(element), handle, stream());
    });
  }

  void do_reduce_scatter(const void* send, void* receive, int64_t count, Element element) override {
    enqueue(text_of("reduce_scatter", count, element), [=, this](const NcclLibrary& nccl, ncclComm_t handle) {
      return nccl.reduce_scatter(send, receive, elements(count), type_of(element), ncclSum, handle, stream());
    });
  }

  void do_all_to_all(const void* send,
                     const std::vector<int64_t>& send_counts,
                     void* receive,
                     const std::vector<int64_t>& receive_counts,
                     Element element) override {
    const std::string text = fmt::format("all_to_all of {}", name_of(element));
    enqueue(text, [=, this](const NcclLibrary& nccl, ncclComm_t handle) {
      const auto* from = static_cast<const std::byte*>(send);
      auto* to = static_cast<std::byte*>(receive);
      nccl.group_start();
      for (int other = 0; other < size(); ++other) {
        const int64_t send_count = send_counts[static_cast<size_t>(other)];
        const int64_t receive_count = receive_counts[static_cast<size_t>(other)];
        nccl.send(from, elements(send_count), type_of(element), other, handle, stream());
        nccl.receive(to, elements(receive_count), type_of(element), other, handle, stream());
        from += send_count * element_bytes(element);
        to += receive_count * element_bytes(element);
      }
      return nccl.group_end();  // tells of the errors of the calls in between, too
    });
  }

  void do_broadcast(void* values, int64_t count, Element element, int root) override {
    enqueue(text_of("broadcast", count, element), [=, this](const NcclLibrary& nccl, ncclComm_t handle) {
      return nccl.broadcast(values, values, elements(count), type_of(element), root, handle, stream());
    });
  }

  void do_send(const void* values, int64_t count, Element element, int to) override {
    enqueue(text_of("send", count, element), [=, this](const NcclLibrary& nccl, ncclComm_t handle) {
      return nccl.send(values, elements(count), type_of(element), to, handle, stream());
    });
  }

  void do_receive(void* values, int64_t count, Element element, int from) override {
    enqueue(text_of("receive", count, element), [=, this](const NcclLibrary& nccl, ncclComm_t handle) {
      return nccl.receive(values, elements(count), type_of(element), from, handle, stream());
    });
  }

 private:
  template <typename Call>
  void enqueue(std::string text, Call call) {
    queue()([this, text = std::move(text), call = std::move(call)] {
      try {
        group_->run(text, call);
      } catch (const CommError& error) {
        abort(error.what());
        throw;
      }
    });
  }

  [[nodiscard]] PeerPointer where_is(void* mine) const {
    PeerPointer pointer{.process = getpid(), .device = place_.device, .address = mine};
    gethostname(pointer.machine.data(), pointer.machine.size() - 1);
    check_cuda(cudaIpcGetMemHandle(&pointer.handle, mine), "cudaIpcGetMemHandle");
    return pointer;
  }

  std::vector<PeerPointer> gather(const PeerPointer& mine) {
    std::vector<PeerPointer> all(static_cast<size_t>(size()));
    ranks_.all_gather(&mine, all.data(), sizeof(PeerPointer), Element::kByte);
    return all;
  }

  // Null: this rank's GPU does not reach it.
  void* reach(const PeerPointer& theirs, const PeerPointer& mine) {
    if (theirs.machine != mine.machine) {
      return nullptr;
    }
    if (theirs.process != mine.process) {
      void* opened = nullptr;
      if (cudaIpcOpenMemHandle(&opened, theirs.handle, cudaIpcMemLazyEnablePeerAccess) != cudaSuccess) {
        cudaGetLastError();  // it is no error of what comes next
        return nullptr;
      }
      opened_.push_back(opened);
      return opened;
    }
    if (theirs.device != mine.device) {
      const cudaError_t status = cudaDeviceEnablePeerAccess(theirs.device, 0);
      cudaGetLastError();
      if (status != cudaSuccess && status != cudaErrorPeerAccessAlreadyEnabled) {
        return nullptr;
      }
    }
    return theirs.address;
  }

  static size_t elements(int64_t count) { return static_cast<size_t>(count); }
  [[nodiscard]] cudaStream_t stream() const { return static_cast<cudaStream_t>(place_.stream); }

  std::unique_ptr<NcclGroup> group_;
  Communicator& ranks_;
  std::unique_ptr<Communicator> own_ranks_;  // of a group that came from a split
  NcclPlace place_;
  Timing timing_;
  void* one_ = nullptr;        // on the device, for the barrier
  std::vector<void*> opened_;  // memory of other processes
};

}  // namespace

std::unique_ptr<Communicator> make_nccl(Communicator& ranks, const NcclPlace& place, const Timing& timing) {
  int num_devices = 0;  // stays so when there is no driver
  check_cuda(cudaGetDeviceCount(&num_devices), "cudaGetDeviceCount");
  if (place.device < 0 || place.device >= num_devices) {
    throw CommError(fmt::format("there is no GPU {}: this process sees {}", place.device, num_devices));
  }
  check_cuda(cudaSetDevice(place.device), "cudaSetDevice");
  auto group = std::make_unique<NcclGroup>("world", ranks.rank(), timing);
  ncclUniqueId id = {};
  if (ranks.rank() == 0) {
    if (const ncclResult_t result = nccl_library().get_unique_id(&id); result != ncclSuccess) {
      throw CommError(fmt::format("ncclGetUniqueId: {}", nccl_library().get_error_string(result)));
    }
  }
  ranks.broadcast(&id, sizeof id, Element::kByte, 0);
  group->join(ranks.size(), id);
  return std::make_unique<NcclCommunicator>(std::move(group), ranks, place, timing);
}

}  // namespace gpu::comm
