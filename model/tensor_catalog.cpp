#include "model/tensor_catalog.hpp"
