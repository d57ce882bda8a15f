# Configures a project with toolkits that are files and no more, and checks what HeadroomCuda.cmake says of their versions.
# Usage: cmake -DSOURCE_DIR=<this project> -DWORK_DIR=<folder to write> -P cuda_selftest.cmake
cmake_minimum_required(VERSION 3.25)

# What a toolkit of these versions comes to, as one line in `said`.
function(configure cuda cudnn frontend)
  file(REMOVE_RECURSE ${WORK_DIR})
  set(toolkit ${WORK_DIR}/toolkit)
  foreach(name cublasLt.h cudnn.h cudnn_frontend.h)
    file(WRITE ${toolkit}/include/${name} "")
  endforeach()
  foreach(name cublasLt cudnn nvrtc)
    file(WRITE ${toolkit}/lib64/lib${name}.so "")
  endforeach()
  file(WRITE ${toolkit}/include/cudnn_version.h "#define CUDNN_MAJOR ${cudnn}\n#define CUDNN_MINOR 7\n")
  file(WRITE ${toolkit}/include/cudnn_frontend_version.h
       "#define CUDNN_FRONTEND_MAJOR_VERSION 1\n#define CUDNN_FRONTEND_MINOR_VERSION ${frontend}\n")
  file(WRITE ${toolkit}/bin/nvcc "#!/bin/sh\necho Cuda compilation tools, release ${cuda}, V${cuda}.1\n")
  file(CHMOD ${toolkit}/bin/nvcc PERMISSIONS OWNER_READ OWNER_EXECUTE)
  file(WRITE ${WORK_DIR}/CMakeLists.txt "cmake_minimum_required(VERSION 3.25)\nproject(toolkits LANGUAGES NONE)\n"
       "macro(enable_language)\nendmacro()\ninclude(${SOURCE_DIR}/cmake/HeadroomCuda.cmake)\n")
  execute_process(COMMAND ${CMAKE_COMMAND} -S ${WORK_DIR} -B ${WORK_DIR}/build -DHEADROOM_CUDA=ON
                          -DHEADROOM_NVCC=${toolkit}/bin/nvcc
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

configure(13.0 9 17)
expect_said("with cuBLASLt, cuDNN 9.7 (frontend 1.17) for attention where it applies")
configure(12.9 9 17)
expect_said("HEADROOM_CUDA=ON: ${WORK_DIR}/toolkit/bin/nvcc is of CUDA 12.9, and 13 is needed")
configure(13.0 8 17)
expect_said("our own kernels for all attention, as cuDNN is 8.7 here and 9 is needed")
configure(13.0 9 16)
expect_said("our own kernels for all attention, as there is cuDNN but not its frontend's headers, 1.17 or later")
