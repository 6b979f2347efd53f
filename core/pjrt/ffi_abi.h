/* The part of XLA's FFI (the C ABI of functions that programs call) that this library uses, in its
 * own words; laid out and tested as pjrt_abi.h is. */
#ifndef TT_FFI_ABI_H
#define TT_FFI_ABI_H

#include "pjrt/pjrt_abi.h"

#define XLA_FFI_API_MAJOR 0
#define XLA_FFI_API_MINOR 3 /* what the declarations below are taken from */

typedef struct XLA_FFI_Error XLA_FFI_Error;
typedef struct XLA_FFI_Api XLA_FFI_Api;
typedef struct XLA_FFI_ByteSpan {
  const char *ptr;
  size_t len;
} XLA_FFI_ByteSpan;
typedef struct XLA_FFI_Scalar {
  int dtype;
  void *value;
} XLA_FFI_Scalar;
typedef struct XLA_FFI_Array {
  int dtype;
  size_t size;
  void *data;
} XLA_FFI_Array;

/* name, number */
#define TT_FFI_CONSTANTS(X)                                                                        \
  X(PJRT_Extension_Type_FFI, 5)                                                                    \
  X(XLA_FFI_Extension_Metadata, 1)                                                                 \
  X(XLA_FFI_ExecutionStage_EXECUTE, 3)                                                             \
  X(XLA_FFI_ArgType_BUFFER, 1)                                                                     \
  X(XLA_FFI_RetType_BUFFER, 1)                                                                     \
  X(XLA_FFI_AttrType_ARRAY, 1)                                                                     \
  X(XLA_FFI_AttrType_SCALAR, 3)                                                                    \
  X(XLA_FFI_DataType_PRED, 1)                                                                      \
  X(XLA_FFI_DataType_S8, 2)                                                                        \
  X(XLA_FFI_DataType_S16, 3)                                                                       \
  X(XLA_FFI_DataType_S32, 4)                                                                       \
  X(XLA_FFI_DataType_S64, 5)                                                                       \
  X(XLA_FFI_DataType_U8, 6)                                                                        \
  X(XLA_FFI_DataType_U16, 7)                                                                       \
  X(XLA_FFI_DataType_U32, 8)                                                                       \
  X(XLA_FFI_DataType_U64, 9)                                                                       \
  X(XLA_FFI_DataType_F16, 10)                                                                      \
  X(XLA_FFI_DataType_F32, 11)                                                                      \
  X(XLA_FFI_DataType_F64, 12)                                                                      \
  X(XLA_FFI_DataType_C64, 15)                                                                      \
  X(XLA_FFI_DataType_BF16, 16)                                                                     \
  X(XLA_FFI_DataType_C128, 18)                                                                     \
  X(XLA_FFI_DataType_F8E5M2, 19)                                                                   \
  X(XLA_FFI_DataType_F8E4M3FN, 20)                                                                 \
  X(XLA_FFI_DataType_F8E5M2FNUZ, 24)                                                               \
  X(XLA_FFI_DataType_F8E4M3FNUZ, 25)
enum {
#define X(name, number) name = number,
  TT_FFI_CONSTANTS(X)
#undef X
};

/* clang-format off */
#define TT_FFI_STRUCTS(STRUCT, FIELD)                                                              \
  STRUCT(XLA_FFI_Api_Version, minor_version,                                                       \
    FIELD(int, major_version) FIELD(int, minor_version))                                           \
  STRUCT(XLA_FFI_Error_Create_Args, errc, FIELD(const char *, message) FIELD(int, errc))           \
  STRUCT(XLA_FFI_Buffer, dims,                                                                     \
    FIELD(int, dtype) FIELD(void *, data) FIELD(int64_t, rank) FIELD(int64_t *, dims))             \
  STRUCT(XLA_FFI_Args, args, FIELD(int64_t, size) FIELD(int *, types) FIELD(void **, args))        \
  STRUCT(XLA_FFI_Rets, rets, FIELD(int64_t, size) FIELD(int *, types) FIELD(void **, rets))        \
  STRUCT(XLA_FFI_Attrs, attrs,                                                                     \
    FIELD(int64_t, size) FIELD(int *, types) FIELD(XLA_FFI_ByteSpan **, names)                     \
    FIELD(void **, attrs))                                                                         \
  STRUCT(XLA_FFI_CallFrame, attrs,                                                                 \
    FIELD(const XLA_FFI_Api *, api) FIELD(void *, ctx) FIELD(int, stage)                           \
    FIELD(XLA_FFI_Args, args) FIELD(XLA_FFI_Rets, rets) FIELD(XLA_FFI_Attrs, attrs)                \
    FIELD(void *, future))
/* clang-format on */

TT_FFI_STRUCTS(TT_ABI_STRUCT, TT_ABI_FIELD)

/* In front of a call frame's other extensions when XLA asks a handler what it is made for. */
typedef struct XLA_FFI_Metadata {
  size_t struct_size;
  XLA_FFI_Api_Version api_version;
} XLA_FFI_Metadata;
typedef struct XLA_FFI_Metadata_Extension {
  PJRT_Extension_Base extension_base;
  XLA_FFI_Metadata *metadata;
} XLA_FFI_Metadata_Extension;

struct XLA_FFI_Api {
  size_t struct_size;
  PJRT_Extension_Base *extension_start;
  XLA_FFI_Api_Version api_version;
  const void *internal_api;
  XLA_FFI_Error *(*XLA_FFI_Error_Create)(XLA_FFI_Error_Create_Args *args);
};

/* The extension of a plugin's table that takes handlers. */
typedef struct PJRT_FFI_Register_Handler_Args {
  size_t struct_size;
  const char *target_name;
  size_t target_name_size;
  void *handler;
  const char *platform_name;
  size_t platform_name_size;
  int traits;
} PJRT_FFI_Register_Handler_Args;
#define PJRT_FFI_Register_Handler_Args_STRUCT_SIZE                                                 \
  (offsetof(PJRT_FFI_Register_Handler_Args, traits) + sizeof(int))
typedef struct PJRT_FFI_Extension {
  PJRT_Extension_Base base;
  void *type_register, *user_data_add;
  PJRT_Error *(*register_handler)(PJRT_FFI_Register_Handler_Args *args);
} PJRT_FFI_Extension;

#endif
