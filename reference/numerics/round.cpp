#include "reference/numerics/round.hpp"
