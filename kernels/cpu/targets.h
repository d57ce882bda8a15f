// The instruction sets a kernel file is compiled for: the platform's baseline, AVX2 and AVX-512.
// Include before any Highway header.
#pragma once

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
