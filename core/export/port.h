/* What a program takes and gives. */
#ifndef TT_EXPORT_PORT_H
#define TT_EXPORT_PORT_H

#include "hlo/types.h"

enum { TT_PORT_NAME = 200 }; /* bytes of a name, at most */

/* Parameters of the program in its order, then its results in theirs. */
typedef enum tt_port_kind {
  TT_PORT_INPUT,  /* whoever runs it gives its value */
  TT_PORT_WEIGHT, /* its value is in the file */
  TT_PORT_RANDOM, /* U32[4]: where random numbers are drawn from: seed and offset, low half first */
  TT_PORT_OUTPUT
} tt_port_kind;

typedef struct tt_port {
  tt_port_kind kind;
  const char *name; /* of letters, digits, '_', '-' and '.', with no '.' in front */
  tt_type type;
  int writes;       /* OUTPUT: the parameter whose new value it is, or -1 */
  const void *data; /* WEIGHT: row-major */
} tt_port;

/* What no program can have of the port at this place, as the end of a sentence that begins with its
 * name, or NULL. `ports` are so many parameters, then results; the name has `name_size` bytes. */
const char *tt_port_problem(const tt_port *ports, int parameter_count, int at, size_t name_size);

#endif
