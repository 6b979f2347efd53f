# torch_tpu._C: the glue as a Python extension module, linked against the installed PyTorch.
if(NOT Python_Development.Module_FOUND)
  message(FATAL_ERROR "The glue needs Python's headers; install python3-dev or use a full Python.")
endif()

execute_process(
  COMMAND ${CMAKE_COMMAND} -E env TORCH_DEVICE_BACKEND_AUTOLOAD=0 ${Python_EXECUTABLE}
          ${CMAKE_CURRENT_LIST_DIR}/torch_config.py
  OUTPUT_VARIABLE TT_TORCH ERROR_VARIABLE TT_TORCH_ERROR RESULT_VARIABLE TT_TORCH_RESULT
  OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT TT_TORCH_RESULT EQUAL 0)
  message(FATAL_ERROR "${Python_EXECUTABLE} cannot import PyTorch:\n${TT_TORCH_ERROR}")
endif()
list(POP_FRONT TT_TORCH TT_TORCH_VERSION TT_TORCH_ABI TT_TORCH_LIB)
set(TT_TORCH_INCLUDE ${TT_TORCH})
if(TT_TORCH_VERSION VERSION_LESS 2.11 OR TT_TORCH_VERSION VERSION_GREATER_EQUAL 2.14)
  message(FATAL_ERROR "PyTorch ${TT_TORCH_VERSION} is not supported; install 2.11, 2.12 or 2.13.")
endif()
message(STATUS "PyTorch ${TT_TORCH_VERSION} in ${TT_TORCH_LIB}")
string(REGEX MATCH "^[0-9]+\\.[0-9]+" TT_TORCH_MINOR ${TT_TORCH_VERSION})

file(GLOB_RECURSE TT_GLUE_SOURCES CONFIGURE_DEPENDS glue/*.cpp)
Python_add_library(_C MODULE WITH_SOABI ${TT_GLUE_SOURCES})
set_target_properties(
  _C PROPERTIES CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF
  CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
  BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN/../torch/lib")
# pybind11 takes ten seconds to parse and to instantiate: once for the files that include it. For
# callsite.cpp, which asks for Python's headers in another form, they are read apart.
set(TT_GLUE_PYTHON)
foreach(source ${TT_GLUE_SOURCES})
  file(STRINGS ${source} includes REGEX "#include .*(pybind|python/package.h)")
  if(includes AND NOT source MATCHES "callsite")
    list(APPEND TT_GLUE_PYTHON ${source})
  endif()
endforeach()
set_target_properties(_C PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
set_source_files_properties(${TT_GLUE_PYTHON} PROPERTIES UNITY_GROUP python)
if(EXISTS ${PROJECT_SOURCE_DIR}/glue/pch.h)
  target_precompile_headers(_C PRIVATE ${PROJECT_SOURCE_DIR}/glue/pch.h)
endif()
target_compile_definitions(
  _C PRIVATE TORCH_EXTENSION_NAME=_C TORCH_API_INCLUDE_EXTENSION_H USE_DISTRIBUTED USE_C10D
  _GLIBCXX_USE_CXX11_ABI=${TT_TORCH_ABI})
target_compile_options(_C PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${TT_WARNINGS}>)
target_include_directories(_C PRIVATE glue core)
target_include_directories(_C SYSTEM PRIVATE ${TT_TORCH_INCLUDE})
target_link_libraries(_C PRIVATE tt_core)
foreach(name torch_python torch torch_cpu c10)
  target_link_libraries(_C PRIVATE ${TT_TORCH_LIB}/lib${name}.so)
endforeach()
# Kernels, hooks and guards stay registered for the life of the process.
target_link_options(_C PRIVATE -Wl,-z,nodelete -Wl,--exclude-libs,ALL)

if(TT_INPLACE)
  set(TT_PACKAGE ${PROJECT_SOURCE_DIR}/torch_tpu)
  set_target_properties(_C PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${TT_PACKAGE})
else()
  set(TT_PACKAGE ${CMAKE_CURRENT_BINARY_DIR})
endif()
file(CONFIGURE OUTPUT ${TT_PACKAGE}/_build_info.py CONTENT
"\"\"\"Written by the build: what torch_tpu._C was compiled against.\"\"\"

TORCH = \"@TT_TORCH_MINOR@\"
VERSION = \"@PROJECT_VERSION@\"
" @ONLY)
install(TARGETS _C DESTINATION torch_tpu)
install(FILES ${TT_PACKAGE}/_build_info.py DESTINATION torch_tpu)
