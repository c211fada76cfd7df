// A job in which rank 2 does what the first argument says: throw, return, or stall, instead of the collective that the second argument
// counts; or with which something is done from outside while all ranks meet again and again. A program for mpirun -np 4, run by
// mpi_faults_test.py; a last argument is only there to be found in the list of processes.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

#include "gpu/comm/mpi.hpp"
#include "tests/gpu/comm/every_collective.hpp"

namespace {

using gpu::comm::Communicator;

void run_rank(Communicator& world, std::string_view fault, size_t collective) {
  if (fault == "outside") {
    fmt::print("pid {} {}\n", world.rank(), getpid());
    std::fflush(stdout);
    while (true) {
      world.barrier();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  if (world.rank() == gpu::comm::kFaulty) {
    if (fault == "throw") {
      throw std::runtime_error("disk full");
    }
    if (fault == "return") {
      return;
    }
    std::this_thread::sleep_for(std::chrono::minutes(10));
  }
  gpu::comm::every_collective().at(collective).call(world);
  world.barrier();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string fault = argc > 1 ? argv[1] : "";
  const size_t collective = argc > 2 ? std::stoul(argv[2]) : 0;
  gpu::comm::run_mpi_rank(
      {.timeout_s = fault == "throw" || fault == "return" ? 100.0 : 2.0},
      [&](Communicator& world) { run_rank(world, fault, collective); },
      [](int rank, const std::string& what) { fmt::print(stderr, "rank {}: {}\n", rank, what); });
}
