#include "stream/observer.h"

_Thread_local tt_observer *tt_observer_current;

void tt_observer_disturb(void) {
  if (tt_observer_current) tt_observer_current->disturbed(tt_observer_current);
}
