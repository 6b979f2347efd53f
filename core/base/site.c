#include "base/site.h"

#include "base/intern.h"
#include "base/mem.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *sites[TT_SITE_LIMIT];
static atomic_uint count = 1; /* 0 is the unknown site */
static tt_intern ids;         /* by text */

/* The lock is held. 0 when there is no room. */
static uint32_t new_site(const char *text) {
  uint32_t id = atomic_load(&count);
  size_t size = strlen(text);
  char *copy = id < TT_SITE_LIMIT ? tt_strndup(text, size) : NULL;
  tt_status status =
      copy ? tt_intern_add(&ids, text, size, (void *)(uintptr_t)id) : tt_out_of_memory();
  if (status) {
    tt_status_release(status);
    tt_free(copy);
    return 0;
  }
  sites[id] = copy;
  atomic_store_explicit(&count, id + 1, memory_order_release);
  return id;
}

uint32_t tt_site_add(const char *file, int line, const char *function) {
  char text[512];
  snprintf(text, sizeof text, "%s:%d in %s", file, line, function);
  pthread_mutex_lock(&lock);
  uint32_t id = (uint32_t)(uintptr_t)tt_intern_find(&ids, text, strlen(text));
  if (!id) id = new_site(text);
  pthread_mutex_unlock(&lock);
  return id;
}

uint32_t tt_site_count(void) { return atomic_load_explicit(&count, memory_order_acquire); }

const char *tt_site_text(uint32_t site) {
  if (site == 0 || site >= atomic_load_explicit(&count, memory_order_acquire)) return "";
  return sites[site];
}
