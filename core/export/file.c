#include "export/file.h"

#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ENVIRONMENT, OPTIONS, PLUGIN, CODE, BODY, NOTE, TABLE, DATA, PARTS };
enum {
  BLOCK = 1 << 20,
  RECORD = 20
}; /* what is hashed at a time; a record without dims and name */

typedef struct header {
  char magic[8];
  uint32_t format, port_count;
  int64_t blocks;
  uint64_t sizes[PARTS];
  uint64_t checksum[2];
} header;
_Static_assert(sizeof(header) == TT_EXPORT_HEADER, "the header has no padding");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are little-endian");

static const char magic[8] = {'t', 't', 'e', 'x', 'p', 'o', 'r', 't'};

static void begin_checksum(const header *h, uint64_t sums[2]) {
  for (uint64_t i = 0; i < 2; i++) sums[i] = tt_hash_bytes(h, offsetof(header, checksum), i + 1);
}

static void add_block(const void *data, size_t size, uint64_t sums[2]) {
  for (int i = 0; i < 2; i++) sums[i] = tt_hash_bytes(data, size, sums[i]);
}

int tt_exported_find(const tt_exported *exported, tt_port_kind kind, const char *name) {
  for (int i = 0; i < exported->parameter_count + exported->output_count; i++)
    if (exported->ports[i].kind == kind && strcmp(exported->ports[i].name, name) == 0) return i;
  return -1;
}

/* -- Writing -- */

typedef struct sink {
  FILE *file;
  char *block;
  size_t used;
  uint64_t sums[2];
  bool failed;
} sink;

static void flush(sink *s) {
  add_block(s->block, s->used, s->sums);
  s->failed |= fwrite(s->block, 1, s->used, s->file) != s->used;
  s->used = 0;
}

static void put(sink *s, const void *data, size_t size) {
  for (size_t done = 0; done < size;) {
    size_t room = BLOCK - s->used, left = size - done, some = left < room ? left : room;
    memcpy(s->block + s->used, (const char *)data + done, some);
    s->used += some;
    done += some;
    if (s->used == BLOCK) flush(s);
  }
}

static void put_u32(tt_text *out, uint32_t number) {
  tt_text_add(out, (const char *)&number, sizeof number);
}

static tt_status print_table(const tt_exported *content, tt_text *out) {
  int count = content->parameter_count + content->output_count;
  for (int i = 0; i < count; i++) {
    const tt_port *port = &content->ports[i];
    size_t size = strlen(port->name);
    const char *problem = tt_port_problem(content->ports, content->parameter_count, i, size);
    if (!problem && port->kind == TT_PORT_WEIGHT && !port->data && tt_type_numel(&port->type))
      problem = "has no value";
    if (problem) return tt_error(TT_INVALID_ARGUMENT, "export: '%.200s' %s", port->name, problem);
    put_u32(out, (uint32_t)port->kind);
    put_u32(out, (uint32_t)port->type.dtype);
    put_u32(out, (uint32_t)port->type.rank);
    put_u32(out, (uint32_t)size);
    put_u32(out, (uint32_t)port->writes);
    tt_text_add(out, (const char *)port->type.dims, sizeof(int64_t) * (size_t)port->type.rank);
    tt_text_add(out, port->name, size);
  }
  return tt_text_status(out);
}

static tt_status make_header(const tt_exported *content, const tt_text *table, header *out) {
  int count = content->parameter_count + content->output_count;
  int64_t data = 0, bytes = 0;
  for (int i = 0; i < content->parameter_count; i++) {
    if (content->ports[i].kind != TT_PORT_WEIGHT) continue;
    if (!tt_type_bytes(&content->ports[i].type, &bytes) || !tt_add_i64(data, bytes, &data))
      return tt_error(TT_INVALID_ARGUMENT, "export: the weights have more than 2^63 bytes");
  }
  const tt_bytes parts[TABLE] = {content->environment, content->options, content->plugin,
                                 content->code,        content->body,    content->note};
  *out = (header){
      .format = TT_EXPORT_FORMAT, .port_count = (uint32_t)count, .blocks = content->blocks};
  memcpy(out->magic, magic, sizeof magic);
  for (int i = 0; i < TABLE; i++) out->sizes[i] = parts[i].size;
  out->sizes[TABLE] = table->size;
  out->sizes[DATA] = (uint64_t)data;
  return TT_SUCCESS;
}

static void put_all(const tt_exported *content, const tt_text *table, sink *s) {
  const tt_bytes parts[TABLE] = {content->environment, content->options, content->plugin,
                                 content->code,        content->body,    content->note};
  for (int i = 0; i < TABLE; i++) put(s, parts[i].data, parts[i].size);
  put(s, table->data, table->size);
  for (int i = 0; i < content->parameter_count; i++) {
    int64_t bytes = 0;
    if (content->ports[i].kind != TT_PORT_WEIGHT) continue;
    (void)tt_type_bytes(&content->ports[i].type, &bytes);
    put(s, content->ports[i].data, (size_t)bytes);
  }
  flush(s);
}

static tt_status write_error(const char *path) {
  return tt_error(TT_UNAVAILABLE, "cannot write '%s' (%s)", path, strerror(errno));
}

/* The header is written once the checksum is known. */
static tt_status write_file(const tt_exported *content, const tt_text *table, const char *temp) {
  header h;
  TT_TRY(make_header(content, table, &h));
  sink s = {.block = tt_malloc(BLOCK)};
  if (!s.block) return tt_out_of_memory();
  tt_status status = TT_SUCCESS;
  s.file = fopen(temp, "wbe");
  if (s.file) {
    begin_checksum(&h, s.sums);
    s.failed = fwrite(&h, sizeof h, 1, s.file) != 1;
    put_all(content, table, &s);
    memcpy(h.checksum, s.sums, sizeof h.checksum);
    s.failed |= fseek(s.file, 0, SEEK_SET) != 0 || fwrite(&h, sizeof h, 1, s.file) != 1;
    s.failed |= fflush(s.file) != 0 || fsync(fileno(s.file)) != 0;
    if (s.failed) status = write_error(temp);
    if (fclose(s.file) && !status) status = write_error(temp);
  } else {
    status = write_error(temp);
  }
  tt_free(s.block);
  return status;
}

tt_status tt_exported_write(const tt_exported *content, const char *path) {
  int64_t count = (int64_t)content->parameter_count + content->output_count;
  if (content->parameter_count < 0 || content->output_count < 0 || count > TT_EXPORT_PORTS)
    return tt_error(TT_INVALID_ARGUMENT, "export: %lld parameters and results; at most %d",
                    (long long)count, TT_EXPORT_PORTS);
  tt_text table = TT_TEXT_INIT, temp = TT_TEXT_INIT;
  tt_text_printf(&temp, "%s.%ld.tmp", path, (long)getpid());
  tt_status status = tt_text_status(&temp);
  if (!status) status = print_table(content, &table);
  if (!status) {
    status = write_file(content, &table, temp.data);
    if (!status && rename(temp.data, path)) status = write_error(path);
    if (status) (void)unlink(temp.data);
  }
  tt_text_deinit(&table);
  tt_text_deinit(&temp);
  return status;
}

/* -- Reading -- */

static tt_status damaged(const char *path, const char *how) {
  return tt_error(TT_DATA_LOSS, "'%s' is damaged: %s", path, how);
}

static tt_status read_error(const char *path) {
  return tt_error(errno == ENOENT ? TT_NOT_FOUND : TT_UNAVAILABLE, "cannot read '%s' (%s)", path,
                  strerror(errno));
}

/* As many bytes as are asked for, or fewer at the end of the file. */
static tt_status read_bytes(int fd, const char *path, char *data, size_t size, size_t *got) {
  for (*got = 0; *got < size;) {
    ssize_t some = read(fd, data + *got, size - *got);
    if (some < 0 && errno == EINTR) continue;
    if (some < 0) return read_error(path);
    if (some == 0) break;
    *got += (size_t)some;
  }
  return TT_SUCCESS;
}

static tt_status check_header(const char *path, const header *h, uint64_t *size) {
  if (memcmp(h->magic, magic, sizeof magic) != 0)
    return tt_error(TT_DATA_LOSS, "'%s' is no file that torch_tpu.export.save wrote", path);
  if (h->format != TT_EXPORT_FORMAT)
    return tt_error(TT_FAILED_PRECONDITION,
                    "'%s' has format %u, and this version reads format %d; save it again with the "
                    "version that is to read it",
                    path, (unsigned)h->format, TT_EXPORT_FORMAT);
  if (h->port_count > TT_EXPORT_PORTS || h->blocks < 0)
    return damaged(path, "its header says what cannot be");
  *size = 0;
  for (int i = 0; i < PARTS; i++) {
    if (h->sizes[i] > (uint64_t)INT64_MAX - *size) return damaged(path, "its sizes cannot be");
    *size += h->sizes[i];
  }
  return TT_SUCCESS;
}

static tt_status check_body(const char *path, const header *h, const char *data, size_t size) {
  uint64_t sums[2];
  begin_checksum(h, sums);
  size_t at = 0;
  for (; size - at >= BLOCK; at += BLOCK) add_block(data + at, BLOCK, sums);
  add_block(data + at, size - at, sums);
  bool same = memcmp(sums, h->checksum, sizeof sums) == 0;
  return same ? TT_SUCCESS : damaged(path, "its checksum is wrong");
}

/* *data, of *size bytes, is the caller's, also on failure. */
static tt_status read_file(int fd, const char *path, header *h, char **data, size_t *size) {
  struct stat info;
  size_t got = 0;
  uint64_t expected = 0;
  if (fstat(fd, &info)) return read_error(path);
  if (!S_ISREG(info.st_mode)) return tt_error(TT_UNAVAILABLE, "'%s' is no plain file", path);
  TT_TRY(read_bytes(fd, path, (char *)h, sizeof *h, &got));
  if (got < sizeof *h) return damaged(path, "it ends within its header");
  TT_TRY(check_header(path, h, &expected));
  uint64_t there = (uint64_t)info.st_size - sizeof *h;
  if (there != expected)
    return damaged(path, there < expected ? "it was cut short" : "it is longer than it says");
  *size = (size_t)expected;
  *data = tt_malloc(*size + 1);
  if (!*data) return tt_out_of_memory();
  TT_TRY(read_bytes(fd, path, *data, *size, &got));
  return got == *size ? check_body(path, h, *data, got) : damaged(path, "it was cut short");
}

/* Reads a record of *at, of which `left` bytes are left; false: it is not whole. */
static bool parse_record(const char **at, size_t *left, tt_port *port, uint32_t *name_size) {
  uint32_t words[5];
  if (*left < RECORD) return false;
  memcpy(words, *at, RECORD);
  uint32_t rank = words[2];
  *name_size = words[3];
  if (words[0] > TT_PORT_OUTPUT || words[1] >= TT_DTYPE_LIMIT || rank > TT_MAX_RANK ||
      *name_size > TT_PORT_NAME || *left - RECORD < sizeof(int64_t) * rank + *name_size)
    return false;
  *port = (tt_port){.kind = (tt_port_kind)words[0], .writes = (int)words[4]};
  port->type.dtype = (tt_dtype)words[1];
  port->type.rank = (int)rank;
  memcpy(port->type.dims, *at + RECORD, sizeof(int64_t) * rank);
  port->name = *at + RECORD + sizeof(int64_t) * rank; /* not terminated yet */
  size_t size = RECORD + sizeof(int64_t) * rank + *name_size;
  *at += size;
  *left -= size;
  return true;
}

/* Its ports are checked once all are there, since an output may be of a parameter. */
static tt_status parse_table(const char *path, uint32_t count, tt_exported *out, tt_bytes table) {
  const char *at = table.data;
  size_t left = table.size;
  char *name = out->names;
  for (uint32_t i = 0; i < count; i++) {
    uint32_t size = 0;
    tt_port *port = &out->ports[i];
    if (!parse_record(&at, &left, port, &size)) return damaged(path, "its table is not whole");
    memcpy(name, port->name, size);
    name[size] = '\0';
    port->name = name;
    name += size + 1;
    if (port->kind == TT_PORT_OUTPUT) out->output_count++;
    else out->parameter_count++;
  }
  if (left) return damaged(path, "its table is longer than its ports");
  for (int i = 0; i < (int)count; i++)
    if (tt_port_problem(out->ports, out->parameter_count, i, strlen(out->ports[i].name)))
      return damaged(path, "its table says what cannot be");
  return TT_SUCCESS;
}

static tt_status find_weights(const char *path, tt_exported *out, tt_bytes data) {
  size_t at = 0;
  for (int i = 0; i < out->parameter_count; i++) {
    int64_t bytes = 0;
    if (out->ports[i].kind != TT_PORT_WEIGHT) continue;
    if (!tt_type_bytes(&out->ports[i].type, &bytes) || (uint64_t)bytes > data.size - at)
      return damaged(path, "its weights are not all there");
    out->ports[i].data = (const char *)data.data + at;
    at += (size_t)bytes;
  }
  return at == data.size ? TT_SUCCESS : damaged(path, "it has more data than weights");
}

static tt_status parse(const char *path, const header *h, tt_exported *out) {
  tt_bytes parts[PARTS];
  const char *at = out->file;
  for (int i = 0; i < PARTS; at += h->sizes[i++]) parts[i] = (tt_bytes){at, h->sizes[i]};
  out->environment = parts[ENVIRONMENT];
  out->options = parts[OPTIONS];
  out->plugin = parts[PLUGIN];
  out->code = parts[CODE];
  out->body = parts[BODY];
  out->note = parts[NOTE];
  out->blocks = h->blocks;
  if (h->port_count > h->sizes[TABLE] / RECORD) return damaged(path, "its table is not whole");
  out->ports = tt_calloc((size_t)h->port_count + 1, sizeof *out->ports);
  out->names = tt_malloc(h->sizes[TABLE] + 1); /* a record is longer than a name's end */
  if (!out->ports || !out->names) return tt_out_of_memory();
  TT_TRY(parse_table(path, h->port_count, out, parts[TABLE]));
  return find_weights(path, out, parts[DATA]);
}

tt_status tt_exported_read(const char *path, tt_exported *out) {
  header h;
  char *data = NULL;
  size_t size = 0;
  *out = (tt_exported){.file = NULL};
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return read_error(path);
  tt_status status = read_file(fd, path, &h, &data, &size);
  close(fd);
  out->file = data;
  if (!status) status = parse(path, &h, out);
  if (status) tt_exported_deinit(out);
  return status;
}

void tt_exported_deinit(tt_exported *exported) {
  if (exported->file) {
    tt_free(exported->ports);
    tt_free(exported->names);
    tt_free(exported->file);
  }
  *exported = (tt_exported){.file = NULL};
}
