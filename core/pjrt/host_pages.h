/* The host's pages under a plugin that computes in host memory.
 *
 * Such a plugin takes every buffer from malloc and gives it back after its last use. What malloc
 * maps anew is zeroed by the kernel page by page, at the first touch of each, in every step of a
 * training: of a GPT-2 with its real vocabulary that is half of the time. PJRT has no option for
 * it. */
#ifndef TT_HOST_PAGES_H
#define TT_HOST_PAGES_H

/* Lets blocks below 32 MiB, once freed, stay with malloc for the next one, in the whole process
 * (mallopt: half a GiB at most at the end of the heap, 64 MiB of each thread's; not where the user
 * has set malloc's variables), and blocks from there on, which malloc maps, ask for huge pages: the
 * entries for malloc and posix_memalign in the linkage table of the shared object that holds `code`
 * point to functions that do so and are otherwise the same. Nothing happens on systems other than
 * 64-bit Linux with glibc, or under TORCH_TPU_HOST_PAGES=off. To be called before other threads run
 * that object's code; a second call changes nothing. */
void tt_host_pages_tune(const void *code);

#endif
