#include "model/op_list.hpp"
