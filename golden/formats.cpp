#include "golden/formats.hpp"
