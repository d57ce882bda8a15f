// How many threads the kernels use, and what the processor under them can do.
#pragma once

#include <string>

namespace headroom::kernels {

/// Cores this process may use: its affinity mask, and where that is less its share, as one of
/// several workers, of the machine's cores or of its control group's CPU quota.
int available_cores();
/// Sets the number of threads of the CPU kernels; 0 means available_cores(). More than that is
/// capped. Returns the number in use.
int set_threads(int asked);
int threads();

/// Whether the processor multiplies bf16 pairs natively (AVX512_BF16): what precision `auto` asks.
bool has_native_bf16();
/// Whether it multiplies tiles of bf16 (AMX). Intel's processors that do run the dot product of
/// pairs at half the rate of multiply-adds in f32 (1 in 2 cycles beside 2 in one; measured on Xeon
/// 6); AMD's, which have no such unit, at twice that rate.
bool has_amx_bf16();
/// The instruction set the kernels were dispatched to ("AVX3", "AVX2", ...), and the GEMM library
/// with its version.
std::string simd_name();
std::string gemm_name();
/// The MPI library with its version; empty in a build without one.
std::string mpi_name();
/// "NCCL 2.28.9"; empty in a build without it.
std::string nccl_name();

}  // namespace headroom::kernels
