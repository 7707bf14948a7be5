# What `cmake --install` installs. The libraries are listed in the order of a linker's command line.
set(libraries trainers layers data checks ops autograd backend cpu io config core)

include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/bonsai)

# The program finds the CUDA library by its run path.
file(RELATIVE_PATH library_dir ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
set_target_properties(bonsai PROPERTIES INSTALL_RPATH "$ORIGIN/${library_dir}")
install(TARGETS bonsai)
if(TARGET bonsai_cuda)
  install(TARGETS bonsai_cuda)
endif()

foreach(library options ${libraries})
  set_target_properties(bonsai_${library} PROPERTIES EXPORT_NAME ${library})
  install(TARGETS bonsai_${library} EXPORT bonsai)
endforeach()
set_target_properties(bonsai_all PROPERTIES EXPORT_NAME bonsai)
install(TARGETS bonsai_all EXPORT bonsai)
install(EXPORT bonsai NAMESPACE bonsai:: DESTINATION ${package_dir} FILE bonsai-targets.cmake)

# Headers of the backends are private: see tests/check_includes.sh.
install(DIRECTORY framework layers data trainers DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/bonsai
  FILES_MATCHING PATTERN "*.h" PATTERN kernels.def
  PATTERN framework/backend/cpu EXCLUDE PATTERN framework/backend/cuda EXCLUDE PATTERN load_cuda.h EXCLUDE)

configure_package_config_file(tools/cmake/bonsai-config.cmake.in bonsai-config.cmake
  INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(bonsai-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/bonsai-config.cmake ${PROJECT_BINARY_DIR}/bonsai-config-version.cmake
  DESTINATION ${package_dir})

# Paths relative to the file's own: an installed folder can be moved.
file(RELATIVE_PATH pc_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
list(TRANSFORM libraries PREPEND -lbonsai_ OUTPUT_VARIABLE pc_libraries)
list(JOIN pc_libraries " " pc_libraries)
if(BONSAI_SANITIZE)
  set(pc_sanitize -fsanitize=${BONSAI_SANITIZE})
endif()
configure_file(tools/cmake/bonsai.pc.in bonsai.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/bonsai.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
