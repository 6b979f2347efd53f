/* Numbers of threads. */
#ifndef TT_THREAD_H
#define TT_THREAD_H

/* The calling thread's own number: from 0 on, the smallest that no living thread has. Thread-safe.
 */
int tt_thread_number(void);

#endif
