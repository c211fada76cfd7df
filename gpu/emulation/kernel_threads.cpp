#include "gpu/emulation/kernel_threads.hpp"

#include <bit>

namespace gpu::emulation {

uint32_t shuffle(uint32_t mask, uint32_t value, int operand, ShuffleKind kind, Site site) {
  struct Operand {
    uint32_t value;
    int operand;
    ShuffleKind kind;
    uint32_t result;
  } mine{value, operand, kind, value};
  BlockRunner::current()->warp_operation(
      mask,
      "shuffle",
      site,
      &mine,
      [](void* const* operands, const void* lanes) {
        for (uint32_t rest = *static_cast<const uint32_t*>(lanes); rest != 0; rest &= rest - 1) {
          const int lane = std::countr_zero(rest);
          Operand& operand_of_lane = *static_cast<Operand*>(operands[lane]);
          int from = operand_of_lane.operand;
          if (operand_of_lane.kind == ShuffleKind::kXor) {
            from ^= lane;
          } else if (operand_of_lane.kind == ShuffleKind::kDown) {
            from += lane;
          }
          // Reading a lane that does not take part is undefined on the device: poison, so that it is seen.
          const bool takes_part =
              from >= 0 && from < kWarpLen && (*static_cast<const uint32_t*>(lanes) >> from & 1U) != 0;
          if (from < 0 || from >= kWarpLen) {
            from = lane;
          }
          operand_of_lane.result =
              takes_part || from == lane ? static_cast<const Operand*>(operands[from])->value : 0xFFFFFFFFU;
        }
      },
      &mask);
  return mine.result;
}

uint32_t ballot(uint32_t mask, bool vote, Site site) {
  struct Operand {
    bool vote;
    uint32_t result;
  } mine{vote, 0};
  BlockRunner::current()->warp_operation(
      mask,
      "ballot",
      site,
      &mine,
      [](void* const* operands, const void* lanes) {
        uint32_t votes = 0;
        for (uint32_t rest = *static_cast<const uint32_t*>(lanes); rest != 0; rest &= rest - 1) {
          const int lane = std::countr_zero(rest);
          votes |= static_cast<uint32_t>(static_cast<const Operand*>(operands[lane])->vote) << lane;
        }
        for (uint32_t rest = *static_cast<const uint32_t*>(lanes); rest != 0; rest &= rest - 1) {
          static_cast<Operand*>(operands[std::countr_zero(rest)])->result = votes;
        }
      },
      &mask);
  return mine.result;
}

}  // namespace gpu::emulation
