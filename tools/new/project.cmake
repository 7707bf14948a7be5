# Configure with -DCMAKE_PREFIX_PATH=DIR if Bonsai is installed in a folder of its own, DIR.
cmake_minimum_required(VERSION 3.25)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
project(parts LANGUAGES CXX)
find_package(bonsai CONFIG REQUIRED)

# The program bonsai, with the parts of every .cpp file in this folder. Each file defines register_<file>().
file(GLOB parts CONFIGURE_DEPENDS *.cpp)
bonsai_add_program(bonsai ${parts})

# All ops pass their checks. For every config: its gradients are right, no position sees its future, and five
# steps of training run.
enable_testing()
add_test(NAME ops COMMAND bonsai gradcheck)
file(GLOB configs CONFIGURE_DEPENDS *.yaml)
foreach(config ${configs})
  get_filename_component(name ${config} NAME_WE)
  add_test(NAME ${name}_gradcheck COMMAND bonsai gradcheck ${config})
  add_test(NAME ${name}_audit COMMAND bonsai audit ${config})
  add_test(NAME ${name}_train COMMAND bonsai train ${config} --set trainer.max_steps=5)
endforeach()
