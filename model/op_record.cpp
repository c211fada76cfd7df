#include "model/op_record.hpp"
