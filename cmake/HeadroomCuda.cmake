# Whether the program computes on NVIDIA GPUs too (HEADROOM_WITH_CUDA), and what for that is found, wherever it usually
# is: the folder of the CUDA Toolkit, NVIDIA's and Debian's packages, and the wheels of a Python environment
# (site-packages/nvidia/cu13). Says in one line what was found and what that switches on.
set(HEADROOM_WITH_CUDA OFF)
if(NOT HEADROOM_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "HEADROOM_CUDA=${HEADROOM_CUDA}: give AUTO, ON or OFF")
endif()
if(HEADROOM_CUDA STREQUAL "OFF")
  return()
endif()
# The driver makes this file: kernels take minutes to compile, which a machine without a GPU need not spend.
if(HEADROOM_CUDA STREQUAL "AUTO" AND NOT EXISTS /dev/nvidiactl)
  message(STATUS "CUDA: no NVIDIA GPU on this machine, so the program computes on the CPU (HEADROOM_CUDA=ON builds it all the same)")
  return()
endif()

set(wheels "")
find_program(HEADROOM_PYTHON python3)
if(HEADROOM_PYTHON)
  execute_process(COMMAND ${HEADROOM_PYTHON} -c "import sys; print(';'.join(p + '/nvidia/cu13' for p in sys.path if p))"
                  OUTPUT_VARIABLE wheels OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
find_program(HEADROOM_NVCC nvcc HINTS ENV CUDACXX ENV CUDA_HOME PATHS /usr/local/cuda ${wheels} PATH_SUFFIXES bin)
set(toolkit "")
if(HEADROOM_NVCC)
  file(REAL_PATH ${HEADROOM_NVCC}/../.. toolkit)
endif()
find_path(HEADROOM_CUBLASLT_INCLUDE cublasLt.h HINTS ${toolkit} PATHS ${wheels} PATH_SUFFIXES include)
find_library(HEADROOM_CUBLASLT NAMES cublasLt libcublasLt.so.13 HINTS ${toolkit} PATHS ${wheels} PATH_SUFFIXES lib64 lib)
mark_as_advanced(HEADROOM_PYTHON HEADROOM_NVCC HEADROOM_CUBLASLT_INCLUDE HEADROOM_CUBLASLT)
foreach(part NVCC CUBLASLT_INCLUDE CUBLASLT)
  if(NOT HEADROOM_${part})
    set(missing "nvcc is ${HEADROOM_NVCC}, cublasLt.h is in ${HEADROOM_CUBLASLT_INCLUDE}, its library is ${HEADROOM_CUBLASLT}: "
                "install the CUDA Toolkit 13, or point CUDACXX at its nvcc")
    if(HEADROOM_CUDA STREQUAL "ON")
      message(FATAL_ERROR "HEADROOM_CUDA=ON: " ${missing})
    endif()
    message(STATUS "CUDA: this machine has a GPU, but the program computes on the CPU only: " ${missing})
    return()
  endif()
endforeach()

if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 100-real 100-virtual)  # the last is PTX, for what comes later
endif()
set(CMAKE_CUDA_COMPILER ${HEADROOM_NVCC})
set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
enable_language(CUDA)
if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc has C++20
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
set(HEADROOM_WITH_CUDA ON)
message(STATUS "CUDA ${CMAKE_CUDA_COMPILER_VERSION} with cuBLASLt: the program computes on NVIDIA GPUs too, with code for "
               "${CMAKE_CUDA_ARCHITECTURES}")
