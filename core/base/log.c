#include "base/log.h"

#include "base/env.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TT_LOG_LINE 4096

static const char *const tt_topic_names[] = {
    [TT_LOG_COMPILE] = "compile",
    [TT_LOG_LAUNCH] = "launch",
    [TT_LOG_PLUGIN] = "plugin",
    [TT_LOG_HOST] = "host",
};
#define TT_TOPIC_COUNT (sizeof tt_topic_names / sizeof tt_topic_names[0])

static bool tt_topic_on[TT_TOPIC_COUNT];
static pthread_once_t tt_log_once = PTHREAD_ONCE_INIT;

static bool log_word_is(const char *word, size_t size, const char *name) {
  return strlen(name) == size && !memcmp(word, name, size);
}

static void log_read(void) {
  for (const char *word = tt_env(TT_ENV_LOG); *word;) {
    size_t size = strcspn(word, ", ");
    for (size_t i = 0; i < TT_TOPIC_COUNT; i++)
      if (log_word_is(word, size, tt_topic_names[i]) || log_word_is(word, size, "all"))
        tt_topic_on[i] = true;
    word += size;
    word += strspn(word, ", ");
  }
}

bool tt_log_on(tt_topic topic) {
  (void)pthread_once(&tt_log_once, log_read);
  return tt_topic_on[topic];
}

void tt_log(tt_topic topic, const char *format, ...) {
  if (!tt_log_on(topic)) return;
  char line[TT_LOG_LINE];
  size_t start = (size_t)snprintf(line, sizeof line, "torch_tpu %s: ", tt_topic_names[topic]);
  va_list args;
  va_start(args, format);
  int length = vsnprintf(line + start, sizeof line - start - 1, format, args);
  va_end(args);
  if (length < 0) return;
  size_t size = strlen(line);
  for (size_t i = start; i < size; i++)
    if (line[i] == '\n') line[i] = ' ';
  line[size++] = '\n';                 /* the last byte was left free */
  (void)fwrite(line, 1, size, stderr); /* one call: lines of different threads do not mix */
}
