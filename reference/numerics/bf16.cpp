#include "reference/numerics/bf16.hpp"
