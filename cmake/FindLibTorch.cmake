# LibTorch::LibTorch from the torch wheel of the environment. PRECAST_PYTHON names that environment's interpreter (launcher/setup makes it);
# the wheel's own CMake package is not used: it insists on probing a CUDA toolkit.
set(PRECAST_PYTHON "" CACHE FILEPATH "Python interpreter of the environment that has torch")
if(NOT PRECAST_PYTHON)
  message(FATAL_ERROR "PRECAST_PYTHON is not set: give the interpreter of the environment that has torch (launcher/setup makes one and prints it)")
endif()
execute_process(
  COMMAND ${PRECAST_PYTHON} -c "import importlib.util, os; print(os.path.dirname(importlib.util.find_spec('torch').origin))"
  OUTPUT_VARIABLE LibTorch_ROOT_DIR OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "${PRECAST_PYTHON} cannot find torch")
endif()

include(FindPackageHandleStandardArgs)
find_library(LibTorch_LIBRARY torch PATHS ${LibTorch_ROOT_DIR}/lib NO_DEFAULT_PATH)
find_package_handle_standard_args(LibTorch REQUIRED_VARS LibTorch_LIBRARY LibTorch_ROOT_DIR)
if(NOT TARGET LibTorch::LibTorch)
  add_library(LibTorch::LibTorch INTERFACE IMPORTED)
  target_include_directories(LibTorch::LibTorch SYSTEM INTERFACE
    ${LibTorch_ROOT_DIR}/include ${LibTorch_ROOT_DIR}/include/torch/csrc/api/include)
  # The wheel has fmt's headers, newer than the system's and found before them, but not their library.
  target_compile_definitions(LibTorch::LibTorch INTERFACE FMT_HEADER_ONLY)
  target_link_directories(LibTorch::LibTorch INTERFACE ${LibTorch_ROOT_DIR}/lib)
  # Only some symbols are named directly, but all of torch must be loaded for its operators to register.
  target_link_libraries(LibTorch::LibTorch INTERFACE -Wl,--no-as-needed torch torch_cpu c10 -Wl,--as-needed)
  target_link_options(LibTorch::LibTorch INTERFACE -Wl,-rpath,${LibTorch_ROOT_DIR}/lib)
endif()
