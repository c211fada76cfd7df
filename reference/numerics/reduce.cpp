#include "reference/numerics/reduce.hpp"
