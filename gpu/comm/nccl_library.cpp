#include "gpu/comm/nccl_library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include "gpu/comm/communicator.hpp"

namespace gpu::comm {

namespace {

class SharedObject {
 public:
  SharedObject() : handle_(dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) {
      throw CommError(fmt::format("NCCL cannot be loaded: {}", dlerror()));
    }
  }

  template <typename Function>
  void find(Function*& function, const char* name) const {
    function = reinterpret_cast<Function*>(dlsym(handle_, name));
    if (function == nullptr) {
      throw CommError(fmt::format("NCCL cannot be used: its library has no {}", name));
    }
  }

 private:
  void* handle_;  // stays open as long as the process
};

NcclLibrary load() {
  const SharedObject object;
  NcclLibrary nccl = {};
  object.find(nccl.get_unique_id, "ncclGetUniqueId");
  object.find(nccl.comm_init_rank_config, "ncclCommInitRankConfig");
  object.find(nccl.comm_split, "ncclCommSplit");
  object.find(nccl.comm_finalize, "ncclCommFinalize");
  object.find(nccl.comm_destroy, "ncclCommDestroy");
  object.find(nccl.comm_abort, "ncclCommAbort");
  object.find(nccl.comm_get_async_error, "ncclCommGetAsyncError");
  object.find(nccl.get_error_string, "ncclGetErrorString");
  object.find(nccl.get_last_error, "ncclGetLastError");
  object.find(nccl.group_start, "ncclGroupStart");
  object.find(nccl.group_end, "ncclGroupEnd");
  object.find(nccl.all_reduce, "ncclAllReduce");
  object.find(nccl.all_gather, "ncclAllGather");
  object.find(nccl.reduce_scatter, "ncclReduceScatter");
  object.find(nccl.broadcast, "ncclBroadcast");
  object.find(nccl.send, "ncclSend");
  object.find(nccl.receive, "ncclRecv");
  return nccl;
}

}  // namespace

const NcclLibrary& nccl_library() {
  static const NcclLibrary loaded = load();
  return loaded;
}

}  // namespace gpu::comm
