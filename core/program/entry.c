#include "program/entry.h"

#include "base/base.h"

#include <stdio.h>
#include <string.h>

enum { PARTS = 4, DIGITS = 32 };

typedef struct header {
  char magic[8];
  uint32_t format, outputs;
  uint64_t sizes[PARTS];
  uint64_t checksum[2]; /* of all other bytes of the file */
} header;
_Static_assert(sizeof(header) == TT_ENTRY_HEADER, "the header has no padding");

static const char magic[8] = {'t', 't', 'c', 'a', 'c', 'h', 'e', '\n'};
static const uint64_t name_seeds[2] = {UINT64_C(0x6e616d65), UINT64_C(0x9d1f35b6c2a7e048)};
static const uint64_t sum_seeds[2] = {UINT64_C(0x73756d), UINT64_C(0x2fb9c6d40e8a7153)};

static uint64_t hash_parts(const tt_bytes *parts, int count, uint64_t seed) {
  for (int i = 0; i < count; i++) {
    seed = tt_hash_bytes(&parts[i].size, sizeof parts[i].size, seed);
    if (parts[i].size) seed = tt_hash_bytes(parts[i].data, parts[i].size, seed);
  }
  return seed;
}

void tt_entry_name(const tt_entry *key, const char *kind, char name[TT_ENTRY_NAME]) {
  const tt_bytes parts[] = {key->environment, key->options, key->code};
  uint64_t a = hash_parts(parts, 3, name_seeds[0]), b = hash_parts(parts, 3, name_seeds[1]);
  snprintf(name, TT_ENTRY_NAME, "%016llx%016llx%s", (unsigned long long)a, (unsigned long long)b,
           kind);
}

bool tt_entry_is_name(const char *name) {
  return strspn(name, "0123456789abcdef") == DIGITS && name[DIGITS] == '.' &&
         strlen(name) < TT_ENTRY_NAME;
}

static bool same(tt_bytes a, tt_bytes b) {
  return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

bool tt_entry_same_key(const tt_entry *a, const tt_entry *b) {
  return same(a->environment, b->environment) && same(a->options, b->options) &&
         same(a->code, b->code);
}

static header make_header(const tt_entry *entry) {
  const tt_bytes parts[PARTS] = {entry->environment, entry->options, entry->code, entry->body};
  header h = {.format = TT_ENTRY_FORMAT, .outputs = (uint32_t)entry->outputs};
  memcpy(h.magic, magic, sizeof magic);
  for (int i = 0; i < PARTS; i++) h.sizes[i] = parts[i].size;
  for (int i = 0; i < 2; i++) {
    uint64_t seed = tt_hash_bytes(&h, offsetof(header, checksum), sum_seeds[i]);
    h.checksum[i] = hash_parts(parts, PARTS, seed);
  }
  return h;
}

void tt_entry_header(const tt_entry *entry, unsigned char out[TT_ENTRY_HEADER]) {
  header h = make_header(entry);
  memcpy(out, &h, sizeof h);
}

tt_status tt_entry_parse(const void *data, size_t size, tt_entry *out) {
  header h;
  tt_bytes parts[PARTS];
  if (size < sizeof h) return tt_error(TT_DATA_LOSS, "it ends within its header");
  memcpy(&h, data, sizeof h);
  if (memcmp(h.magic, magic, sizeof magic) != 0 || h.format != TT_ENTRY_FORMAT)
    return tt_error(TT_DATA_LOSS, "it does not begin as an entry does");
  size_t at = sizeof h;
  for (int i = 0; i < PARTS; i++) {
    if (h.sizes[i] > size - at) return tt_error(TT_DATA_LOSS, "it was cut short");
    parts[i] = (tt_bytes){(const char *)data + at, (size_t)h.sizes[i]};
    at += parts[i].size;
  }
  if (at != size) return tt_error(TT_DATA_LOSS, "it is longer than it says");
  *out = (tt_entry){parts[0], parts[1], parts[2], parts[3], (int)h.outputs};
  header expected = make_header(out);
  if (memcmp(&expected, &h, sizeof h) != 0) return tt_error(TT_DATA_LOSS, "its checksum is wrong");
  return TT_SUCCESS;
}
