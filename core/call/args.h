/* Arguments in a key: all that a key says of them is enough to make the records of a call that is
 * new. Each argument is a word, its tag and what that says (`of`), and what the tag asks for. */
#ifndef TT_CALL_ARGS_H
#define TT_CALL_ARGS_H

#include "call/call.h"
#include "call/key.h"

typedef enum tt_tag {
  TT_TAG_NONE = 1,
  TT_TAG_TENSOR,  /* of: whether it is written; then tt_key_tensor */
  TT_TAG_HOST,    /* a number in a tensor of the host; then the number */
  TT_TAG_TENSORS, /* of: how many; then each, a tensor or none */
  TT_TAG_NUMBER,  /* of: its dtype; known only at run time */
  TT_TAG_STATIC,  /* of: its dtype; then a double, or an int64 */
  TT_TAG_COMPLEX, /* of: its dtype; then two doubles */
  TT_TAG_NUMBERS, /* of: how many; then each */
  TT_TAG_STATICS, /* the same, of a list whose numbers shape the program */
  TT_TAG_EQUAL,   /* of: how many, all the one that is next */
  TT_TAG_INT,     /* of: I64 or BOOL; then an int64 */
  TT_TAG_INTS,    /* of: how many; then int64s */
  TT_TAG_DTYPE,   /* of: the dtype, and above 8 bits whatever else tells dtypes apart */
  TT_TAG_TEXT,    /* of: how many bytes; then these */
  TT_TAG_PLACE,   /* as TT_TAG_INT, of what may be a run-time number: see tt_op_place */
  TT_TAG_END      /* as TT_TAG_INT, of the end that belongs to the place before it */
} tt_tag;

/* The tag of a row's integer argument; `row` may be NULL. */
tt_tag tt_tag_of_int(const tt_op_row *row, const char *name);

static inline void tt_key_tag(tt_key *key, tt_tag tag, uint64_t of) {
  tt_key_u64(key, (uint64_t)tag | of << 8);
}

/* Where in a key one is. */
typedef struct tt_args_reader {
  const uint8_t *at;            /* the first argument's word, at the beginning */
  tt_arena *arena;              /* what the records point to lives as long */
  int next_tensor, next_number; /* that a record would speak of */
  bool beyond;                  /* no record expresses one of them */
} tt_args_reader;

/* One word and what its tag asks for, lists taken apart. */
typedef struct tt_args_item {
  tt_tag tag;
  uint64_t of;
  size_t at; /* in the key, of what follows the word */
} tt_args_item;
/* The item at *at, which is moved to the next one; false where the key ends. */
bool tt_args_next(const tt_key *key, size_t *at, tt_args_item *out);

/* The next argument's record. */
tt_status tt_args_read(tt_args_reader *reader, tt_arg *out);

#endif
