#include "program/environment.h"

#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

/* Sizes are written as well: a value may contain anything. */
static void add(tt_text *out, const char *name, const char *value, size_t size) {
  tt_text_printf(out, "%s %zu ", name, size);
  tt_text_add(out, value, size);
  tt_text_add(out, "\n", 1);
}

/* -- Hashes of files -- */

typedef struct digest {
  uint64_t a, b;
} digest;

static tt_status file_error(const char *path) {
  tt_code code = errno == ENOENT ? TT_NOT_FOUND : TT_UNAVAILABLE;
  return tt_error(code, "cannot read '%s' (%s)", path, strerror(errno));
}

/* As many bytes as there are, up to `size`; -1 on failure. */
static ssize_t read_block(int fd, char *block, size_t size) {
  size_t at = 0;
  while (at < size) {
    ssize_t count = read(fd, block + at, size - at);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return -1;
    if (count == 0) break;
    at += (size_t)count;
  }
  return (ssize_t)at;
}

static tt_status hash_file(const char *path, digest *out) {
  enum { BLOCK = 1 << 20 };
  *out = (digest){1, 2};
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return file_error(path);
  char *block = tt_malloc(BLOCK);
  ssize_t count = 0;
  while (block && (count = read_block(fd, block, BLOCK)) > 0) {
    out->a = tt_hash_bytes(block, (size_t)count, out->a);
    out->b = tt_hash_bytes(block, (size_t)count, out->b);
  }
  tt_status status = !block ? tt_out_of_memory() : count < 0 ? file_error(path) : TT_SUCCESS;
  tt_free(block);
  close(fd);
  return status;
}

/* -- The plugin -- */

/* Whoever changes a file changes its ctime. */
static tt_status describe_file(const char *path, tt_text *out) {
  struct stat info;
  if (stat(path, &info)) return file_error(path);
  add(out, "file", path, strlen(path));
  tt_text_printf(out, "%ju %ju %jd %jd.%09ld %jd.%09ld\n", (uintmax_t)info.st_dev,
                 (uintmax_t)info.st_ino, (intmax_t)info.st_size, (intmax_t)info.st_mtim.tv_sec,
                 info.st_mtim.tv_nsec, (intmax_t)info.st_ctim.tv_sec, info.st_ctim.tv_nsec);
  return tt_text_status(out);
}

static bool recall(tt_dir *dir, const char *name, const tt_entry *key, digest *out) {
  void *data = NULL;
  size_t size = 0;
  tt_entry found;
  tt_status status = tt_dir_read(dir, name, &data, &size);
  if (!status) status = tt_entry_parse(data, size, &found);
  bool known = !status && tt_entry_same_key(&found, key) && found.body.size == sizeof *out;
  if (known) memcpy(out, found.body.data, sizeof *out);
  tt_status_release(status);
  tt_free(data);
  return known;
}

static void remember(tt_dir *dir, const char *name, tt_entry entry, const digest *value) {
  unsigned char header[TT_ENTRY_HEADER];
  entry.body = (tt_bytes){value, sizeof *value};
  tt_entry_header(&entry, header);
  const tt_bytes pieces[] = {{header, sizeof header}, entry.environment, entry.body};
  tt_status_release(tt_dir_write(dir, name, pieces, 3));
}

static tt_status hash_plugin(const char *path, tt_dir *dir, digest *out) {
  tt_text text = TT_TEXT_INIT;
  char name[TT_ENTRY_NAME] = "";
  tt_entry key = {0};
  tt_status status = describe_file(path, &text);
  if (!status) {
    key.environment = (tt_bytes){text.data, text.size};
    tt_entry_name(&key, TT_ENTRY_PLUGIN, name);
  }
  if (!status && !(dir && recall(dir, name, &key, out))) {
    status = hash_file(path, out);
    if (!status && dir && tt_dir_writable(dir)) remember(dir, name, key, out);
  }
  tt_text_deinit(&text);
  return status;
}

static tt_status add_plugin(tt_plugin *plugin, tt_dir *dir, tt_text *out) {
  static const char *const attributes[] = {"xla_version", "stablehlo_current_version",
                                           "stablehlo_minimum_version"};
  int major = 0, minor = 0;
  digest hash;
  TT_TRY(hash_plugin(tt_plugin_path(plugin), dir, &hash));
  tt_plugin_version(plugin, &major, &minor);
  tt_text_printf(out, "plugin %016llx%016llx, PJRT API %d.%d\n", (unsigned long long)hash.a,
                 (unsigned long long)hash.b, major, minor);
  for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++) {
    int64_t v[3];
    if (!tt_plugin_attribute(plugin, attributes[i], v)) continue;
    tt_text_printf(out, "%s %lld.%lld.%lld\n", attributes[i], (long long)v[0], (long long)v[1],
                   (long long)v[2]);
  }
  return TT_SUCCESS;
}

/* -- The machine -- */

static bool describes_cpu(const char *line) {
  static const char *const keys[] = {"vendor_id", "cpu family",       "model",
                                     "flags",     "CPU implementer",  "CPU variant",
                                     "CPU part",  "CPU architecture", "Features"};
  size_t size = strcspn(line, "\t:");
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (strlen(keys[i]) == size && memcmp(keys[i], line, size) == 0) return true;
  return false;
}

/* The first processor's lines; the number of processors, as XLA divides work by it. */
static tt_status add_cpu(tt_text *out) {
  cpu_set_t set;
  int count = sched_getaffinity(0, sizeof set, &set) ? 0 : CPU_COUNT(&set);
  tt_text_printf(out, "processors %d\n", count);
  FILE *file = fopen("/proc/cpuinfo", "re");
  if (!file) return file_error("/proc/cpuinfo");
  char *line = NULL;
  size_t capacity = 0, lines = 0;
  for (ssize_t size; (size = getline(&line, &capacity, file)) > 1;) {
    if (!describes_cpu(line)) continue;
    tt_text_add(out, line, (size_t)size);
    lines++;
  }
  free(line);
  (void)fclose(file);
  return lines ? TT_SUCCESS : tt_error(TT_NOT_FOUND, "/proc/cpuinfo does not tell the CPU's model");
}

static void add_file(tt_text *out, const char *path) {
  digest hash;
  tt_status status = hash_file(path, &hash);
  if (!status)
    tt_text_printf(out, "its content %016llx%016llx\n", (unsigned long long)hash.a,
                   (unsigned long long)hash.b);
  tt_status_release(status);
}

/* XLA_FLAGS may name a file of flags. */
static void add_variables(tt_text *out) {
  static const char *const names[] = {"XLA_FLAGS", "LIBTPU_INIT_ARGS", "PJRT_NPROC", "NPROC"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const char *value = getenv(names[i]);
    if (!value || !*value) continue;
    add(out, names[i], value, strlen(value));
    if (i == 0 && *value != '-') add_file(out, value);
  }
}

tt_status tt_environment_print(const tt_target *target, tt_dir *dir, tt_text *out) {
  struct utsname machine;
  if (uname(&machine)) return file_error("the machine's name");
  TT_TRY(add_plugin(target->plugin, dir, out));
  add(out, "machine", machine.machine, strlen(machine.machine));
  add(out, "platform", target->platform, strlen(target->platform));
  add(out, "version", target->version, strlen(target->version));
  add(out, "device", target->kind, strlen(target->kind));
  tt_text_printf(out, "devices %d\n", target->device_count);
  add_variables(out);
  if (target->xla_cpu) TT_TRY(add_cpu(out));
  return tt_text_status(out);
}
