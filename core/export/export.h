/* The export room: programs in files, and running them without PyTorch (docs/c_api.md). */
#ifndef TT_EXPORT_H
#define TT_EXPORT_H

#include "export/bind.h"
#include "export/executable.h"
#include "export/file.h"
#include "export/npy.h"
#include "export/runner.h"

#endif
