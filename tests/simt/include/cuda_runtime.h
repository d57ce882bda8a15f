// Stands in for the header of the CUDA Toolkit when kernels and the host's side are compiled for
// the harness.
#pragma once

#include "cuda_host_api.h"
#include "simt_device.h"
