#include "reference/numerics/functions.hpp"
