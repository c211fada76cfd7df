#include "tools/legal/orders.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tools::legal {
namespace {

float pairwise(std::span<const float> terms) {
  if (terms.empty()) {
    return 0;
  }
  if (terms.size() == 1) {
    return terms[0];
  }
  const size_t half = terms.size() / 2;
  return pairwise(terms.first(half)) + pairwise(terms.subspan(half));
}

}  // namespace

Order::Order(uint64_t seed, bool unrounded) : random_(seed), unrounded_(unrounded) {
  kind_ = static_cast<Kind>(random_() % 6);
  num_lanes_ = size_t{2} << (random_() % 5);
  shuffle_seed_ = random_();
}

std::vector<size_t> Order::permutation(size_t count) const {
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  std::mt19937_64 random(shuffle_seed_);
  std::shuffle(order.begin(), order.end(), random);
  return order;
}

float Order::sum(std::vector<float> terms) const {
  switch (kind_) {
    case Kind::kPairwise: return pairwise(terms);
    case Kind::kDescending: std::reverse(terms.begin(), terms.end()); break;
    case Kind::kShuffled: {
      std::vector<float> shuffled;
      for (const size_t i : permutation(terms.size())) {
        shuffled.push_back(terms[i]);
      }
      terms = std::move(shuffled);
      break;
    }
    case Kind::kLanes: {
      std::vector<float> lanes(num_lanes_);
      for (size_t i = 0; i < terms.size(); ++i) {
        lanes[i % num_lanes_] += terms[i];
      }
      return pairwise(lanes);
    }
    case Kind::kAscending:
    case Kind::kFused: break;
  }
  return std::accumulate(terms.begin(), terms.end(), 0.0F);
}

float Order::dot(std::span<const float> a, std::span<const float> b) const {
  if (kind_ == Kind::kFused) {
    float result = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      result = std::fma(a[i], b[i], result);
    }
    return result;
  }
  std::vector<float> products(a.size());
  std::transform(a.begin(), a.end(), b.begin(), products.begin(), [](float x, float y) { return x * y; });
  return sum(std::move(products));
}

float Order::function(double exact) {
  const auto nearest = static_cast<float>(exact);
  if (!std::isfinite(nearest)) {
    return nearest;
  }
  switch (random_() % 4) {
    case 0: return std::nextafterf(nearest, INFINITY);
    case 1: return std::nextafterf(nearest, -INFINITY);
    default: return nearest;
  }
}

}  // namespace tools::legal
