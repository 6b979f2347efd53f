#include "program/priority.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

bool tt_priority_may_rise(void) {
  id_t self = (id_t)gettid();
  int nice = getpriority(PRIO_PROCESS, self);
  if (setpriority(PRIO_PROCESS, self, nice + 1)) return false;
  return !setpriority(PRIO_PROCESS, self, nice);
}

static bool is_named(const char *thread, const char *prefix) {
  char path[64], name[16] = ""; /* the kernel's limit */
  (void)snprintf(path, sizeof path, "/proc/self/task/%.20s/comm", thread);
  FILE *file = fopen(path, "re");
  if (!file) return false; /* it has ended */
  bool read = fgets(name, sizeof name, file);
  (void)fclose(file);
  return read && !strncmp(name, prefix, strlen(prefix));
}

void tt_priority_set(const char *prefix, pid_t except, int nice) {
  DIR *threads = opendir("/proc/self/task");
  if (!threads) return;
  for (struct dirent *entry; (entry = readdir(threads));) {
    pid_t thread = (pid_t)strtol(entry->d_name, NULL, 10);
    if (thread > 0 && thread != except && is_named(entry->d_name, prefix))
      (void)setpriority(PRIO_PROCESS, (id_t)thread, nice);
  }
  (void)closedir(threads);
}
