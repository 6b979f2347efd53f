/* Prints our view of the PJRT ABI, one fact a line, for a test to compare with a published one:
 *   struct NAME SIZE      (SIZE as sent in struct_size)
 *   field STRUCT NAME OFFSET SIZE
 *   slot NAME INDEX
 *   code NAME NUMBER, dtype MLIR_NAME NUMBER, proto MESSAGE FIELD NUMBER, enum NAME NUMBER */
#include "hlo/types.h"
#include "pjrt/compile_options.h"
#include "pjrt/ffi_abi.h"

#include <stdio.h>

static void print_field(const char *owner, const char *name, size_t offset, size_t size) {
  printf("field %s %s %zu %zu\n", owner, name, offset, size);
}

static void print_structs(void) {
#define FIELD(type, name) print_field(self_name, #name, offsetof(self, name), sizeof(type));
#define STRUCT(name, last, fields)                                                                 \
  {                                                                                                \
    typedef name self;                                                                             \
    const char *self_name = #name;                                                                 \
    printf("struct %s %d\n", self_name, (int)name##_STRUCT_SIZE);                                  \
    print_field(self_name, "struct_size", offsetof(self, struct_size), sizeof(size_t));            \
    fields                                                                                         \
  }
  TT_PJRT_STRUCTS(STRUCT, FIELD)
  TT_FFI_STRUCTS(STRUCT, FIELD)
#undef STRUCT
#undef FIELD
}

static void print_slots(void) {
#define SLOT(name)                                                                                 \
  printf("slot PJRT_%s %zu\n", #name,                                                              \
         (offsetof(PJRT_Api, PJRT_##name) - offsetof(PJRT_Api, PJRT_Error_Destroy)) /              \
             sizeof(void *));
  TT_PJRT_SLOTS(SLOT, SLOT, SLOT, SLOT)
#undef SLOT
  printf("struct PJRT_Api %zu\n", sizeof(PJRT_Api));
  print_field("PJRT_Api", "pjrt_api_version", offsetof(PJRT_Api, pjrt_api_version),
              sizeof(PJRT_Api_Version));
  print_field("PJRT_Api", "PJRT_Error_Destroy", offsetof(PJRT_Api, PJRT_Error_Destroy),
              sizeof(void *));
}

static void print_enums(void) {
#define X(name, number) printf("enum %s %d\n", #name, number);
  TT_PJRT_CONSTANTS(X)
  TT_FFI_CONSTANTS(X)
#undef X
}

int main(void) {
  print_structs();
  print_slots();
  print_enums();
#define X(name, number) printf("code %s %d\n", #name, number);
  TT_CODES(X)
#undef X
#define X(name, number, mlir, bytes, kind) printf("dtype %s %d\n", mlir, number);
  TT_DTYPES(X)
#undef X
#define X(message, field, number) printf("proto %s %s %d\n", #message, #field, number);
  TT_COMPILE_OPTION_FIELDS(X)
#undef X
  return 0;
}
