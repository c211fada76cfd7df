#include "gpu/comm/rank_sum.hpp"

#include <cstring>

#include "gpu/portable/require.hpp"
#include "gpu/portable/types.hpp"

namespace gpu::comm {

namespace {

// `widen` gives what is added, `narrow` what is stored.
template <typename Stored, typename Widen, typename Narrow>
void sum_of(const Parts& parts, std::byte* sum, int64_t count, const Widen& widen, const Narrow& narrow) {
  const auto load = [](Bytes part, size_t offset) {
    Stored value;
    std::memcpy(&value, part.data() + offset, sizeof value);
    return value;
  };
  for (int64_t i = 0; i < count; ++i) {
    const size_t offset = static_cast<size_t>(i) * sizeof(Stored);
    auto total = widen(load(parts[0], offset));
    for (size_t rank = 1; rank < parts.size(); ++rank) {
      total += widen(load(parts[rank], offset));
    }
    const Stored stored = narrow(total);
    std::memcpy(sum + offset, &stored, sizeof stored);
  }
}

}  // namespace

void sum_in_rank_order(const Parts& parts, std::byte* sum, int64_t count, Element element) {
  const auto as_is = [](auto x) { return x; };
  const auto to_float = [](auto x) { return gpu::DSV3_BACKEND::to_float(x); };
  switch (element) {
    case Element::kByte: require(false, "bytes have no sum"); break;
    case Element::kI32: sum_of<uint32_t>(parts, sum, count, as_is, as_is); break;
    case Element::kF32: sum_of<float>(parts, sum, count, as_is, as_is); break;
    case Element::kBf16: sum_of<bf16>(parts, sum, count, to_float, gpu::DSV3_BACKEND::to_bf16); break;
    case Element::kF16: sum_of<fp16>(parts, sum, count, to_float, gpu::DSV3_BACKEND::to_fp16); break;
  }
}

}  // namespace gpu::comm
