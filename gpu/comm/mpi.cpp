#include "gpu/comm/mpi.hpp"

#include <exception>
#include <numeric>
#include <vector>

#include "gpu/comm/collectives.hpp"
#include "gpu/comm/error_text.hpp"
#include "gpu/comm/mpi_job.hpp"
#include "gpu/comm/mpi_transport.hpp"

namespace gpu::comm {

namespace {

std::unique_ptr<Transport> world_of(MpiJob& job) {
  MPI_Comm communicator = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &communicator), "MPI_Comm_dup");
  std::vector<int> ranks(static_cast<size_t>(job.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return std::make_unique<MpiTransport>(job, communicator, "world", job.rank(), std::move(ranks));
}

}  // namespace

void run_mpi_rank(const Timing& timing,
                  const std::function<void(Communicator&)>& body,
                  const std::function<void(int rank, const std::string& what)>& on_failure) {
  MpiJob job(timing);
  try {
    Collectives world(world_of(job));
    body(world);
    job.leave();
  } catch (...) {
    const std::string what = text_of(std::current_exception());
    job.fail(what);
    on_failure(job.rank(), what);
    job.end_all();
  }
  if (job.failure()) {
    job.end_all();  // another rank's failure, which is its to report
  }
  job.finish();
}

bool started_by_mpirun() {
  return std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr || std::getenv("PMI_SIZE") != nullptr;
}

}  // namespace gpu::comm
