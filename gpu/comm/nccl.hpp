// Ranks that each have a GPU, over NCCL: buffers are device memory, calls go to a CUDA stream.
// A library of its own (gpu_comm_nccl, with DSV3_CUDA). NCCL is loaded when it is first asked for, so that programs start without it.
// Compiled and linked, never run on a device.
#pragma once

#include <memory>

#include "gpu/comm/communicator.hpp"

namespace gpu::comm {

struct NcclPlace {
  int device = 0;          // which of this process's GPUs
  void* stream = nullptr;  // cudaStream_t of that device; every call goes there
};

// The ranks of `ranks`, another communicator through which they find each other; it outlives the result. Throws CommError: no GPU, no
// libnccl.so.2, or NCCL's own words.
//
// What is different here:
// - Sums are in NCCL's order, which depends on its algorithm and on how the GPUs are linked, and BF16 may be rounded on the way: the same
//   bits from run to run on the same machines, but not those of the other back ends. Results are held against bounds.
// - A call returns when NCCL has put it on the stream; whether other ranks make the same call is not checked, and one that does not come
//   holds up the stream. `timing` limits what the host waits for: that the ranks find each other, and that a call gets on the stream.
// - abort() ends NCCL's work on this rank, and the calls of all ranks of `ranks`; a rank learns of it there.
// - split() takes colours from 0 on.
// - peers() takes what cudaMalloc gave, and finds GPUs of one machine that reach each other: by address in one process, else through
//   CUDA's handles for other processes.
std::unique_ptr<Communicator> make_nccl(Communicator& ranks, const NcclPlace& place, const Timing& timing);

}  // namespace gpu::comm
