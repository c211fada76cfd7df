// Each collective once, called as a rank of four does it: what tests of faults go through.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "gpu/comm/communicator.hpp"

namespace gpu::comm {

constexpr int kNumRanks = 4;
constexpr int kFaulty = 2;

struct Collective {
  const char* name;  // in its errors
  std::function<void(Communicator&)> call;
};

// By four ranks, of which the third is the one that a test lets fail.
inline const std::vector<Collective>& every_collective() {
  static const std::vector<int64_t> one_each(kNumRanks, 1);
  static const std::vector<Collective> all = {
      {"all_reduce",
       [](Communicator& group) {
         float x = 1;
         group.all_reduce(&x, &x, 1, Element::kF32);
       }},
      {"all_gather",
       [](Communicator& group) {
         float all_of_them[kNumRanks] = {};
         group.all_gather(all_of_them + group.rank(), all_of_them, 1, Element::kF32);
       }},
      {"reduce_scatter",
       [](Communicator& group) {
         const float mine[kNumRanks] = {};
         float sum = 0;
         group.reduce_scatter(mine, &sum, 1, Element::kF32);
       }},
      {"all_to_all",
       [](Communicator& group) {
         const float mine[kNumRanks] = {};
         float theirs[kNumRanks] = {};
         group.all_to_all(mine, one_each, theirs, one_each, Element::kF32);
       }},
      {"broadcast",
       [](Communicator& group) {
         float x = 1;
         group.broadcast(&x, 1, Element::kF32, 0);
       }},
      {"broadcast",  // from the faulty rank

       [](Communicator& group) {
         float x = 1;
         group.broadcast(&x, 1, Element::kF32, kFaulty);
       }},
      {"send/receive",  // towards the faulty rank and from it

       [](Communicator& group) {
         float x = 1;
         if (group.rank() != kFaulty) {
           group.send(&x, 1, Element::kF32, kFaulty);
           group.receive(&x, 1, Element::kF32, kFaulty);
         }
       }},
      {"barrier", [](Communicator& group) { group.barrier(); }},
      {"split", [](Communicator& group) { group.split(0, 0, "same"); }},
      {"peers",
       [](Communicator& group) {
         int x = 0;
         group.peers(&x);
       }},
  };
  return all;
}

}  // namespace gpu::comm
