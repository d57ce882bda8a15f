# Whether the program computes on NVIDIA GPUs too (HEADROOM_WITH_CUDA), and what for that is found, wherever it usually
# is: the folder of the CUDA Toolkit, NVIDIA's and Debian's packages, and the wheels of a Python environment
# (site-packages/nvidia/cu13, /cudnn and /nccl). Says in one line what was found and what that switches on. Without cuDNN 9
# or its frontend's headers (HEADROOM_WITH_CUDNN) our own kernels compute all attention; without NCCL (HEADROOM_WITH_NCCL)
# there is one worker on a GPU.
set(HEADROOM_WITH_CUDA OFF)
set(HEADROOM_WITH_CUDNN OFF)
set(HEADROOM_WITH_NCCL OFF)
if(NOT HEADROOM_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "HEADROOM_CUDA=${HEADROOM_CUDA}: give AUTO, ON or OFF")
endif()
if(HEADROOM_CUDA STREQUAL "OFF")
  return()
endif()
# Kernels take minutes to compile, which a machine without a GPU need not spend. Linux's driver makes the file; where Windows
# has the driver (WSL 2), its tool tells.
if(HEADROOM_CUDA STREQUAL "AUTO" AND NOT EXISTS /dev/nvidiactl)
  find_program(HEADROOM_NVIDIA_SMI nvidia-smi PATHS /usr/lib/wsl/lib)
  mark_as_advanced(HEADROOM_NVIDIA_SMI)
  set(gpus "")
  if(HEADROOM_NVIDIA_SMI)
    execute_process(COMMAND ${HEADROOM_NVIDIA_SMI} -L OUTPUT_VARIABLE gpus ERROR_QUIET)
  endif()
  if(NOT gpus MATCHES "GPU 0")
    message(STATUS "CUDA: no NVIDIA GPU on this machine, so the program computes on the CPU (HEADROOM_CUDA=ON builds it all the same)")
    return()
  endif()
endif()

# Says why CUDA can't be used: an error where it was asked for.
function(headroom_without_cuda)
  if(HEADROOM_CUDA STREQUAL "ON")
    message(FATAL_ERROR "HEADROOM_CUDA=ON: " ${ARGN})
  endif()
  message(STATUS "CUDA: this machine has a GPU, but the program computes on the CPU only: " ${ARGN})
endfunction()

# Sets `result` to the numbers that the header defines as `names`, one after another ("1.17"), or to 0 without a header.
function(headroom_version_in header names result)
  set(numbers 0)
  if(EXISTS ${header})
    file(STRINGS ${header} numbers REGEX "define (${names}) [0-9]+")
    list(TRANSFORM numbers REPLACE ".* ([0-9]+).*" "\\1")
    list(JOIN numbers "." numbers)
  endif()
  set(${result} ${numbers} PARENT_SCOPE)
endfunction()

set(wheels "")
find_program(HEADROOM_PYTHON python3)
if(HEADROOM_PYTHON)
  execute_process(COMMAND ${HEADROOM_PYTHON} -c "import sys; print(';'.join(p + '/nvidia/cu13' for p in sys.path if p))"
                  OUTPUT_VARIABLE wheels OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
find_program(HEADROOM_NVCC NAMES $ENV{CUDACXX} nvcc HINTS ENV CUDA_HOME PATHS /usr/local/cuda ${wheels} PATH_SUFFIXES bin)
set(toolkit "")
if(HEADROOM_NVCC)
  file(REAL_PATH ${HEADROOM_NVCC}/../.. toolkit)
endif()
find_path(HEADROOM_CUBLASLT_INCLUDE cublasLt.h HINTS ${toolkit} PATHS ${wheels} PATH_SUFFIXES include)
find_library(HEADROOM_CUBLASLT NAMES cublasLt libcublasLt.so.13 NAMES_PER_DIR HINTS ${toolkit} PATHS ${wheels} PATH_SUFFIXES lib64 lib)
mark_as_advanced(HEADROOM_PYTHON HEADROOM_NVCC HEADROOM_CUBLASLT_INCLUDE HEADROOM_CUBLASLT)
if(NOT (HEADROOM_NVCC AND HEADROOM_CUBLASLT_INCLUDE AND HEADROOM_CUBLASLT))
  headroom_without_cuda(
    "nvcc is ${HEADROOM_NVCC}, cublasLt.h is in ${HEADROOM_CUBLASLT_INCLUDE}, its library is ${HEADROOM_CUBLASLT}: "
    "install the CUDA Toolkit 13, or point CUDACXX at its nvcc")
  return()
endif()

execute_process(COMMAND ${HEADROOM_NVCC} --version OUTPUT_VARIABLE nvcc_says ERROR_QUIET)
string(REGEX REPLACE ".* release ([0-9.]+).*" "\\1" release "${nvcc_says}")
if(release VERSION_LESS 13)
  headroom_without_cuda("${HEADROOM_NVCC} is of CUDA ${release}, and 13 is needed: CUDACXX chooses another one")
  return()
endif()

# enable_language would end in an error even where AUTO can do without: nvcc refuses host compilers newer than itself.
set(probe ${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/headroom_probe)
file(WRITE ${probe}.cu "#include <string>\n__global__ void probe() {}\n")
execute_process(COMMAND ${HEADROOM_NVCC} -ccbin ${CMAKE_CXX_COMPILER} -std=c++20 -c ${probe}.cu -o ${probe}.o
                RESULT_VARIABLE failed OUTPUT_VARIABLE nvcc_says ERROR_VARIABLE nvcc_says)
if(NOT failed EQUAL 0)
  string(REGEX REPLACE "[ \n]+" " " nvcc_says "${nvcc_says}")
  headroom_without_cuda(
    "${HEADROOM_NVCC} can't compile with ${CMAKE_CXX_COMPILER} (CMAKE_CXX_COMPILER chooses another one): ${nvcc_says}")
  return()
endif()

if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 100-real 100-virtual)  # the last is PTX, for what comes later
endif()
set(CMAKE_CUDA_COMPILER ${HEADROOM_NVCC})
set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
if(NOT EXISTS ${toolkit}/lib64)  # where nvcc looks for its libraries; the wheels have them in lib
  string(APPEND CMAKE_CUDA_FLAGS " -L${toolkit}/lib")
endif()
enable_language(CUDA)
if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc has C++20
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
set(HEADROOM_WITH_CUDA ON)

# cuDNN's wheels are folders of their own; the frontend's is site-packages/include.
list(TRANSFORM wheels REPLACE "cu13$" "cudnn" OUTPUT_VARIABLE cudnn_wheels)
list(TRANSFORM wheels REPLACE "/nvidia/cu13$" "" OUTPUT_VARIABLE site_packages)
find_path(HEADROOM_CUDNN_INCLUDE cudnn.h HINTS ${toolkit} ${cudnn_wheels} PATH_SUFFIXES include)
find_library(HEADROOM_CUDNN NAMES cudnn libcudnn.so.9 NAMES_PER_DIR HINTS ${toolkit} ${cudnn_wheels} PATH_SUFFIXES lib64 lib)
find_library(HEADROOM_NVRTC NAMES nvrtc libnvrtc.so.13 NAMES_PER_DIR HINTS ${toolkit} PATHS ${wheels} PATH_SUFFIXES lib64 lib)
find_path(HEADROOM_CUDNN_FRONTEND_INCLUDE cudnn_frontend.h HINTS ${toolkit} ${site_packages} PATH_SUFFIXES include)
mark_as_advanced(HEADROOM_CUDNN_INCLUDE HEADROOM_CUDNN HEADROOM_NVRTC HEADROOM_CUDNN_FRONTEND_INCLUDE)
headroom_version_in(${HEADROOM_CUDNN_INCLUDE}/cudnn_version.h "CUDNN_MAJOR|CUDNN_MINOR" cudnn)
headroom_version_in(${HEADROOM_CUDNN_FRONTEND_INCLUDE}/cudnn_frontend_version.h
                    "CUDNN_FRONTEND_MAJOR_VERSION|CUDNN_FRONTEND_MINOR_VERSION" frontend)
if(NOT (HEADROOM_CUDNN_INCLUDE AND HEADROOM_CUDNN))
  set(attention "our own kernels for all attention, as there is no cuDNN here")
elseif(NOT HEADROOM_NVRTC)
  set(attention "our own kernels for all attention, as there is cuDNN but not the NVRTC that it needs")
elseif(NOT cudnn MATCHES "^9\\.")
  set(attention "our own kernels for all attention, as cuDNN is ${cudnn} here and 9 is needed")
elseif(frontend VERSION_LESS 1.17)  # older ones ask the first Blackwells for no backward pass that repeats
  set(attention "our own kernels for all attention, as there is cuDNN but not its frontend's headers, 1.17 or later")
else()
  set(HEADROOM_WITH_CUDNN ON)
  set(attention "cuDNN ${cudnn} (frontend ${frontend}) for attention where it applies")
endif()

list(TRANSFORM wheels REPLACE "cu13$" "nccl" OUTPUT_VARIABLE nccl_wheels)
find_path(HEADROOM_NCCL_INCLUDE nccl.h HINTS ${toolkit} ${nccl_wheels} PATH_SUFFIXES include)
find_library(HEADROOM_NCCL NAMES nccl libnccl.so.2 NAMES_PER_DIR HINTS ${toolkit} ${nccl_wheels} PATH_SUFFIXES lib64 lib)
mark_as_advanced(HEADROOM_NCCL_INCLUDE HEADROOM_NCCL)
set(workers "no NCCL, so on one GPU")
if(HEADROOM_NCCL_INCLUDE AND HEADROOM_NCCL)
  set(HEADROOM_WITH_NCCL ON)
  headroom_version_in(${HEADROOM_NCCL_INCLUDE}/nccl.h "NCCL_MAJOR|NCCL_MINOR" nccl)
  set(workers "NCCL ${nccl} for several")
endif()
message(STATUS "CUDA ${CMAKE_CUDA_COMPILER_VERSION} with cuBLASLt, ${attention}, ${workers}: the program computes on NVIDIA GPUs too, "
               "with code for ${CMAKE_CUDA_ARCHITECTURES}")
