# What `cmake --install` installs. The libraries are listed in the order of a linker's command line.
set(libraries program trainers layers data checks ops autograd backend cpu io config core)

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
install(FILES tools/bonsai.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/bonsai/tools)

configure_package_config_file(tools/cmake/bonsai-config.cmake.in bonsai-config.cmake
  INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(bonsai-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/bonsai-config.cmake ${PROJECT_BINARY_DIR}/bonsai-config-version.cmake
  tools/cmake/add_program.cmake DESTINATION ${package_dir})

# Paths relative to the file's own: an installed folder can be moved.
file(RELATIVE_PATH pc_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
list(TRANSFORM libraries PREPEND -lbonsai_ OUTPUT_VARIABLE pc_libraries)
list(JOIN pc_libraries " " pc_libraries)
if(BONSAI_SANITIZE)
  set(pc_sanitize -fsanitize=${BONSAI_SANITIZE})
endif()
configure_file(tools/cmake/bonsai.pc.in bonsai.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/bonsai.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# The manual page and the completions come from the program itself.
set(man_dir ${CMAKE_INSTALL_MANDIR}/man1)
set(bash_dir ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
set(zsh_dir ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
install(CODE "execute_process(COMMAND $<TARGET_FILE:bonsai> man OUTPUT_FILE ${PROJECT_BINARY_DIR}/bonsai.1
  COMMAND_ERROR_IS_FATAL ANY)
foreach(shell bash zsh)
  execute_process(COMMAND $<TARGET_FILE:bonsai> completion \${shell}
    OUTPUT_FILE ${PROJECT_BINARY_DIR}/completion.\${shell} COMMAND_ERROR_IS_FATAL ANY)
endforeach()")
install(FILES ${PROJECT_BINARY_DIR}/bonsai.1 DESTINATION ${man_dir})
install(FILES ${PROJECT_BINARY_DIR}/completion.bash DESTINATION ${bash_dir} RENAME bonsai)
install(FILES ${PROJECT_BINARY_DIR}/completion.zsh DESTINATION ${zsh_dir} RENAME _bonsai)

# cpack -G DEB, by tools/package. Those who build against the package need what is suggested.
set(CPACK_PACKAGE_CONTACT "The Bonsai developers")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY ${PROJECT_DESCRIPTION})
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS
  "g++, cmake, pkg-config, libopenblas-dev, libfmt-dev, nlohmann-json3-dev, libyaml-cpp-dev")
include(CPack)
