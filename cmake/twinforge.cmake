# One function per kind of target, so that a folder's CMakeLists.txt is a list of names.
#
#   twinforge_library(NAME weights SRCS a.cc b.cc DEPS base absl::status [PROTOS x.proto])
#   twinforge_test(NAME weights_index_map_test SRCS index_map_test.cc DEPS weights [LABELS slow])
#   twinforge_binary(NAME twinforge SRCS main.cc DEPS cli)
#   embed_data(TARGET importers NAME families GLOB families/*.textproto)

find_package(absl REQUIRED)
find_package(Protobuf REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(simdjson REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(re2 REQUIRED IMPORTED_TARGET re2)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
find_package(mimalloc REQUIRED)
if(TWINFORGE_TESTS)
  find_package(GTest REQUIRED)
endif()

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

# -O2: the few loops that gain from -O3 are named in weights/CMakeLists.txt.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")

# Warnings are errors in our own code; -Wswitch keeps the exhaustive switches honest.
add_library(twinforge_flags INTERFACE)
target_compile_options(twinforge_flags INTERFACE
  -Wall -Wextra -Werror -Wswitch -Wno-unused-parameter -Wno-missing-field-initializers -fno-strict-aliasing)
target_include_directories(twinforge_flags INTERFACE ${CMAKE_SOURCE_DIR})
if(TWINFORGE_SANITIZE)
  target_compile_options(twinforge_flags INTERFACE -O1 -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(twinforge_flags INTERFACE -fsanitize=address,undefined)
endif()

# Generated protobuf code, in a target of its own without our warnings.
function(twinforge_proto_library name)
  set(generated)
  foreach(proto ${ARGN})
    get_filename_component(stem ${proto} NAME_WE)
    file(RELATIVE_PATH folder ${CMAKE_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
    set(out ${CMAKE_BINARY_DIR}/generated/${folder}/${stem}.pb)
    add_custom_command(
      OUTPUT ${out}.cc ${out}.h
      COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/generated
      COMMAND protobuf::protoc -I ${CMAKE_SOURCE_DIR} --cpp_out=${CMAKE_BINARY_DIR}/generated
              ${CMAKE_CURRENT_SOURCE_DIR}/${proto}
      DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${proto})
    list(APPEND generated ${out}.cc)
  endforeach()
  add_library(${name} STATIC ${generated})
  target_include_directories(${name} SYSTEM PUBLIC ${CMAKE_BINARY_DIR}/generated)
  target_link_libraries(${name} PUBLIC protobuf::libprotobuf)
endfunction()

function(twinforge_library)
  cmake_parse_arguments(A "" "NAME" "SRCS;DEPS;PROTOS" ${ARGN})
  add_library(${A_NAME} STATIC ${A_SRCS})
  target_link_libraries(${A_NAME} PUBLIC ${A_DEPS} PRIVATE twinforge_flags)
  target_include_directories(${A_NAME} PUBLIC ${CMAKE_SOURCE_DIR})
  if(A_PROTOS)
    twinforge_proto_library(${A_NAME}_proto ${A_PROTOS})
    target_link_libraries(${A_NAME} PUBLIC ${A_NAME}_proto)
  endif()
endfunction()

function(twinforge_binary)
  cmake_parse_arguments(A "" "NAME" "SRCS;DEPS" ${ARGN})
  add_executable(${A_NAME} ${A_SRCS})
  target_link_libraries(${A_NAME} PRIVATE ${A_DEPS} twinforge_flags)
endfunction()

# A GoogleTest program, run by ctest as one test. SOURCE_DIR is where test data lies.
function(twinforge_test)
  cmake_parse_arguments(A "" "NAME" "SRCS;DEPS;LABELS" ${ARGN})
  add_executable(${A_NAME} ${A_SRCS})
  target_link_libraries(${A_NAME} PRIVATE ${A_DEPS} twinforge_flags GTest::gmock GTest::gtest_main)
  target_compile_definitions(${A_NAME} PRIVATE TWINFORGE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  add_test(NAME ${A_NAME} COMMAND ${A_NAME})
  if(A_LABELS)
    set_tests_properties(${A_NAME} PROPERTIES LABELS "${A_LABELS}")
  endif()
endfunction()

# Compiles data files into `TARGET` as `absl::Span<const EmbeddedFile> twinforge::Embedded_<NAME>()`
# (base/embedded.h), sorted by file name, so that the binary is one file.
function(embed_data)
  cmake_parse_arguments(A "" "TARGET;NAME" "GLOB" ${ARGN})
  list(TRANSFORM A_GLOB PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  file(GLOB files CONFIGURE_DEPENDS ${A_GLOB})
  set(out ${CMAKE_CURRENT_BINARY_DIR}/embedded_${A_NAME}.cc)
  add_custom_command(
    OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} -DOUT=${out} -DNAME=${A_NAME} "-DFILES=${files}"
            -P ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
    DEPENDS ${files} ${CMAKE_SOURCE_DIR}/cmake/embed.cmake VERBATIM)
  target_sources(${A_TARGET} PRIVATE ${out})
endfunction()
