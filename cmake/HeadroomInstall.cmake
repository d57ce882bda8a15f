# `cmake --install`: the program, the layers' libraries and headers, and what find_package(headroom) reads.
include(CMakePackageConfigHelpers)

set(layers tensor configs kernels autograd nn text train infer experiments)
list(TRANSFORM layers PREPEND headroom_ OUTPUT_VARIABLE libraries)
if(HEADROOM_WITH_CUDA)
  list(APPEND libraries headroom_kernels_cuda)
endif()
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/headroom)

install(TARGETS headroom RUNTIME)
install(TARGETS ${libraries} EXPORT headroom-targets)
foreach(layer IN LISTS layers)
  install(DIRECTORY ${layer} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/headroom FILES_MATCHING PATTERN "*.h")
endforeach()
install(EXPORT headroom-targets NAMESPACE headroom:: DESTINATION ${package})

configure_package_config_file(cmake/headroom-config.cmake.in headroom-config.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(headroom-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/headroom-config.cmake ${PROJECT_BINARY_DIR}/headroom-config-version.cmake
              cmake/HeadroomDependencies.cmake
        DESTINATION ${package})
