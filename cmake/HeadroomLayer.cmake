# headroom_layer(NAME [DEPENDS layer...] [LIBRARIES target...] [PRIVATE_LIBRARIES target...] [EXCLUDE regex])
# makes the library of one folder: every .cpp under it but those excluded, the project's warnings, and the layers it may
# include.
include(GNUInstallDirs)

add_library(headroom_warnings INTERFACE)
target_compile_options(headroom_warnings INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Werror
  # GCC 12 reports overlapping copies inside its own std::string (GCC bug 105651).
  # It also takes a file that a unity build includes for a header, whose types should not be anonymous.
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict$<SEMICOLON>-Wno-subobject-linkage>)
if(HEADROOM_SANITIZE)
  add_compile_options(-fsanitize=${HEADROOM_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${HEADROOM_SANITIZE})
endif()

# The libraries' headers that most files include, compiled once: for the first target that asks, and for every later one.
function(headroom_common_headers target)
  get_property(first GLOBAL PROPERTY HEADROOM_COMMON_HEADERS)
  if(first)
    target_precompile_headers(${target} REUSE_FROM ${first})
  else()
    target_precompile_headers(${target} PRIVATE <algorithm> <filesystem> <functional> <memory> <optional> <string> <vector>
                              <fmt/format.h> <nlohmann/json.hpp>)
    set_property(GLOBAL PROPERTY HEADROOM_COMMON_HEADERS ${target})
  endif()
endfunction()

function(headroom_layer name)
  cmake_parse_arguments(ARG "" "EXCLUDE" "DEPENDS;LIBRARIES;PRIVATE_LIBRARIES" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/main\\.cpp$")
  if(ARG_EXCLUDE)
    list(FILTER sources EXCLUDE REGEX ${ARG_EXCLUDE})
  endif()
  add_library(headroom_${name} STATIC ${sources})
  add_library(headroom::${name} ALIAS headroom_${name})
  set_target_properties(headroom_${name} PROPERTIES EXPORT_NAME ${name} UNITY_BUILD ${HEADROOM_UNITY} UNITY_BUILD_BATCH_SIZE 20)
  if(NOT name STREQUAL "kernels")  # whose flags are others
    headroom_common_headers(headroom_${name})
  endif()
  foreach(source IN LISTS sources)
    file(STRINGS ${source} per_processor REGEX "hwy/foreach_target.h" LIMIT_COUNT 1)
    if(per_processor)  # Highway includes the file itself, once per kind of processor
      set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endforeach()
  target_compile_features(headroom_${name} PUBLIC cxx_std_20)
  target_include_directories(headroom_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/headroom>)
  list(TRANSFORM ARG_DEPENDS PREPEND headroom_)
  target_link_libraries(headroom_${name} PUBLIC ${ARG_DEPENDS} ${ARG_LIBRARIES}
                        PRIVATE $<BUILD_INTERFACE:headroom_warnings> ${ARG_PRIVATE_LIBRARIES})
endfunction()
