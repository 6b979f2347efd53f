# The C tests: one cmocka executable per tests/core/test_*.c, run by ctest.
set(TT_CMOCKA_DIR ${PROJECT_BINARY_DIR}/cmocka CACHE PATH "Where get_cmocka.sh unpacks cmocka")
find_path(CMOCKA_INCLUDE cmocka.h HINTS ${TT_CMOCKA_DIR}/usr/include)
file(GLOB TT_CMOCKA_UNPACKED ${TT_CMOCKA_DIR}/usr/lib/*)
find_library(CMOCKA_LIBRARY cmocka HINTS ${TT_CMOCKA_DIR}/usr/lib ${TT_CMOCKA_UNPACKED})
if(NOT CMOCKA_INCLUDE OR NOT CMOCKA_LIBRARY)
  message(STATUS "cmocka is not installed; unpacking the distribution's packages")
  execute_process(COMMAND sh ${CMAKE_CURRENT_LIST_DIR}/get_cmocka.sh ${TT_CMOCKA_DIR}
                  RESULT_VARIABLE TT_CMOCKA_RESULT)
  file(GLOB TT_CMOCKA_UNPACKED ${TT_CMOCKA_DIR}/usr/lib/*)
  find_path(CMOCKA_INCLUDE cmocka.h HINTS ${TT_CMOCKA_DIR}/usr/include)
  find_library(CMOCKA_LIBRARY cmocka HINTS ${TT_CMOCKA_DIR}/usr/lib ${TT_CMOCKA_UNPACKED})
endif()
if(NOT CMOCKA_INCLUDE OR NOT CMOCKA_LIBRARY)
  message(FATAL_ERROR "The C tests need cmocka: install libcmocka-dev (Debian, Ubuntu), "
                      "libcmocka-devel (Fedora) or cmocka (Arch, Homebrew), "
                      "or configure with -DTT_BUILD_TESTS=OFF.")
endif()

# Where the XLA CPU plugin lies, if the Python that was found has it.
if(NOT DEFINED TT_CPU_PLUGIN AND Python_EXECUTABLE)
  execute_process(
    COMMAND ${Python_EXECUTABLE} -c "import lammps_jax_pjrt_cpu as p; print(p.PLUGIN_PATH)"
    OUTPUT_VARIABLE TT_CPU_PLUGIN ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
set(TT_CPU_PLUGIN "${TT_CPU_PLUGIN}" CACHE FILEPATH "The XLA CPU plugin that tests may use")

file(GLOB TT_FAKE_PLUGIN_SOURCES CONFIGURE_DEPENDS tests/core/fake_plugin/*.c)
if(TT_FAKE_PLUGIN_SOURCES)
  add_library(tt_fake_plugin MODULE ${TT_FAKE_PLUGIN_SOURCES})
  target_link_libraries(tt_fake_plugin PRIVATE tt_c_options Threads::Threads)
  target_include_directories(tt_fake_plugin PRIVATE tests/core/fake_plugin)
  list(APPEND TT_TEST_ENV TT_FAKE_PLUGIN=$<TARGET_FILE:tt_fake_plugin>)
endif()
file(GLOB TT_ACCEL_PLUGIN_SOURCES CONFIGURE_DEPENDS tests/accel_plugin/*.c)
if(TT_ACCEL_PLUGIN_SOURCES)
  add_library(tt_accel_plugin MODULE ${TT_ACCEL_PLUGIN_SOURCES})
  target_link_libraries(tt_accel_plugin PRIVATE tt_c_options Threads::Threads ${CMAKE_DL_LIBS})
  target_compile_definitions(tt_accel_plugin PRIVATE TT_ACCEL_INNER_DEFAULT="${TT_CPU_PLUGIN}")
  list(APPEND TT_TEST_ENV TT_ACCEL_PLUGIN=$<TARGET_FILE:tt_accel_plugin>)
endif()
if(EXISTS ${PROJECT_SOURCE_DIR}/tests/core/abi_dump.c)
  add_executable(tt_abi_dump tests/core/abi_dump.c)
  target_link_libraries(tt_abi_dump PRIVATE tt_core tt_c_options)
  list(APPEND TT_TEST_ENV TT_ABI_DUMP=$<TARGET_FILE:tt_abi_dump>)
endif()
if(TT_CPU_PLUGIN)
  list(APPEND TT_TEST_ENV TT_CPU_PLUGIN=${TT_CPU_PLUGIN})
endif()
set(TT_SUPPRESSIONS ${PROJECT_SOURCE_DIR}/scripts/sanitizers)
list(APPEND TT_TEST_ENV
     LSAN_OPTIONS=suppressions=${TT_SUPPRESSIONS}/lsan.supp:print_suppressions=0
     TSAN_OPTIONS=suppressions=${TT_SUPPRESSIONS}/tsan.supp:ignore_noninstrumented_modules=1
     UBSAN_OPTIONS=print_stacktrace=1)

file(GLOB TT_TEST_SOURCES CONFIGURE_DEPENDS tests/core/test_*.c)
# Helpers that several tests share: every other C file beside them.
file(GLOB TT_TEST_HELPERS CONFIGURE_DEPENDS tests/core/*.c)
list(REMOVE_ITEM TT_TEST_HELPERS ${TT_TEST_SOURCES} ${PROJECT_SOURCE_DIR}/tests/core/abi_dump.c)
add_library(tt_test_helpers OBJECT ${TT_TEST_HELPERS} ${CMAKE_CURRENT_LIST_DIR}/empty.c)
target_link_libraries(tt_test_helpers PUBLIC tt_core tt_c_options ${CMOCKA_LIBRARY})
target_include_directories(tt_test_helpers PUBLIC tests tests/core)
target_include_directories(tt_test_helpers SYSTEM PUBLIC ${CMOCKA_INCLUDE})
foreach(source ${TT_TEST_SOURCES})
  cmake_path(GET source STEM name)
  add_executable(${name} ${source} $<TARGET_OBJECTS:tt_test_helpers>)
  target_link_libraries(${name} PRIVATE tt_test_helpers)
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES ENVIRONMENT "${TT_TEST_ENV}" TIMEOUT 600)
endforeach()
