/* Memory: checked sizes, arenas, growing arrays and text. */
#ifndef TT_MEM_H
#define TT_MEM_H

#include "base/alloc.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

/* false on overflow; `out` is then untouched. */
bool tt_mul_size(size_t a, size_t b, size_t *out);
bool tt_mul_i64(int64_t a, int64_t b, int64_t *out);
bool tt_add_i64(int64_t a, int64_t b, int64_t *out);

/* What was freed goes back to the system, where the C library would keep it for later. */
void tt_memory_trim(void);

/* Bytes that somebody else owns. */
typedef struct tt_bytes {
  const void *data;
  size_t size;
} tt_bytes;

/* A bump allocator: everything is freed at once. Thread-compatible. */
typedef struct tt_arena {
  struct tt_arena_block *head;
} tt_arena;

#define TT_ARENA_INIT {0}
void tt_arena_deinit(tt_arena *arena);
/* 16-byte aligned, zeroed; NULL when memory is out. */
void *tt_arena_alloc(tt_arena *arena, size_t size);
void *tt_arena_copy(tt_arena *arena, const void *data, size_t size);
char *tt_arena_printf(tt_arena *arena, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A growing byte buffer with printf, for program text. Errors stick until asked for. */
typedef struct tt_text {
  char *data; /* NUL-terminated once anything was added */
  size_t size, capacity;
  bool failed;
} tt_text;

#define TT_TEXT_INIT {0}
void tt_text_deinit(tt_text *text);
void tt_text_add(tt_text *text, const char *data, size_t size);
void tt_text_printf(tt_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void tt_text_bytes(tt_text *text, int64_t bytes); /* "1.5 MiB" */
void tt_text_trim(tt_text *text); /* gives back room beyond the content, which may move */
tt_status tt_text_status(const tt_text *text);

/* Makes room for `needed` elements of `size` bytes in *array, doubling; the old content stays. */
tt_status tt_grow(void **array, size_t *capacity, size_t needed, size_t size);

/* For qsort and bsearch: the smaller int64_t first. */
int tt_compare_i64(const void *a, const void *b);

#endif
