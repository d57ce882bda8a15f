# The libraries that headroom links to. Read by the build and, installed, by find_package(headroom).
# Header-only libraries that no public header names are found by the layer that uses them.
find_package(fmt REQUIRED)
find_package(hwy REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(yaml-cpp REQUIRED)

# Debian's dnnl-config.cmake stops when the OpenCL headers are absent, and PCRE2 brings no CMake files.
function(headroom_find_library target library header)
  if(NOT TARGET ${target})
    find_library(HEADROOM_${library} ${library} REQUIRED)
    find_path(HEADROOM_${library}_INCLUDE ${header} REQUIRED)
    mark_as_advanced(HEADROOM_${library} HEADROOM_${library}_INCLUDE)
    add_library(${target} UNKNOWN IMPORTED)
    set_target_properties(${target} PROPERTIES IMPORTED_LOCATION ${HEADROOM_${library}}
                          INTERFACE_INCLUDE_DIRECTORIES ${HEADROOM_${library}_INCLUDE})
  endif()
endfunction()
headroom_find_library(headroom::dnnl dnnl dnnl.hpp)
headroom_find_library(headroom::pcre2 pcre2-8 pcre2.h)

if(HEADROOM_WITH_MPI)
  find_package(MPI REQUIRED COMPONENTS CXX)
endif()
