/* A target: what a program is compiled for. Lowerings, the builder of program text, cache keys and
 * the compiler are given one and ask nobody else, so a process may have several: the device that it
 * runs on, and a topology that it only compiles for. Immutable once made. */
#ifndef TT_TARGET_H
#define TT_TARGET_H

#include "pjrt/pjrt.h"

typedef struct tt_target {
  tt_plugin *plugin;
  tt_client *client;     /* NULL: programs are only compiled, and cannot be run */
  tt_topology *topology; /* if there is no client */
  const char *platform;  /* "cpu", "cuda", "tpu" */
  const char *version;   /* of the platform; "" if unknown */
  const char *kind;      /* of its devices; "" if unknown */
  int device_count;
  int64_t memory;   /* bytes of one device; 0 if unknown */
  bool xla_cpu;     /* XLA's CPU compiler, which some programs are shaped for */
  bool xla_gpu;     /* XLA's compiler for GPUs, whose quotients of f32 are off by a bit */
  bool lapack;      /* programs may call LAPACK's routines (lapack/lapack.h) */
  bool convolves;   /* programs may order convolutions of the host's (kernels/kernels.h) */
  bool collectives; /* programs may call those of a transport of ours (dist/dist.h) */
  const void *(*kernel_of)(const char *name); /* the host's, for what is launched without a program
                                                 (kernels/kernels.h); NULL: there are none */
  tt_compile_options options;
} tt_target;

/* Borrows the client, which must outlive the target. Programs may call nothing yet. */
void tt_target_init_client(tt_target *target, tt_plugin *plugin, tt_client *client);
/* For a topology, borrowed likewise, of a platform with this name. */
void tt_target_init_topology(tt_target *target, tt_plugin *plugin, tt_topology *topology,
                             const char *platform);
/* The same for programs that others will run: they call no functions of this process. */
tt_target tt_target_elsewhere(const tt_target *target);
/* Compiles StableHLO. Thread-safe. */
tt_status tt_target_compile(const tt_target *target, const char *code, size_t size,
                            tt_executable **out);

#endif
