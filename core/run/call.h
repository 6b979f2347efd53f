/* A call: one operator specialised for the types and views of its operands and for its static
 * arguments. Calls are interned by a key; the first one with a new key is lowered to a program,
 * all later ones cost a lookup. */
#ifndef TT_CALL_H
#define TT_CALL_H

#include "ops/ops.h"
#include "run/storage.h"
#include "run/view.h"

struct tt_program;

typedef struct tt_call_tensor {
  const tt_type *storage;
  tt_view view;
  bool undefined; /* nothing was written to the storage: reads as zeros */
  int same_as;    /* an earlier tensor of the call with the same storage, or -1 */
} tt_call_tensor;

typedef struct tt_call_result {
  bool defined;           /* false: the lowering left it out (an undefined tensor) */
  int target;             /* the tensor it is written to, or -1 for a new storage */
  tt_view view;           /* of the new storage (dtype, sizes, strides); unused for targets */
  const tt_type *storage; /* the storage's type afterwards */
} tt_call_result;

/* What the caller knows when a key is new. Borrowed; tt_call_create copies what it keeps. */
typedef struct tt_call_spec {
  const tt_op_row *row;
  const char *name; /* "aten::add_.Tensor" */
  const tt_arg *args;
  int arg_count;
  const tt_call_tensor *tensors;
  int tensor_count;
  const tt_dtype *numbers;       /* dtypes of the run-time numbers: F64, F32, I64, BOOL */
  int number_count;              /* for TT_RANDOM the last two are the seed and the offset */
  tt_dtype common, fractions;    /* see tt_lower */
  const tt_call_result *results; /* view filled in where promised */
  int result_count;
  bool promised; /* false: no Meta kernel; the lowering's types and count rule (up to result_count)
                  */
  bool checks;   /* Debug */
  tt_precision precision; /* of its products, if tt_op_multiplies */
  uint32_t site;          /* the Python line that made it first; see run.h */
} tt_call_spec;

typedef struct tt_call {
  const char *name;
  const tt_op_row *row;
  int result_count, output_count; /* outputs: defined results */
  int word_count;                 /* 32-bit words of packed numbers */
  tt_call_result *results;
  bool zeros;  /* all that it does is to make or write a few zeros */
  int *inputs; /* tensors whose storages the program reads, in order */
  int input_count;
  uint64_t hash;     /* of what it computes; equal in every process */
  tt_call_spec spec; /* the call's own copy */
  tt_arena arena;
  struct tt_program *program; /* see tt_call_program; accessed atomically */
} tt_call;

/* Words that a number takes in the packed vector. */
static inline int tt_number_words(tt_dtype dtype) {
  return dtype == TT_F32 || dtype == TT_BOOL ? 1 : 2;
}

/* -- Keys: a byte string built in place -- */
typedef struct tt_key {
  size_t size, capacity;
  uint8_t *data; /* `local` or heap */
  bool failed;
  uint8_t local[1024];
} tt_key;

static inline void tt_key_init(tt_key *key) {
  key->size = 0;
  key->capacity = sizeof key->local;
  key->data = key->local;
  key->failed = false;
}
void tt_key_deinit(tt_key *key);
bool tt_key_grow(tt_key *key, size_t more);
static inline void tt_key_add(tt_key *key, const void *data, size_t size) {
  if (key->size + size > key->capacity && !tt_key_grow(key, size)) return;
  __builtin_memcpy(key->data + key->size, data, size);
  key->size += size;
}
static inline void tt_key_u64(tt_key *key, uint64_t value) {
  tt_key_add(key, &value, sizeof value);
}
/* A tensor: `canonical` when it is the row-major view of its whole storage in its own dtype;
 * `same_as` as in tt_call_tensor. */
static inline void tt_key_tensor(tt_key *key, const tt_storage *storage, int same_as,
                                 bool canonical, tt_dtype dtype, int rank, int64_t offset,
                                 const int64_t *sizes, const int64_t *strides) {
  tt_key_u64(key, (uint64_t)(uintptr_t)storage->type);
  tt_key_u64(key, (uint64_t)(storage->value != NULL) | (uint64_t)canonical << 1 |
                      (uint64_t)dtype << 8 | (uint64_t)rank << 16 | (uint64_t)(same_as + 1) << 32);
  if (canonical) return;
  tt_key_u64(key, (uint64_t)offset);
  tt_key_add(key, sizes, (size_t)rank * sizeof *sizes);
  tt_key_add(key, strides, (size_t)rank * sizeof *strides);
}

/* NULL when the key is new. The call is borrowed from the table, within a hold (forget.h). */
tt_call *tt_call_find(const tt_key *key);
/* Lowers and interns a new call and sends its program to the compilers. UNIMPLEMENTED: the
 * lowering cannot express these arguments. Thread-safe; a call that another thread interned in the
 * meantime is returned instead. */
tt_status tt_call_create(const tt_key *key, const tt_call_spec *spec, tt_call **out);
int64_t tt_call_table_size(void);
/* The call as a program of its own; its compilation is started at the first request. Thread-safe.
 */
tt_status tt_call_program(tt_call *call, struct tt_program **out);
/* Frees all calls; nobody may use them any more. */
void tt_call_shutdown(void);

#endif
