/* 64-bit non-cryptographic hashing for in-process tables. */
#ifndef TT_HASH_H
#define TT_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t tt_hash_bytes(const void *data, size_t size, uint64_t seed);

#endif
