# Fails on an #include that points upwards in the layers or on a third-party header outside its place.
# Usage: cmake -DSOURCE_DIR=<tree> -P includes_test.cmake
cmake_minimum_required(VERSION 3.25)

# What each layer may include besides itself.
set(tensor_may)
set(configs_may tensor)
set(kernels_may tensor)
set(autograd_may kernels tensor)
set(nn_may autograd kernels tensor configs)
set(text_may tensor configs)
set(train_may nn autograd kernels tensor configs text)
set(infer_may nn autograd kernels tensor configs text)
set(experiments_may train infer nn autograd kernels tensor configs text)
set(cli_may experiments train infer nn autograd kernels tensor configs text)
set(layers tensor configs kernels autograd nn text train infer experiments cli)

# Third-party headers and the files that may include them, first match wins, as pairs of regular expressions.
set(places
  "^fmt/" "."
  "^nlohmann/json_fwd\\.hpp$" "."
  "^nlohmann/" "\\.cpp$"
  "^xxhash\\.h$" "^(tensor|text)/"
  "^yaml-cpp/" "^configs/"
  "^(dnnl|oneapi/|hwy/|omp\\.h$|mpi\\.h$)" "^kernels/cpu/"
  "^(cu[a-zA-Z_]*\\.|cuda|cudnn|nccl)" "^kernels/cuda/"
  "^pcre2" "^text/"
  "^(Eigen/|boost/)" "^experiments/"
  "^CLI/" "^cli/"
  "^sys/" "."
  "^netinet/" "^kernels/cpu/"
  "/" "^$"  # any other library in a folder of its own belongs in this table first
)

# SEND_ERROR: the script goes on, to report every wrong include, and its exit status is 1.
function(report file line rule)
  message(SEND_ERROR "${file}: ${line}\n  ${rule}")
endfunction()

set(includes 0)

function(check_ours file line header)
  string(REGEX MATCH "^[^/]+" from ${file})
  string(REGEX MATCH "^[^/]+" to ${header})
  if(NOT header MATCHES "/" OR NOT to IN_LIST layers)
    report(${file} "${line}" "a header in quotes is named from the top: \"layer/file.h\"")
  elseif(NOT to STREQUAL from AND NOT to IN_LIST ${from}_may)
    list(JOIN ${from}_may ", " allowed)
    report(${file} "${line}" "${from} may include only itself and: ${allowed}")
  endif()
endfunction()

function(check_library file line header)
  list(LENGTH places length)
  math(EXPR last "${length} - 1")
  foreach(i RANGE 0 ${last} 2)
    list(GET places ${i} pattern)
    if(header MATCHES "${pattern}")
      math(EXPR j "${i} + 1")
      list(GET places ${j} place)
      if(NOT file MATCHES "${place}")
        report(${file} "${line}" "<${header}> is allowed only in files that match ${place}")
      endif()
      return()
    endif()
  endforeach()
endfunction()

foreach(layer IN LISTS layers)
  file(GLOB_RECURSE files RELATIVE ${SOURCE_DIR} ${SOURCE_DIR}/${layer}/*.h ${SOURCE_DIR}/${layer}/*.cpp
       ${SOURCE_DIR}/${layer}/*.cu ${SOURCE_DIR}/${layer}/*.cuh)
  foreach(file IN LISTS files)
    file(STRINGS ${SOURCE_DIR}/${file} lines REGEX "^[ \t]*#[ \t]*include[ \t]*[\"<]")
    foreach(line IN LISTS lines)
      math(EXPR includes "${includes} + 1")
      if(line MATCHES "\"([^\"]+)\"")
        check_ours(${file} "${line}" "${CMAKE_MATCH_1}")
      elseif(line MATCHES "<([^>]+)>")
        check_library(${file} "${line}" "${CMAKE_MATCH_1}")
      endif()
    endforeach()
  endforeach()
endforeach()

if(includes EQUAL 0)
  message(FATAL_ERROR "no #include found under ${SOURCE_DIR}: nothing was checked")
endif()
message(STATUS "${includes} includes checked")
