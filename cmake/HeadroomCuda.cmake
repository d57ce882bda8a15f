# Whether the program computes on NVIDIA GPUs too (HEADROOM_WITH_CUDA), and what for that is found, wherever it usually
# is: the folder of the CUDA Toolkit, NVIDIA's and Debian's packages, and the wheels of a Python environment
# (site-packages/nvidia/cu13). Says in one line what was found and what that switches on. Without cuDNN 9 or its frontend's
# headers (HEADROOM_WITH_CUDNN) our own kernels compute all attention.
set(HEADROOM_WITH_CUDA OFF)
set(HEADROOM_WITH_CUDNN OFF)
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

# cuDNN's wheels are folders of their own; the frontend's is site-packages/include.
list(TRANSFORM wheels REPLACE "cu13$" "cudnn" OUTPUT_VARIABLE cudnn_wheels)
list(TRANSFORM wheels REPLACE "/nvidia/cu13$" "" OUTPUT_VARIABLE site_packages)
find_path(HEADROOM_CUDNN_INCLUDE cudnn.h HINTS ${toolkit} PATHS ${cudnn_wheels} PATH_SUFFIXES include)
find_library(HEADROOM_CUDNN NAMES cudnn libcudnn.so.9 HINTS ${toolkit} PATHS ${cudnn_wheels} PATH_SUFFIXES lib64 lib)
find_library(HEADROOM_NVRTC NAMES nvrtc libnvrtc.so.13 HINTS ${toolkit} PATHS ${wheels} PATH_SUFFIXES lib64 lib)
find_path(HEADROOM_CUDNN_FRONTEND_INCLUDE cudnn_frontend.h HINTS ${toolkit} PATHS ${site_packages} PATH_SUFFIXES include)
mark_as_advanced(HEADROOM_CUDNN_INCLUDE HEADROOM_CUDNN HEADROOM_NVRTC HEADROOM_CUDNN_FRONTEND_INCLUDE)
set(frontend 0)
if(HEADROOM_CUDNN_FRONTEND_INCLUDE)
  file(STRINGS ${HEADROOM_CUDNN_FRONTEND_INCLUDE}/cudnn_frontend_version.h frontend REGEX "_(MAJOR|MINOR)_VERSION [0-9]+$")
  string(REGEX REPLACE "[^;]* ([0-9]+);[^;]* ([0-9]+)" "\\1.\\2" frontend "${frontend}")
endif()
if(NOT (HEADROOM_CUDNN_INCLUDE AND HEADROOM_CUDNN AND HEADROOM_NVRTC))
  set(attention "our own kernels for all attention, as there is no cuDNN here")
elseif(frontend VERSION_LESS 1.17)  # older ones ask the first Blackwells for no backward pass that repeats
  set(attention "our own kernels for all attention, as there is cuDNN but not its frontend's headers, 1.17 or later")
else()
  set(HEADROOM_WITH_CUDNN ON)
  set(attention "cuDNN (frontend ${frontend}) for attention where it applies")
endif()
message(STATUS "CUDA ${CMAKE_CUDA_COMPILER_VERSION} with cuBLASLt and ${attention}: the program computes on NVIDIA GPUs too, "
               "with code for ${CMAKE_CUDA_ARCHITECTURES}")
