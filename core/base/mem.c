#include "base/mem.h"

#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TT_MAX_TEXT ((size_t)1 << 30)

/* -- Checked arithmetic -- */

bool tt_mul_size(size_t a, size_t b, size_t *out) {
  size_t product;
  if (__builtin_mul_overflow(a, b, &product)) return false;
  *out = product;
  return true;
}

bool tt_mul_i64(int64_t a, int64_t b, int64_t *out) {
  int64_t product;
  if (__builtin_mul_overflow(a, b, &product)) return false;
  *out = product;
  return true;
}

bool tt_add_i64(int64_t a, int64_t b, int64_t *out) {
  int64_t sum;
  if (__builtin_add_overflow(a, b, &sum)) return false;
  *out = sum;
  return true;
}

/* -- Arena -- */

typedef struct tt_arena_block {
  _Alignas(16) struct tt_arena_block *next;
  size_t used, capacity; /* of the bytes that follow */
} tt_arena_block;

#define TT_ARENA_FIRST ((size_t)2 << 10)
#define TT_ARENA_LARGEST ((size_t)256 << 10) /* blocks double up to this */

void tt_arena_deinit(tt_arena *arena) {
  for (tt_arena_block *block = arena->head, *next; block; block = next) {
    next = block->next;
    tt_free(block);
  }
  arena->head = NULL;
}

static tt_arena_block *arena_add_block(tt_arena *arena, size_t size) {
  size_t capacity = arena->head ? arena->head->capacity * 2 : TT_ARENA_FIRST;
  if (capacity > TT_ARENA_LARGEST) capacity = TT_ARENA_LARGEST;
  if (capacity < size) capacity = size;
  tt_arena_block *block = tt_malloc(sizeof *block + capacity);
  if (!block) return NULL;
  *block = (tt_arena_block){.next = arena->head, .used = 0, .capacity = capacity};
  arena->head = block;
  return block;
}

static void *arena_take(tt_arena *arena, size_t size) {
  if (size > PTRDIFF_MAX / 2) return NULL;
  size = (size + 15) & ~(size_t)15;
  tt_arena_block *block = arena->head;
  if (!block || block->capacity - block->used < size) block = arena_add_block(arena, size);
  if (!block) return NULL;
  char *memory = (char *)(block + 1) + block->used;
  block->used += size;
  return memory;
}

void *tt_arena_alloc(tt_arena *arena, size_t size) {
  void *memory = arena_take(arena, size);
  return memory ? memset(memory, 0, size) : NULL;
}

void *tt_arena_copy(tt_arena *arena, const void *data, size_t size) {
  void *memory = arena_take(arena, size);
  if (memory && size) memcpy(memory, data, size);
  return memory;
}

char *tt_arena_printf(tt_arena *arena, const char *format, ...) {
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  int length = vsnprintf(NULL, 0, format, args);
  char *text = length < 0 ? NULL : arena_take(arena, (size_t)length + 1);
  if (text) (void)vsnprintf(text, (size_t)length + 1, format, again);
  va_end(again);
  va_end(args);
  return text;
}

void tt_memory_trim(void) {
#ifdef __GLIBC__
  (void)malloc_trim(0);
#endif
}

/* -- Text -- */

void tt_text_deinit(tt_text *text) {
  tt_free(text->data);
  *text = (tt_text)TT_TEXT_INIT;
}

/* Room for `more` bytes and a NUL after the present content. */
static bool text_reserve(tt_text *text, size_t more) {
  if (text->failed) return false;
  if (more < text->capacity - text->size) return true;
  if (more >= TT_MAX_TEXT - text->size) return !(text->failed = true);
  size_t capacity = text->capacity ? text->capacity : 256;
  while (capacity - text->size <= more) capacity *= 2;
  char *data = tt_realloc(text->data, capacity);
  if (!data) return !(text->failed = true);
  text->data = data;
  text->capacity = capacity;
  return true;
}

void tt_text_trim(tt_text *text) {
  char *data = text->data ? tt_realloc(text->data, text->size + 1) : NULL;
  if (!data) return;
  text->data = data;
  text->capacity = text->size + 1;
}

void tt_text_add(tt_text *text, const char *data, size_t size) {
  if (!text_reserve(text, size)) return;
  if (size) memcpy(text->data + text->size, data, size);
  text->size += size;
  text->data[text->size] = '\0';
}

void tt_text_printf(tt_text *text, const char *format, ...) {
  if (!text_reserve(text, 64)) return; /* most pieces fit: one formatting pass */
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  size_t room = text->capacity - text->size;
  int length = vsnprintf(text->data + text->size, room, format, args);
  if (length < 0) {
    text->failed = true;
  } else if ((size_t)length < room) {
    text->size += (size_t)length;
  } else if (text_reserve(text, (size_t)length)) {
    (void)vsnprintf(text->data + text->size, (size_t)length + 1, format, again);
    text->size += (size_t)length;
  }
  va_end(again);
  va_end(args);
}

void tt_text_bytes(tt_text *text, int64_t bytes) {
  static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
  double amount = (double)bytes / 1024;
  int unit = 0;
  if (bytes < 1024) {
    tt_text_printf(text, "%lld bytes", (long long)bytes);
    return;
  }
  for (; amount >= 1024 && unit < 3; unit++) amount /= 1024;
  tt_text_printf(text, "%.1f %s", amount, units[unit]);
}

tt_status tt_text_status(const tt_text *text) {
  return text->failed ? tt_out_of_memory() : TT_SUCCESS;
}

/* -- Arrays -- */

tt_status tt_grow(void **array, size_t *capacity, size_t needed, size_t size) {
  if (needed <= *capacity) return TT_SUCCESS;
  size_t count = *capacity > SIZE_MAX / 2 ? needed : *capacity * 2, bytes;
  if (count < 8) count = 8;
  if (count < needed) count = needed;
  if (!tt_mul_size(count, size, &bytes)) return tt_out_of_memory();
  void *grown = tt_realloc(*array, bytes);
  if (!grown) return tt_out_of_memory();
  *array = grown;
  *capacity = count;
  return TT_SUCCESS;
}

int tt_compare_i64(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}
