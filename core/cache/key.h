/* What a compiled program depends on besides its text and its compile options. */
#ifndef TT_CACHE_KEY_H
#define TT_CACHE_KEY_H

#include "cache/dir.h"
#include "pjrt/pjrt.h"

/* Appends lines: the plugin (its API version, the hash of its file, its attributes), the platform
 * and its version, the devices, the environment variables that compilers read, and for the CPU its
 * model and features. Equal texts mean that a program may be exchanged. The plugin's hash is kept
 * in `dir` (NULL: nowhere). NOT_FOUND or UNAVAILABLE when the plugin's file cannot be read. */
tt_status tt_key_environment(tt_plugin *plugin, tt_client *client, tt_dir *dir, tt_text *out);

#endif
