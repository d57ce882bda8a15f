# Configures a project with toolkits that are files and no more, and checks what HeadroomCuda.cmake says of them.
# Usage: cmake -DSOURCE_DIR=<this project> -DWORK_DIR=<folder to write> -P cuda_selftest.cmake
cmake_minimum_required(VERSION 3.25)
set(toolkit ${WORK_DIR}/toolkit)

# A toolkit of these versions, whose nvcc compiles whatever it is given.
function(make_toolkit cuda cudnn frontend)
  file(REMOVE_RECURSE ${WORK_DIR})
  foreach(name cublasLt.h cudnn.h cudnn_frontend.h)
    file(WRITE ${toolkit}/include/${name} "")
  endforeach()
  foreach(name cublasLt cudnn nvrtc nccl)
    file(WRITE ${toolkit}/lib64/lib${name}.so "")
  endforeach()
  file(WRITE ${toolkit}/include/cudnn_version.h "#define CUDNN_MAJOR ${cudnn}\n#define CUDNN_MINOR 7\n")
  file(WRITE ${toolkit}/include/cudnn_frontend_version.h
       "#define CUDNN_FRONTEND_MAJOR_VERSION 1\n#define CUDNN_FRONTEND_MINOR_VERSION ${frontend}\n")
  file(WRITE ${toolkit}/include/nccl.h "#define NCCL_MAJOR 2\n#define NCCL_MINOR 28\n")
  make_program(nvcc "echo Cuda compilation tools, release ${cuda}, V${cuda}.1")
endfunction()

function(make_program name script)
  file(WRITE ${toolkit}/bin/${name} "#!/bin/sh\n${script}\n")
  file(CHMOD ${toolkit}/bin/${name} PERMISSIONS OWNER_READ OWNER_EXECUTE)
endfunction()

# What that toolkit comes to with HEADROOM_CUDA=`wanted` and further arguments, as one line in `said`.
function(configure wanted)
  file(WRITE ${WORK_DIR}/CMakeLists.txt "cmake_minimum_required(VERSION 3.25)\nproject(toolkits LANGUAGES NONE)\n"
       "macro(enable_language)\nendmacro()\ninclude(${SOURCE_DIR}/cmake/HeadroomCuda.cmake)\n")
  execute_process(COMMAND ${CMAKE_COMMAND} -S ${WORK_DIR} -B ${WORK_DIR}/build -DHEADROOM_CUDA=${wanted}
                          -DHEADROOM_NVCC=${toolkit}/bin/nvcc -DHEADROOM_NVIDIA_SMI=${toolkit}/bin/nvidia-smi ${ARGN}
                  OUTPUT_VARIABLE out ERROR_VARIABLE err)
  string(REGEX REPLACE "[ \n]+" " " said "${out}${err}")
  set(said "${said}" PARENT_SCOPE)
endfunction()

function(expect_said text)
  string(FIND "${said}" "${text}" place)
  if(place EQUAL -1)
    message(SEND_ERROR "instead of '${text}' was said: ${said}")
  endif()
endfunction()

make_toolkit(13.0 9 17)
configure(ON)
expect_said("with cuBLASLt, cuDNN 9.7 (frontend 1.17) for attention where it applies, NCCL 2.28 for several")
configure(ON -DHEADROOM_NVRTC=OFF -DHEADROOM_NCCL=OFF)
expect_said("our own kernels for all attention, as there is cuDNN but not the NVRTC that it needs, no NCCL, so on one GPU")
make_toolkit(12.9 9 17)
configure(ON)
expect_said("HEADROOM_CUDA=ON: ${toolkit}/bin/nvcc is of CUDA 12.9, and 13 is needed")
make_toolkit(13.0 8 17)
configure(ON)
expect_said("our own kernels for all attention, as cuDNN is 8.7 here and 9 is needed")
make_toolkit(13.0 9 16)
configure(ON)
expect_said("our own kernels for all attention, as there is cuDNN but not its frontend's headers, 1.17 or later")

# A GPU that only the driver's tool knows, and a compiler that refuses the host's.
make_toolkit(13.0 9 17)
make_program(nvidia-smi "echo GPU 0: of a test")
make_program(nvcc "echo Cuda compilation tools, release 13.0, V13.0.1; [ \$1 = --version ] || { echo unsupported GNU version; exit 1; }")
configure(ON)
expect_said("HEADROOM_CUDA=ON: ${toolkit}/bin/nvcc can't compile with")
expect_said("unsupported GNU version")
configure(AUTO)
expect_said("CUDA: this machine has a GPU, but the program computes on the CPU only: ${toolkit}/bin/nvcc can't compile with")
if(NOT EXISTS /dev/nvidiactl)
  make_program(nvidia-smi "echo No devices found.")
  configure(AUTO)
  expect_said("CUDA: no NVIDIA GPU on this machine")
endif()
