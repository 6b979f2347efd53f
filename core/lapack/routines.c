#include "lapack/internal.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DTYPES = 4 }; /* s, d, c, z */

static tt_fortran *routines[TT_ROUTINES][DTYPES];
static atomic_bool bound;

/* -- Binding -- */

static tt_fortran *find_routine(tt_lapack_find find, char letter, const char *name) {
  char symbol[16];
  snprintf(symbol, sizeof symbol, "%c%s_", letter, name);
  void *address = find(symbol);
  tt_fortran *routine;
  /* ISO C has no cast from data to function pointers. */
  memcpy((void *)&routine, (const void *)&address, sizeof routine);
  return routine;
}

bool tt_lapack_bind(tt_lapack_find find) {
  static const char *const names[TT_ROUTINES][2] = {
#define X(name, real, complex) {real, complex},
      TT_LAPACK_ROUTINES(X)
#undef X
  };
  for (int i = 0; i < TT_ROUTINES; i++)
    for (int k = 0; k < DTYPES; k++) {
      const char *name = names[i][k >= 2];
      if (!*name) continue;
      routines[i][k] = find_routine(find, "sdcz"[k], name);
      if (!routines[i][k]) return false;
    }
  atomic_store_explicit(&bound, true, memory_order_release);
  return true;
}

bool tt_lapack_bound(void) { return atomic_load_explicit(&bound, memory_order_acquire); }

static int letter_of(tt_dtype dtype) {
  return (tt_is_complex(dtype) ? 2 : 0) + (tt_dtype_real(dtype) == TT_F64);
}

tt_fortran *tt_lapack_routine(tt_routine routine, tt_dtype dtype) {
  return routines[routine][letter_of(dtype)];
}

/* -- Handlers -- */

#define X(name)                                                                                    \
  static tt_ffi_error *handle_##name(tt_ffi_frame *frame) {                                        \
    return tt_ffi_run(frame, tt_lapack_##name);                                                    \
  }
TT_LAPACK_CALLS(X)
#undef X

tt_status tt_lapack_offer(tt_plugin *plugin) {
#define X(name) TT_TRY(tt_plugin_register(plugin, "torch_tpu." #name, "Host", handle_##name));
  TT_LAPACK_CALLS(X)
#undef X
  return TT_SUCCESS;
}

/* -- Matrices -- */

tt_status tt_matrices_of(const tt_ffi_array *array, tt_matrices *out) {
  const tt_type *type = &array->type;
  *out = (tt_matrices){.data = array->data, .count = 1};
  if (type->rank < 2 || type->dims[type->rank - 1] > INT32_MAX ||
      type->dims[type->rank - 2] > INT32_MAX)
    return tt_error(TT_INVALID_ARGUMENT,
                    "LAPACK takes matrices of at most 2,147,483,647 rows and columns");
  out->m = (int)type->dims[type->rank - 1];
  out->n = (int)type->dims[type->rank - 2];
  out->few = out->m < out->n ? out->m : out->n;
  out->lead = out->m ? out->m : 1;
  for (int i = 0; i < type->rank - 2; i++) out->count *= type->dims[i];
  out->element = (size_t)tt_dtype_bytes(type->dtype);
  out->stride = (size_t)out->m * (size_t)out->n * out->element;
  return TT_SUCCESS;
}

tt_status tt_matrices_copied(const tt_ffi_array *from, const tt_ffi_array *to, tt_matrices *out) {
  TT_TRY(tt_matrices_of(to, out));
  if (!tt_type_equal(&from->type, &to->type))
    return tt_error(TT_INVALID_ARGUMENT, "a factorisation needs a result like its operand");
  size_t bytes = (size_t)out->count * out->stride;
  if (bytes) memcpy(out->data, from->data, bytes);
  return TT_SUCCESS;
}

/* -- Scratch -- */

tt_status tt_lapack_scratch(int64_t count, size_t element, void **out) {
  enum { ALIGNMENT = 64 };
  size_t bytes = 0;
  *out = NULL;
  if (count < 0 || __builtin_mul_overflow((size_t)count, element, &bytes) ||
      bytes > SIZE_MAX - ALIGNMENT)
    return tt_out_of_memory();
  bytes = (bytes / ALIGNMENT + 1) * ALIGNMENT;
  *out = aligned_alloc(ALIGNMENT, bytes);
  return *out ? TT_SUCCESS : tt_out_of_memory();
}

void tt_lapack_free(void *scratch) { free(scratch); }

tt_status tt_workspace_of(const tt_asked *asked, tt_dtype dtype, tt_workspace *out) {
  double size;
  if (tt_dtype_real(dtype) == TT_F64) size = *(const double *)asked->bytes;
  else size = nextafterf(*(const float *)asked->bytes, INFINITY); /* may be rounded down */
  out->size = size > INT32_MAX ? INT32_MAX : size < 1 ? 1 : (int)size;
  return tt_lapack_scratch(out->size, (size_t)tt_dtype_bytes(dtype), &out->data);
}

tt_status tt_lapack_argument(const char *routine, int info) {
  if (info >= 0) return TT_SUCCESS;
  return tt_error(TT_INTERNAL, "LAPACK's %s objects to its argument %d", routine, -info);
}
