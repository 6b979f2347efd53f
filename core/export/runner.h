/* Runs a program that was read from a file, without PyTorch: one device, values in the host's
 * memory. One thread at a time uses a runner; runners are independent of one another. */
#ifndef TT_EXPORT_RUNNER_H
#define TT_EXPORT_RUNNER_H

#include "export/file.h"
#include "pjrt/target.h"

typedef struct tt_runner tt_runner;

typedef struct tt_runner_options {
  const char *plugin; /* its path; NULL: what TORCH_TPU_PLUGIN says, else what the file says */
  int device;         /* which of the plugin's devices */
} tt_runner_options;

/* Opens the plugin, loads or compiles the program, and copies the weights to the device. `exported`
 * is borrowed and must outlive the runner. NOT_FOUND: no plugin; OUT_OF_RANGE: no such device; what
 * tt_plugin_open, tt_client_create and the compiler say. */
tt_status tt_runner_create(const tt_exported *exported, const tt_runner_options *options,
                           tt_runner **out);
void tt_runner_destroy(tt_runner *runner); /* NULL is allowed */

/* Gives an input (a port's index) its value, which stays for all runs: row-major, of exactly the
 * port's size in bytes, copied. INVALID_ARGUMENT: no input, or another size. */
tt_status tt_runner_set_input(tt_runner *runner, int port, const void *data, int64_t bytes);
/* Where the next run draws its random numbers from: the place that PyTorch's generator for `tpu`
 * has after manual_seed(seed) and so many blocks. At first 0 and 0; a run moves it on. */
void tt_runner_seed(tt_runner *runner, uint64_t seed, uint64_t offset);
/* Runs the program once and waits for it. FAILED_PRECONDITION: an input has no value. */
tt_status tt_runner_run(tt_runner *runner);
/* Copies a result (a port's index) of the last run. FAILED_PRECONDITION: there was none;
 * INVALID_ARGUMENT: no output, or another size. */
tt_status tt_runner_get_output(tt_runner *runner, int port, void *data, int64_t bytes);

const tt_target *tt_runner_target(const tt_runner *runner); /* what it runs on; borrowed */
bool tt_runner_loaded(const tt_runner *runner); /* it was not compiled, but loaded from the file */

#endif
