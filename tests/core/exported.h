/* A small exported program in a folder of its own, for tests of what is done with such files. */
#ifndef TT_EXPORTED_H
#define TT_EXPORTED_H

#include "support.h"

#include "export/export.h"

extern const float weight[2];
extern tt_port ports[5];                     /* of the content that was asked for last */
extern char folder[64], path[96], other[96]; /* `path` and `other`: files in it, not made yet */

/* x + weight, and the place that it was given, as numbers of its stream. */
tt_exported content(void);
/* Fixtures of a group of tests: the folder is made, and removed with the two files. */
int folder_setup(void **state);
int folder_teardown(void **state);

#endif
