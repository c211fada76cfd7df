#include "model/checkpoint.hpp"
