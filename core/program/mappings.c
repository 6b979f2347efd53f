#include "program/mappings.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

/* The whole of a small file, or "". */
static void read_text(const char *path, char *text, size_t size) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t got = fd >= 0 ? read(fd, text, size - 1) : 0;
  text[got > 0 ? got : 0] = '\0';
  if (fd >= 0) close(fd);
}

static int64_t count_lines(const char *path) {
  char text[1 << 14];
  ssize_t got = 0;
  int64_t lines = 0;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  while ((got = read(fd, text, sizeof text)) > 0)
    for (ssize_t i = 0; i < got; i++) lines += text[i] == '\n';
  close(fd);
  return lines;
}

int64_t tt_mappings_room(void) {
  char limit[32];
  read_text("/proc/sys/vm/max_map_count", limit, sizeof limit);
  long long most = strtoll(limit, NULL, 10);
  return most > 0 ? most / 2 - count_lines("/proc/self/maps") : INT64_MAX;
}
