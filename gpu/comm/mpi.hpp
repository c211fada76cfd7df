// Ranks that are processes of one MPI job, each with its own memory: what they exchange goes through host memory.
// A library of its own (gpu_comm_mpi), so that only programs that ask for it link MPI.
#pragma once

#include <functional>
#include <string>

#include "gpu/comm/communicator.hpp"

namespace gpu::comm {

// Runs `body` as this process's rank of the job that mpirun started; without mpirun, of a job of one rank. Once in a process.
// When it throws, the collectives of all other ranks throw too, and so do those that wait for a rank whose body has returned.
// `on_failure` hears of it on each rank that failed, one line; then, when all ranks have said theirs or two seconds are over, the whole
// job is ended with exit status 2. So this returns only when every rank's body has returned.
// NOTE: it ends the process itself, which libraries otherwise leave to main: MPI has no other way of ending ranks that hang.
void run_mpi_rank(const Timing& timing,
                  const std::function<void(Communicator&)>& body,
                  const std::function<void(int rank, const std::string& what)>& on_failure);

// Whether this process is one of a job of Open MPI's mpirun, or of a launcher that speaks PMI.
bool started_by_mpirun();

}  // namespace gpu::comm
