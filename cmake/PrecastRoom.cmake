# Warnings, sanitizers and the build's speed are the business of Precast's own targets only.
add_library(precast_flags INTERFACE)
target_compile_features(precast_flags INTERFACE cxx_std_20)
target_compile_options(precast_flags INTERFACE -Wall -Wextra -Wpedantic)
if(PRECAST_SANITIZE)
  target_compile_options(precast_flags INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
  target_link_options(precast_flags INTERFACE -fsanitize=address,undefined)
endif()

find_program(PRECAST_CCACHE ccache)
if(PRECAST_CCACHE)
  # A precompiled header hits the cache only with these.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${PRECAST_CCACHE})
  target_compile_options(precast_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
endif()

# precast_room(NAME SOURCES a.cpp ... [ROOMS base ir ...] [LINK targets...] [TORCH])
# One object library for each folder of src/: precast_NAME. ROOMS are the rooms it may include; TORCH gives it LibTorch and the shared
# precompiled header.
function(precast_room name)
  cmake_parse_arguments(ROOM "TORCH" "" "SOURCES;ROOMS;LINK" ${ARGN})
  add_library(precast_${name} OBJECT ${ROOM_SOURCES})
  target_include_directories(precast_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(precast_${name} PRIVATE precast_flags PUBLIC ${ROOM_LINK})
  foreach(other ${ROOM_ROOMS})
    target_link_libraries(precast_${name} PUBLIC precast_${other})
  endforeach()
  if(ROOM_TORCH)
    target_link_libraries(precast_${name} PUBLIC LibTorch::LibTorch)
    precast_use_torch_pch(precast_${name})
  endif()
endfunction()

# <torch/torch.h> takes about 20 s to read: read it once, for all who need it.
function(precast_use_torch_pch target)
  if(NOT TARGET precast_torch_pch)
    file(WRITE ${PROJECT_BINARY_DIR}/torch_pch.cpp "// Owns the precompiled header.\n")
    add_library(precast_torch_pch OBJECT ${PROJECT_BINARY_DIR}/torch_pch.cpp)
    target_link_libraries(precast_torch_pch PRIVATE precast_flags LibTorch::LibTorch)
    target_precompile_headers(precast_torch_pch PRIVATE <torch/torch.h>)
  endif()
  # GCC takes a precompiled header only where it would generate the same kind of code: executables too are compiled with -fPIC, not -fPIE.
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${target} PRIVATE -fPIC)
  target_precompile_headers(${target} REUSE_FROM precast_torch_pch)
endfunction()

# precast_test(NAME SOURCES a_test.cpp ... [ROOMS ir ...] [LINK ...] [TORCH])  a GoogleTest binary, its tests known to ctest
# under the label `unit`: one process, no Python. Only those run under sanitizers.
# With TORCH it links the precast library (and sees the private headers); without, the objects of ROOMS and no LibTorch.
function(precast_test name)
  cmake_parse_arguments(TEST "TORCH" "" "SOURCES;ROOMS;LINK" ${ARGN})
  add_executable(${name} ${TEST_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE precast_flags GTest::gmock GTest::gtest_main ${TEST_LINK})
  foreach(room ${TEST_ROOMS})
    target_link_libraries(${name} PRIVATE precast_${room})
  endforeach()
  if(TEST_TORCH)
    target_link_libraries(${name} PRIVATE precast fmt::fmt)
    precast_use_torch_pch(${name})
  endif()
  if(NOT TARGET unit_tests)
    add_custom_target(unit_tests)
  endif()
  add_dependencies(unit_tests ${name})
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 120 LABELS unit ENVIRONMENT "OMP_NUM_THREADS=1")
endfunction()
