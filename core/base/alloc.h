/* An allocator that tests can make fail. */
#ifndef TT_ALLOC_H
#define TT_ALLOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Like malloc and friends; NULL when memory is out or a test asked for a failure. Thread-safe. */
void *tt_malloc(size_t size);
void *tt_calloc(size_t count, size_t size);
void *tt_realloc(void *block, size_t size);
void tt_free(void *block);
char *tt_strndup(const char *text, size_t length);

/* Test hook: fail the Nth allocation from now (1 = the next), and, if `forever`, all later ones;
 * INT64_MAX only counts. 0 turns it off, and the counting with it. tt_alloc_count tells how many
 * were asked for since the hook was last turned on. */
void tt_alloc_fail_at(int64_t nth, bool forever);
int64_t tt_alloc_count(void);

#endif
