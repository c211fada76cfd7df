#include "golden/cases.hpp"
