#include "stream/templates.h"

#include <pthread.h>

struct tt_templates {
  pthread_mutex_t lock;
  tt_call_table *calls;
  tt_intern by_key;
  uint64_t epoch; /* of all that is kept */
};

static tt_template useless; /* stands for notes that are of no use */

static void forget(tt_templates *all) {
  for (size_t i = 0; i < all->by_key.capacity; i++) {
    const tt_intern_entry *entry = &all->by_key.entries[i];
    if (entry->key && entry->value != &useless) tt_template_release(entry->value);
  }
  tt_intern_deinit(&all->by_key);
}

tt_status tt_templates_create(tt_call_table *calls, tt_templates **out) {
  tt_templates *all = tt_calloc(1, sizeof *all);
  if (!all) return tt_out_of_memory();
  pthread_mutex_init(&all->lock, NULL);
  all->calls = calls;
  *out = all;
  return TT_SUCCESS;
}

void tt_templates_destroy(tt_templates *all) {
  if (!all) return;
  forget(all);
  pthread_mutex_destroy(&all->lock);
  tt_free(all);
}

/* The lock is held. */
static tt_template *find(tt_templates *all, const tt_key *key) {
  uint64_t now = tt_call_table_epoch(all->calls);
  if (all->epoch != now) forget(all);
  all->epoch = now;
  return tt_intern_find(&all->by_key, key->data, key->size);
}

bool tt_templates_find(tt_templates *all, const tt_key *key, tt_template **out) {
  *out = NULL;
  if (key->failed) return false;
  pthread_mutex_lock(&all->lock);
  tt_template *found = find(all, key);
  if (found && found != &useless) *out = tt_template_retain(found);
  pthread_mutex_unlock(&all->lock);
  return found != NULL;
}

void tt_templates_keep(tt_templates *all, const tt_key *key, tt_template *made) {
  pthread_mutex_lock(&all->lock);
  bool wanted = !key->failed && !find(all, key) && (!made || made->epoch == all->epoch);
  if (wanted && all->by_key.count >= TT_TEMPLATES_MOST) forget(all);
  if (wanted) {
    tt_status status = tt_intern_add(&all->by_key, key->data, key->size, made ? made : &useless);
    wanted = !status;
    tt_status_release(status);
  }
  pthread_mutex_unlock(&all->lock);
  if (!wanted) tt_template_release(made);
}
