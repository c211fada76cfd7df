// What a back end provides: the ranks of a group meet, and each shows the others bytes. Collectives are made of such meetings.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace gpu::comm {

// What one rank shows each of a group, or finds of each: one part a rank of the group, empty where there is nothing.
using Bytes = std::span<const std::byte>;
using Parts = std::vector<Bytes>;

// From a rank to another one of the group.
struct Pair {
  int from = 0;
  int to = 0;
  // clang-tidy 14 takes a zero that the compiler writes there for a pointer.
  friend auto operator<=>(const Pair&, const Pair&) = default;  // NOLINT(modernize-use-nullptr)
};

// One meeting of a group, or of two ranks of it. Ranks that name the same pair and number meet.
struct Meeting {
  std::string text;          // the collective, "all_reduce of 12 f32": the same on every rank that comes
  std::optional<Pair> pair;  // without one, the whole group
  int64_t number = 0;        // of the pair's or the group's meetings, from 0; may come again when all have left

  [[nodiscard]] std::vector<int> ranks(int group_size) const;
};

class Transport {
 public:
  using Read = std::function<void(const Parts& found)>;

  Transport(std::string group, int rank, std::vector<int> world_ranks);
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return static_cast<int>(world_ranks_.size()); }
  // By rank of the group, which rank of the first group that is.
  [[nodiscard]] const std::vector<int>& world_ranks() const { return world_ranks_; }

  // Waits for all who meet, shows part r of `brought` to rank r, hands what each of them brought for this rank to `read`, and returns
  // when all have read. Throws CommError, after which nobody reads `brought`.
  virtual void meet(const Meeting& meeting, const Parts& brought, const Read& read) = 0;
  // The group of `members`, ranks of this group among which is this one. They come from the meeting `number`, and call this together.
  virtual std::unique_ptr<Transport> split(const std::vector<int>& members,
                                           int64_t number,
                                           int colour,
                                           std::string group) = 0;
  // Whether what is found lies where the rank that brought it has it.
  [[nodiscard]] virtual bool shares_memory() const = 0;
  // Makes meetings of all ranks of the job throw.
  virtual void abort(const std::string& reason) = 0;

  // Ends the job and throws, with a line that says where and why.
  [[noreturn]] void fail(const Meeting& meeting, const std::string& why);

 protected:
  [[noreturn]] void throw_error(const Meeting& meeting, const std::string& why) const;
  // Ranks of the group in words: "ranks 1, 3 (of world 5, 7)".
  [[nodiscard]] std::string names(const std::vector<int>& ranks) const;
  void require_same_call(const Meeting& meeting, int other, const std::string& text_of_other);

 private:
  [[nodiscard]] std::string line(const Meeting& meeting, const std::string& why) const;

  std::string group_;
  int rank_ = 0;
  std::vector<int> world_ranks_;
};

}  // namespace gpu::comm
