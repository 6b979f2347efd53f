/* Memory: checked sizes, an allocator that tests can make fail, arenas, growing arrays. */
#ifndef TT_MEM_H
#define TT_MEM_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

/* Like malloc and friends; NULL when memory is out or a test asked for a failure. Thread-safe. */
void *tt_malloc(size_t size);
void *tt_calloc(size_t count, size_t size);
void *tt_realloc(void *block, size_t size);
void tt_free(void *block);
char *tt_strndup(const char *text, size_t length);

/* The status for a failed allocation. */
tt_status tt_out_of_memory(void) __attribute__((returns_nonnull));

/* Test hook: fail the Nth allocation from now (1 = the next), and, if `forever`, all later ones;
 * INT64_MAX only counts. 0 turns it off, and the counting with it. tt_alloc_count tells how many
 * were asked for since the hook was last turned on. */
void tt_alloc_fail_at(int64_t nth, bool forever);
int64_t tt_alloc_count(void);

/* false on overflow; `out` is then untouched. */
bool tt_mul_size(size_t a, size_t b, size_t *out);
bool tt_mul_i64(int64_t a, int64_t b, int64_t *out);
bool tt_add_i64(int64_t a, int64_t b, int64_t *out);

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
tt_status tt_text_status(const tt_text *text);

/* Makes room for `needed` elements of `size` bytes in *array, doubling; the old content stays. */
tt_status tt_grow(void **array, size_t *capacity, size_t needed, size_t size);

#endif
