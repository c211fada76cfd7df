#include "model/config.hpp"
