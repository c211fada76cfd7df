// The bound on the order of a sum: every order that hardware uses stays inside, a lost product does not, and it is not
// far off.
#include "reference/bounds/dot.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <random>

namespace reference {
namespace {

enum class Data { kNormal, kAllPositive, kOneOutlier, kManySizes };

struct Operands {
  std::vector<float> a;
  std::vector<float> b;
};

Operands draw(Data data, size_t len, std::mt19937& generator) {
  std::normal_distribution<float> normal;
  Operands x{std::vector<float>(len), std::vector<float>(len)};
  for (size_t i = 0; i < len; ++i) {
    x.a[i] = normal(generator);
    x.b[i] = normal(generator);
    if (data == Data::kAllPositive) {
      x.a[i] = std::abs(x.a[i]);
      x.b[i] = std::abs(x.b[i]);
    }
    if (data == Data::kManySizes) {
      x.a[i] = std::ldexp(x.a[i], static_cast<int>(generator() % 20) - 10);
    }
  }
  if (data == Data::kOneOutlier) {
    x.a[generator() % len] *= 10000;
  }
  return x;
}

float sequential(const Operands& x) {
  float sum = 0;
  for (size_t i = 0; i < x.a.size(); ++i) {
    sum += x.a[i] * x.b[i];
  }
  return sum;
}

float backwards(const Operands& x) {
  float sum = 0;
  for (size_t i = x.a.size(); i-- > 0;) {
    sum += x.a[i] * x.b[i];
  }
  return sum;
}

float fused(const Operands& x) {
  float sum = 0;
  for (size_t i = 0; i < x.a.size(); ++i) {
    sum = std::fma(x.a[i], x.b[i], sum);
  }
  return sum;
}

float pairwise(const Operands& x) {
  std::vector<float> terms(x.a.size());
  std::transform(x.a.begin(), x.a.end(), x.b.begin(), terms.begin(), std::multiplies<float>());
  while (terms.size() > 1) {
    for (size_t i = 0; i < terms.size() / 2; ++i) {
      terms[i] = terms[2 * i] + terms[2 * i + 1];
    }
    if (terms.size() % 2 == 1) {
      terms[terms.size() / 2] = terms.back();
    }
    terms.resize((terms.size() + 1) / 2);
  }
  return terms[0];
}

// The real sum, to 64 bits; the products of floats are exact.
long double real_sum(const Operands& x) {
  long double sum = 0;
  for (size_t i = 0; i < x.a.size(); ++i) {
    sum += static_cast<long double>(x.a[i]) * x.b[i];
  }
  return sum;
}

double bound(const Operands& x) {
  TermSums terms;
  for (size_t i = 0; i < x.a.size(); ++i) {
    terms.add(static_cast<double>(x.a[i]) * x.b[i]);
  }
  return order_error(sum_model(v32_rules(Gemm::kBf16, model::ScaleFormat::kFp32), 8), terms);
}

constexpr std::array kAllData{Data::kNormal, Data::kAllPositive, Data::kOneOutlier, Data::kManySizes};
constexpr std::array<size_t, 5> kLens{1, 3, 16, 100, 384};
constexpr int kTrials = 5000;  // of each kind and length: 100,000 in all

// The bound is used up to at least 1/50 by the plainest order in each cell of 5000 trials. (A bound 50 times too wide
// would have hidden a lost bit.)
TEST(OrderError, LegalOrders_StayInsideAndUseTheBound) {
  std::mt19937 generator(1);
  for (const Data data : kAllData) {
    for (const size_t len : kLens) {
      double most_used = 0;
      for (int trial = 0; trial < kTrials; ++trial) {
        const Operands x = draw(data, len, generator);
        const long double exact = real_sum(x);
        const double allowed = bound(x);
        for (const auto& order : {sequential, backwards, fused, pairwise}) {
          ASSERT_LE(std::abs(static_cast<double>(order(x) - exact)), allowed)
              << static_cast<int>(data) << " length " << len << " trial " << trial;
        }
        most_used = std::max(most_used, std::abs(static_cast<double>(sequential(x) - exact)) / allowed);
      }
      EXPECT_GE(most_used, 1.0 / 50) << static_cast<int>(data) << " length " << len;
    }
  }
}

// Only products far below the size of the sum can be lost unnoticed; where sizes differ by 2^20, those are up to a
// third.
TEST(OrderError, ALostProduct_LiesOutsideForMostSums) {
  std::mt19937 generator(2);
  for (const Data data : kAllData) {
    for (const size_t len : kLens) {
      int outside = 0;
      constexpr int kLosses = 500;
      for (int trial = 0; trial < kLosses; ++trial) {
        Operands x = draw(data, len, generator);
        const long double exact = real_sum(x);
        const double allowed = bound(x);
        x.a[generator() % len] = 0;
        outside += std::abs(static_cast<double>(sequential(x) - exact)) > allowed;
      }
      EXPECT_GT(outside, data == Data::kManySizes ? kLosses * 6 / 10 : kLosses * 9 / 10)
          << static_cast<int>(data) << " length " << len;
    }
  }
}

// Terms with a trend: the first half positive, the second negative. A chain in their own order has partial sums far above the total;
// the bound knows the largest prefix and holds.
TEST(OrderError, OrderedTerms_StayInside) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal(1.0f, 0.5f);
  for (const int n : {128, 512, 2048, 7168}) {
    for (int trial = 0; trial < 200; ++trial) {
      TermSums terms;
      float chain = 0;
      double exact = 0;
      for (int k = 0; k < n; ++k) {
        const float term = (k < n / 2 ? 1.0f : -1.0f) * normal(random);
        terms.add(term);
        chain += term;
        exact += static_cast<double>(term);
      }
      const double bound = order_error({.unit = std::ldexp(1.0, -24), .num_sigmas = 8}, terms);
      EXPECT_LE(std::abs(static_cast<double>(chain) - exact), bound) << n;
    }
  }
}

// By hand: four terms of 1 in FP32: sum 4, squares 4, largest prefix 4. With 3 sigmas, statistical:
// 3 u sqrt((4 (16 + 16) + 4) / 3) = 3 u sqrt(44) = 19.9 u. Deterministic: 5 u / (1 - 5 u) * 4 = 20 u. With 8 sigmas the statistical one
// is 53 u, and the other is taken.
TEST(OrderError, FourOnes_MatchHandComputation) {
  TermSums terms;
  for (int i = 0; i < 4; ++i) {
    terms.add(1);
  }
  const double u = std::ldexp(1.0, -24);
  EXPECT_NEAR(order_error({.unit = u, .num_sigmas = 3}, terms), 3 * std::sqrt(44.0) * u, 1e-6 * u);
  EXPECT_NEAR(order_error({.unit = u, .num_sigmas = 8}, terms), 20 * u, 1e-4 * u);
}

// 2 * 3 + 4 * 5 with errors of the first factors 0.5 and 0, of the second 0.25 and 0.125:
// 0.5 * 3 + 2 * 0.25 + 0.5 * 0.25 + 4 * 0.125 = 2.625, beside which the order counts less than 1e-5.
TEST(DotWithError, ErrorsOfTheFactors_AddUp) {
  const std::array<double, 2> a{2, 4};
  const std::array<double, 2> a_error{0.5, 0};
  const std::array<double, 2> b{3, 5};
  const std::array<double, 2> b_error{0.25, 0.125};
  const auto dot = dot_with_error({.unit = std::ldexp(1.0, -24), .num_sigmas = 8}, a, a_error, b, b_error);
  EXPECT_EQ(dot.value, 26);
  EXPECT_NEAR(dot.error, 2.625, 1e-5);
  EXPECT_GT(dot.error, 2.625);
}

}  // namespace
}  // namespace reference
