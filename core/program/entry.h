/* An entry of the disk cache: the full key, the compiled program, and a checksum over all of it.
 *
 * A file holds a header of TT_ENTRY_HEADER bytes, then the key's three parts, then the body. */
#ifndef TT_ENTRY_H
#define TT_ENTRY_H

#include "base/mem.h"

enum { TT_ENTRY_FORMAT = 1, TT_ENTRY_HEADER = 64, TT_ENTRY_NAME = 64 };
/* The format is part of a file's name, so that releases with other formats can share a folder. */
#define TT_ENTRY_PROGRAM ".program1"
#define TT_ENTRY_PLUGIN ".plugin1"

/* All parts are borrowed. */
typedef struct tt_entry {
  tt_bytes environment; /* what compiles: plugin, platform, devices, flags */
  tt_bytes options;     /* the compile options */
  tt_bytes code;        /* StableHLO */
  tt_bytes body;        /* the serialised executable; not part of the key */
  int outputs;          /* of the executable; neither */
} tt_entry;

/* The name of the key's file: 32 hexadecimal digits of two hashes, then the kind. */
void tt_entry_name(const tt_entry *key, const char *kind, char name[TT_ENTRY_NAME]);
/* Whether a name is one that tt_entry_name gives, of any kind and format. */
bool tt_entry_is_name(const char *name);
bool tt_entry_same_key(const tt_entry *a, const tt_entry *b);

/* The header that goes before the four parts. */
void tt_entry_header(const tt_entry *entry, unsigned char header[TT_ENTRY_HEADER]);
/* Finds the parts in a file's content. DATA_LOSS: it is not what was once written. */
tt_status tt_entry_parse(const void *data, size_t size, tt_entry *out);

#endif
