/* What a compiled program depends on besides its text and its compile options. */
#ifndef TT_ENVIRONMENT_H
#define TT_ENVIRONMENT_H

#include "pjrt/target.h"
#include "program/dir.h"

/* Appends lines: the plugin (its API version, the hash of its file, its attributes), the platform
 * and its version, the devices, the environment variables that compilers read, and for the CPU its
 * model and features. Equal texts mean that a program may be exchanged. The plugin's hash is kept
 * in `dir` (NULL: nowhere). NOT_FOUND or UNAVAILABLE when the plugin's file cannot be read. */
tt_status tt_environment_print(const tt_target *target, tt_dir *dir, tt_text *out);

#endif
