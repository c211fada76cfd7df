#include "gpu/comm/mpi_transport.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <optional>
#include <thread>
#include <utility>

namespace gpu::comm {

namespace {

using Clock = std::chrono::steady_clock;
using Letter = std::vector<std::byte>;

// Waits are short in a healthy job: at first only let others run, later sleep for a tenth of what was waited already.
constexpr auto kShortWait = std::chrono::microseconds(200);
constexpr Clock::duration kLongestSleep = std::chrono::milliseconds(1);
// A rank's last letters may come behind the notice that it has left.
constexpr auto kTimeForLastLetters = std::chrono::milliseconds(200);

// The collective's text, so that the other end can hold it against its own, and the bytes.
Letter write_letter(const std::string& text, Bytes part) {
  const auto text_size = static_cast<int64_t>(text.size());
  Letter letter(sizeof text_size + text.size() + part.size());
  std::memcpy(letter.data(), &text_size, sizeof text_size);
  std::memcpy(letter.data() + sizeof text_size, text.data(), text.size());
  if (!part.empty()) {
    std::memcpy(letter.data() + sizeof text_size + text.size(), part.data(), part.size());
  }
  return letter;
}

std::pair<std::string, Bytes> read_letter(const Letter& letter) {
  int64_t text_size = 0;
  std::memcpy(&text_size, letter.data(), sizeof text_size);
  const Bytes behind = Bytes(letter).subspan(sizeof text_size);
  const Bytes text = behind.first(static_cast<size_t>(text_size));
  return {std::string(reinterpret_cast<const char*>(text.data()), text.size()), behind.subspan(text.size())};
}

}  // namespace

// What goes to one rank and comes from it at a meeting. MPI reads and writes it until the requests are done.
struct MpiTransport::Post {
  int other = 0;
  Letter sent;
  Letter received;
  bool comes = false;  // the other's letter has begun to come
  MPI_Request sending = MPI_REQUEST_NULL;
  MPI_Request receiving = MPI_REQUEST_NULL;
};

MpiTransport::MpiTransport(
    MpiJob& job, MPI_Comm communicator, std::string group, int rank, std::vector<int> world_ranks)
    : Transport(std::move(group), rank, std::move(world_ranks)), job_(job), communicator_(communicator) {
  check_mpi(MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
}

int MpiTransport::tag_of(const Meeting& meeting, int sender) const {
  constexpr int64_t kNumRoles = 3;
  const int64_t role = !meeting.pair ? 0 : sender == meeting.pair->from ? 1 : 2;
  const int64_t num_numbers = (int64_t{job_.largest_tag()} + 1) / kNumRoles;
  return static_cast<int>(meeting.number % num_numbers * kNumRoles + role);
}

void MpiTransport::throw_if_failed(const Meeting& meeting) {
  if (const auto failure = job_.failure()) {
    throw_error(meeting, fmt::format("rank {} of world failed: {}", failure->rank, failure->why));
  }
}

void MpiTransport::meet(const Meeting& meeting, const Parts& brought, const Read& read) {
  throw_if_failed(meeting);
  const auto posts = std::make_shared<std::vector<Post>>();
  for (const int other : meeting.ranks(size())) {
    if (other != rank()) {
      auto& post = posts->emplace_back();
      post.other = other;
      post.sent = write_letter(meeting.text, brought[static_cast<size_t>(other)]);
    }
  }
  try {
    for (auto& post : *posts) {
      send_letter(post, meeting);
    }
    await_letters(*posts, meeting);
  } catch (...) {
    job_.keep(posts);
    throw;
  }
  Parts found(static_cast<size_t>(size()));
  found[static_cast<size_t>(rank())] = brought[static_cast<size_t>(rank())];
  for (const auto& post : *posts) {
    const auto [text, part] = read_letter(post.received);
    require_same_call(meeting, post.other, text);
    found[static_cast<size_t>(post.other)] = part;
  }
  read(found);
}

void MpiTransport::send_letter(Post& post, const Meeting& meeting) {
  if (post.sent.size() > static_cast<size_t>(std::numeric_limits<int>::max())) {
    fail(meeting,
         fmt::format("{} bytes for {} are more than an MPI message holds", post.sent.size(), names({post.other})));
  }
  check_mpi(MPI_Isend(post.sent.data(),
                      static_cast<int>(post.sent.size()),
                      MPI_BYTE,
                      post.other,
                      tag_of(meeting, rank()),
                      communicator_,
                      &post.sending),
            "MPI_Isend");
}

bool MpiTransport::is_done(Post& post, const Meeting& meeting) {
  if (!post.comes) {
    int has_begun = 0;
    MPI_Message handle = MPI_MESSAGE_NULL;
    MPI_Status status = {};
    const int tag = tag_of(meeting, post.other);
    check_mpi(MPI_Improbe(post.other, tag, communicator_, &has_begun, &handle, &status), "MPI_Improbe");
    if (has_begun == 0) {
      return false;
    }
    int length = 0;
    check_mpi(MPI_Get_count(&status, MPI_BYTE, &length), "MPI_Get_count");
    post.received.resize(static_cast<size_t>(length));
    check_mpi(MPI_Imrecv(post.received.data(), length, MPI_BYTE, &handle, &post.receiving), "MPI_Imrecv");
    post.comes = true;
  }
  int is_sent = 0;
  int is_received = 0;
  check_mpi(MPI_Test(&post.sending, &is_sent, MPI_STATUS_IGNORE), "MPI_Test");
  check_mpi(MPI_Test(&post.receiving, &is_received, MPI_STATUS_IGNORE), "MPI_Test");
  return is_sent != 0 && is_received != 0;
}

void MpiTransport::await_letters(std::vector<Post>& posts, const Meeting& meeting) {
  const auto start = Clock::now();
  const std::chrono::duration<double> timeout(job_.timing().timeout_s);
  std::optional<Clock::time_point> saw_one_gone;
  while (true) {
    std::vector<int> missing;
    for (auto& post : posts) {
      if (!is_done(post, meeting)) {
        missing.push_back(post.other);
      }
    }
    if (missing.empty()) {
      return;
    }
    throw_if_failed(meeting);
    std::vector<int> gone;
    std::copy_if(missing.begin(), missing.end(), std::back_inserter(gone), [&](int other) {
      return job_.has_left(world_ranks()[static_cast<size_t>(other)]);
    });
    if (!gone.empty() && !saw_one_gone) {
      saw_one_gone = Clock::now();
    }
    if (!gone.empty() && Clock::now() - *saw_one_gone > kTimeForLastLetters) {
      fail(meeting, fmt::format("{} left before", names(gone)));
    }
    const Clock::duration waited = Clock::now() - start;
    if (waited > timeout) {
      fail(meeting, fmt::format("{} did not come within {} s", names(missing), timeout.count()));
    }
    if (waited < kShortWait) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::min(waited / 10, kLongestSleep));
    }
  }
}

std::unique_ptr<Transport> MpiTransport::split(const std::vector<int>& members,
                                               int64_t /*number*/,
                                               int /*colour*/,
                                               std::string group) {
  std::vector<int> world_ranks_of_group;
  for (const int member : members) {
    world_ranks_of_group.push_back(world_ranks()[static_cast<size_t>(member)]);
  }
  const auto my_place = static_cast<int>(std::find(members.begin(), members.end(), rank()) - members.begin());
  // All ranks have just met, so this waits for nobody. MPI's colours are not negative; a group's first member has one of its own.
  MPI_Comm communicator = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(communicator_, members[0], my_place, &communicator), "MPI_Comm_split");
  return std::make_unique<MpiTransport>(
      job_, communicator, std::move(group), my_place, std::move(world_ranks_of_group));
}

}  // namespace gpu::comm
