#include "reference/numerics/fp8.hpp"
