/* What an error says about the launch that failed. Success stays success. Thread-safe. */
#ifndef TT_REPORT_H
#define TT_REPORT_H

#include "stream/launch.h"

/* Says what failed, where Python called it, and, if the device's memory has run out, what the
 * program needs and who holds the memory. `values`: the launch still has its inputs. */
tt_status tt_report(tt_status status, const tt_launch *launch, bool values);
/* "a chunk of 3 operators, aten::mm at a.py:1 in f to aten::add at a.py:9 in f", or an operator. */
void tt_report_origin(const tt_origin *origin, tt_text *text);
/* "needs 1.0 MiB of inputs, ...", as far as it is known. */
void tt_report_needs(const tt_launch *launch, bool values, tt_text *text);

#endif
