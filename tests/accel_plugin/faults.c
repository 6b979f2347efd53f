#include "internal.h"

#include <stdlib.h>
#include <string.h>

#define ACCEL_MAX_RULES 16

typedef struct accel_rule {
  accel_act act;
  bool later;
  int64_t nth; /* 0: by chance */
  double chance;
  int code;
  int64_t asked;
} accel_rule;

static const char *const names[ACCEL_ACTS] = {"execute", "h2d", "d2h", "d2d", "compile", "alloc"};
static atomic_int_fast64_t counts[ACCEL_ACTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* over the rules */
static accel_rule rules[ACCEL_MAX_RULES];
static int rule_count;

static int find_act(const char *name, size_t size) {
  for (int i = 0; i < ACCEL_ACTS; i++)
    if (strlen(names[i]) == size && !memcmp(names[i], name, size)) return i;
  return -1;
}

void accel_did(accel_act act) { atomic_fetch_add(&counts[act], 1); }

int64_t tt_accel_count(const char *what) {
  int act = find_act(what, strlen(what));
  return act < 0 ? -1 : atomic_load(&counts[act]);
}

/* -- Rules: WHAT[-async]:(N|pCHANCE)[:CODE] -- */

static bool read_act(const char **at, accel_rule *rule) {
  size_t size = strcspn(*at, ":,");
  static const char async[] = "-async";
  size_t tail = sizeof async - 1, name = size;
  rule->later = size > tail && !memcmp(*at + size - tail, async, tail);
  if (rule->later) name -= tail;
  int act = find_act(*at, name);
  if (act < 0 || (*at)[size] != ':' || (rule->later && act >= ACCEL_COMPILE)) return false;
  rule->act = (accel_act)act;
  rule->code = act == ACCEL_ALLOC ? TT_RESOURCE_EXHAUSTED : TT_INTERNAL;
  *at += size + 1;
  return true;
}

static bool read_rule(const char **at, accel_rule *rule) {
  char *end = NULL;
  *rule = (accel_rule){0};
  if (!read_act(at, rule)) return false;
  if (**at == 'p') {
    rule->chance = strtod(*at + 1, &end);
    if (end == *at + 1 || !(rule->chance >= 0 && rule->chance <= 1)) return false;
  } else {
    rule->nth = strtoll(*at, &end, 10);
    if (rule->nth < 1) return false;
  }
  *at = end;
  if (**at == ':') {
    long code = strtol(*at + 1, &end, 10);
    if (code < TT_CANCELLED || code > TT_UNAUTHENTICATED) return false;
    rule->code = (int)code;
    *at = end;
  }
  return **at == ',' || !**at;
}

bool tt_accel_fail(const char *list) {
  accel_rule read[ACCEL_MAX_RULES];
  int count = 0;
  for (const char *at = list ? list : ""; *at; at += *at == ',')
    if (count == ACCEL_MAX_RULES || !read_rule(&at, &read[count++])) return false;
  (void)pthread_mutex_lock(&lock);
  rule_count = count;
  for (int i = 0; i < count; i++) rules[i] = read[i];
  (void)pthread_mutex_unlock(&lock);
  return true;
}

static bool applies(accel_rule *rule) {
  if (!rule->nth) return accel_random() < rule->chance;
  return ++rule->asked == rule->nth;
}

PJRT_Error *accel_fault(accel_act act, bool later) {
  PJRT_Error *error = NULL;
  (void)pthread_mutex_lock(&lock);
  for (int i = 0; i < rule_count; i++) {
    accel_rule *rule = &rules[i];
    if (rule->act != act || rule->later != later || !applies(rule) || error) continue;
    error = accel_error(rule->code, "a failure of %s%s on demand", names[act],
                        later ? ", after the call" : "");
  }
  (void)pthread_mutex_unlock(&lock);
  return error;
}
