#include "golden/store.hpp"
