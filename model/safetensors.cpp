#include "model/safetensors.hpp"
