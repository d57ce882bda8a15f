# Plants includes in a small tree and checks that includes_test.cmake refuses exactly the wrong ones.
# Usage: cmake -DWORK_DIR=<folder to write> -P includes_selftest.cmake
cmake_minimum_required(VERSION 3.25)

file(REMOVE_RECURSE ${WORK_DIR})

function(run_check)
  execute_process(COMMAND ${CMAKE_COMMAND} -DSOURCE_DIR=${WORK_DIR} -P ${CMAKE_CURRENT_LIST_DIR}/includes_test.cmake
                  RESULT_VARIABLE result OUTPUT_VARIABLE out ERROR_VARIABLE err)
  set(result ${result} PARENT_SCOPE)
  set(output "${out}${err}" PARENT_SCOPE)
endfunction()

function(plant)
  foreach(pair IN LISTS ARGN)
    string(REGEX MATCH "^([^ ]+) (.+)$" _ "${pair}")
    file(APPEND ${WORK_DIR}/${CMAKE_MATCH_1} "#include ${CMAKE_MATCH_2}\n")
  endforeach()
endfunction()

run_check()
if(result EQUAL 0)
  message(FATAL_ERROR "a tree without a single include passed")
endif()

set(right
  "tensor/a.h <vector>" "tensor/a.h <sys/stat.h>" "tensor/a.h <fmt/format.h>" "tensor/a.h <nlohmann/json_fwd.hpp>"
  "tensor/a.cpp <nlohmann/json.hpp>" "configs/a.cpp <yaml-cpp/yaml.h>" "kernels/cpu/a.h \"kernels/backend.h\""
  "kernels/cpu/a.cpp <hwy/highway.h>" "nn/a.h \"kernels/backend.h\"" "text/a.cpp <pcre2.h>" "train/a.h \"text/a.h\""
  "experiments/a.cpp \"infer/a.h\"" "experiments/b.cpp \"train/a.h\"" "cli/a.cpp \"tensor/a.h\"")
plant(${right})
run_check()
if(NOT result EQUAL 0)
  message(FATAL_ERROR "right includes were refused:\n${output}")
endif()

set(wrong
  "tensor/w.h \"configs/a.h\"" "configs/w.h \"kernels/backend.h\"" "kernels/cpu/w.cpp \"configs/a.h\""
  "autograd/w.h \"nn/a.h\"" "autograd/x.h \"configs/a.h\"" "nn/w.h \"text/a.h\"" "text/w.h \"nn/a.h\""
  "train/w.h \"infer/a.h\"" "infer/w.cpp \"train/a.h\"" "infer/x.cpp \"experiments/a.h\"" "experiments/w.h \"cli/a.h\""
  "tensor/x.h \"a.h\"" "nn/x.h <nlohmann/json.hpp>" "nn/x.cpp <yaml-cpp/yaml.h>" "kernels/w.cpp <dnnl.hpp>"
  "kernels/w.h <hwy/highway.h>" "nn/y.cpp <omp.h>" "train/w.cpp <pcre2.h>" "experiments/w.cpp <CLI/CLI.hpp>"
  "infer/y.cpp <Eigen/SVD>" "cli/w.cpp <boost/math/distributions.hpp>" "kernels/cpu/x.cpp <cublasLt.h>"
  "cli/x.cpp <absl/strings/str_cat.h>" "train/x.cpp <xxhash.h>")
plant(${wrong})
run_check()
if(result EQUAL 0)
  message(FATAL_ERROR "wrong includes passed:\n${output}")
endif()
foreach(pair IN LISTS wrong)
  string(REPLACE " " ": #include " expected "${pair}")
  string(FIND "${output}" "${expected}" at)
  if(at EQUAL -1)
    message(SEND_ERROR "not refused: ${pair}")
  endif()
endforeach()
foreach(pair IN LISTS right)
  string(REPLACE " " ": #include " unexpected "${pair}")
  string(FIND "${output}" "${unexpected}" at)
  if(NOT at EQUAL -1)
    message(SEND_ERROR "wrongly refused: ${pair}")
  endif()
endforeach()
file(REMOVE_RECURSE ${WORK_DIR})
