#include "stream/observer.h"

_Thread_local tt_observer *tt_observer_current;
