# bonsai_registrations(declarations calls FILES...): the C++ declarations of the files' register_<file>()
# functions, and the calls.
function(bonsai_registrations declarations calls)
  set(declared "")
  set(called "")
  foreach(file IN LISTS ARGN)
    get_filename_component(name ${file} NAME_WE)
    string(APPEND declared "void register_${name}();\n")
    string(APPEND called "    bonsai::register_${name}();\n")
  endforeach()
  set(${declarations} "${declared}" PARENT_SCOPE)
  set(${calls} "${called}" PARENT_SCOPE)
endfunction()

# bonsai_add_program(NAME FILES...): a program with all commands of bonsai and the parts in FILES. Each file
# defines `void bonsai::register_<file>()`, which adds its parts to their registries.
function(bonsai_add_program name)
  bonsai_registrations(declarations calls ${ARGN})
  file(CONFIGURE OUTPUT ${name}_main.cpp CONTENT [=[
#include "bonsai/tools/bonsai.h"

namespace bonsai {
@declarations@
}

int main(int argc, char** argv) {
  return bonsai::bonsai_main(argc, argv, [] {
@calls@  });
}
]=] @ONLY)
  add_executable(${name} ${CMAKE_CURRENT_BINARY_DIR}/${name}_main.cpp ${ARGN})
  target_link_libraries(${name} PRIVATE bonsai::program)
  get_target_property(installed bonsai::program IMPORTED)
  if(installed)  # the CUDA library lies beside the static ones
    set_property(TARGET ${name} APPEND PROPERTY BUILD_RPATH $<TARGET_FILE_DIR:bonsai::program>)
  endif()
endfunction()
