#include "base/env.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Copies, because setenv may free what getenv returned; static, because reading the environment
 * must not fail. */
#define TT_ENV_SIZE 4096

typedef struct tt_env_row {
  const char *name, *value, *doc;
} tt_env_row;

static const tt_env_row tt_env_rows[TT_ENV_COUNT] = {
#define X(name, value, doc) {"TORCH_TPU_" #name, value, doc},
    TT_ENV_VARS(X)
#undef X
};

static char tt_env_values[TT_ENV_COUNT][TT_ENV_SIZE];
static pthread_once_t tt_env_once = PTHREAD_ONCE_INIT;

static void env_read(void) {
  for (int i = 0; i < TT_ENV_COUNT; i++) {
    const char *value = getenv(tt_env_rows[i].name);
    if (!value || !value[0]) value = tt_env_rows[i].value;
    strncpy(tt_env_values[i], value, TT_ENV_SIZE - 1);
  }
}

const char *tt_env(tt_env_var var) {
  (void)pthread_once(&tt_env_once, env_read);
  return tt_env_values[var];
}

int64_t tt_env_int(tt_env_var var) {
  const char *text = tt_env(var);
  char *end = NULL;
  errno = 0;
  long long number = strtoll(text, &end, 10);
  return errno || end == text || *end ? 0 : (int64_t)number;
}

const char *tt_env_name(tt_env_var var) { return tt_env_rows[var].name; }
const char *tt_env_default(tt_env_var var) { return tt_env_rows[var].value; }
const char *tt_env_doc(tt_env_var var) { return tt_env_rows[var].doc; }
