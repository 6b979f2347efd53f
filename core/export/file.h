/* A program in a file: what it takes and gives, its StableHLO, what that was compiled to and for
 * whom, and its weights.
 *
 * The file has a header, then eight parts one after another, all little-endian:
 *
 *   bytes     header
 *   0         "ttexport"
 *   8         u32 format, u32 number of ports
 *   16        i64 blocks of random numbers that a run draws
 *   24        u64 sizes of the parts: environment, options, plugin, code, body, note, table, data
 *   88        u64 x 2, checksums over the 88 bytes before and over all parts
 *
 * The table has a record for each port: u32 kind, element type, rank, and size of the name; i32
 * `writes`; i64 for each dim; the name. The data are the weights, in the order of their ports. */
#ifndef TT_EXPORT_FILE_H
#define TT_EXPORT_FILE_H

#include "export/port.h"

enum { TT_EXPORT_FORMAT = 1, TT_EXPORT_HEADER = 104 };
enum { TT_EXPORT_PORTS = 1 << 20 }; /* at most, of a file */

typedef struct tt_exported {
  /* The key under which `body` may be used (program/environment.h), and the compile options. */
  tt_bytes environment, options;
  tt_bytes plugin; /* the path of the plugin that compiled it */
  tt_bytes code;   /* StableHLO */
  tt_bytes body;   /* the serialised executable; of size 0 where the plugin makes none */
  tt_bytes note;   /* the writer's own */
  int64_t blocks;  /* of random numbers */
  int parameter_count, output_count;
  tt_port *ports; /* [parameter_count + output_count] */
  void *file;     /* what all of it points into; NULL: not read from a file */
  char *names;
} tt_exported;

/* Writes a file, whole or not at all; `content` is borrowed. INVALID_ARGUMENT: what no reader would
 * take; UNAVAILABLE: it cannot be written, and why. */
tt_status tt_exported_write(const tt_exported *content, const char *path);
/* Reads one; tt_exported_deinit after success. NOT_FOUND, UNAVAILABLE: it cannot be read;
 * FAILED_PRECONDITION: it has another format; DATA_LOSS: it is no such file, or damaged. */
tt_status tt_exported_read(const char *path, tt_exported *out);
void tt_exported_deinit(tt_exported *exported);
/* The port of this kind with this name, or -1. */
int tt_exported_find(const tt_exported *exported, tt_port_kind kind, const char *name);

#endif
