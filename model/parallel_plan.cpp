#include "model/parallel_plan.hpp"
