#include "base/journal.h"

#include "base/log.h"

#include <pthread.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *ring[TT_JOURNAL_KEPT];
static int64_t kept;

void tt_journal_keep(const char *done, tt_text *text) {
  tt_text line = TT_TEXT_INIT;
  tt_text_printf(&line, "%s: %s", done, text->data ? text->data : "");
  tt_text_deinit(text);
  if (line.failed) {
    tt_text_deinit(&line);
    return;
  }
  tt_log(TT_LOG_COMPILE, "%s", line.data);
  pthread_mutex_lock(&lock);
  char **slot = &ring[kept++ % TT_JOURNAL_KEPT], *old = *slot;
  *slot = line.data;
  pthread_mutex_unlock(&lock);
  tt_free(old);
}

int64_t tt_journal_count(void) {
  pthread_mutex_lock(&lock);
  int64_t count = kept;
  pthread_mutex_unlock(&lock);
  return count;
}

char *tt_journal_get(int64_t i) {
  char *copy = NULL;
  pthread_mutex_lock(&lock);
  if (i >= 0 && i < kept && i >= kept - TT_JOURNAL_KEPT) {
    const char *line = ring[i % TT_JOURNAL_KEPT];
    copy = tt_strndup(line, strlen(line));
  }
  pthread_mutex_unlock(&lock);
  return copy;
}
