#include "pjrt/host_pages.h"

#include "base/env.h"
#include "base/log.h"

#include <string.h>

#if defined(__GLIBC__) && (defined(__x86_64__) || defined(__aarch64__))

#include <errno.h>
#include <link.h>
#include <malloc.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define TT_MAPPED_BLOCK ((size_t)32 << 20) /* as far as glibc itself would raise its threshold */
#define TT_KEPT_HEAP ((size_t)512 << 20)
/* A thread's heap that became empty is unmapped unless it is smaller than the padding. */
#define TT_THREAD_HEAP ((size_t)64 << 20)

#ifdef __x86_64__
#define TT_JUMP_SLOT R_X86_64_JUMP_SLOT
#define TT_DATA_SLOT R_X86_64_GLOB_DAT
#else
#define TT_JUMP_SLOT R_AARCH64_JUMP_SLOT
#define TT_DATA_SLOT R_AARCH64_GLOB_DAT
#endif

/* -- What the object calls instead -- */

static void pages_advise(void *block, size_t size) {
  if (!block || size < TT_MAPPED_BLOCK) return;
  int error = errno;
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  uintptr_t start = ((uintptr_t)block + page - 1) & ~(page - 1);
  uintptr_t end = ((uintptr_t)block + size) & ~(page - 1);
  (void)madvise((void *)start, end - start, MADV_HUGEPAGE); /* a kernel without them refuses */
  errno = error;
}

static void *pages_malloc(size_t size) {
  void *block = malloc(size);
  pages_advise(block, size);
  return block;
}

static int pages_memalign(void **out, size_t alignment, size_t size) {
  int error = posix_memalign(out, alignment, size);
  if (!error) pages_advise(*out, size);
  return error;
}

/* -- Its linkage table -- */

typedef struct tt_linkage {
  uintptr_t code; /* an address in the object that is looked for */
  uintptr_t base; /* what its addresses are relative to; 0 until it was found */
  ElfW(Dyn) * dynamic;
  uintptr_t sealed, sealed_end; /* what the linker made read-only after relocation */
} tt_linkage;

static int linkage_find(struct dl_phdr_info *object, size_t size, void *context) {
  tt_linkage *linkage = context;
  tt_linkage found = {.base = object->dlpi_addr};
  bool holds = false;
  (void)size;
  for (int i = 0; i < object->dlpi_phnum; i++) {
    const ElfW(Phdr) *part = &object->dlpi_phdr[i];
    uintptr_t start = object->dlpi_addr + part->p_vaddr;
    if (part->p_type == PT_LOAD)
      holds = holds || (linkage->code >= start && linkage->code - start < part->p_memsz);
    if (part->p_type == PT_DYNAMIC) memcpy(&found.dynamic, &start, sizeof start);
    if (part->p_type == PT_GNU_RELRO)
      found.sealed = start, found.sealed_end = start + part->p_memsz;
  }
  if (!holds || !found.dynamic) return 0;
  found.code = linkage->code;
  *linkage = found;
  return 1;
}

/* An entry's address; the linker has made it absolute or not. */
static const void *linkage_address(const tt_linkage *linkage, int64_t tag) {
  for (const ElfW(Dyn) *entry = linkage->dynamic; entry->d_tag != DT_NULL; entry++)
    if (entry->d_tag == tag) {
      uintptr_t at = entry->d_un.d_ptr;
      return (const void *)(at < linkage->base ? at + linkage->base : at);
    }
  return NULL;
}

static size_t linkage_number(const tt_linkage *linkage, int64_t tag) {
  for (const ElfW(Dyn) *entry = linkage->dynamic; entry->d_tag != DT_NULL; entry++)
    if (entry->d_tag == tag) return entry->d_un.d_val;
  return 0;
}

static void linkage_point(const tt_linkage *linkage, uintptr_t slot, uintptr_t target) {
  if (*(const uintptr_t *)slot == target) return; /* an earlier client's doing */
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = slot & ~(page - 1);
  if (mprotect((void *)start, page, PROT_READ | PROT_WRITE) != 0) return;
  __atomic_store_n((uintptr_t *)slot, target, __ATOMIC_RELEASE);
  if (slot >= linkage->sealed && slot < linkage->sealed_end)
    (void)mprotect((void *)start, page, PROT_READ);
}

/* Points the slots of malloc and posix_memalign among these relocations to ours. */
static void linkage_redirect(const tt_linkage *linkage, const ElfW(Rela) * first, size_t count) {
  const ElfW(Sym) *symbols = linkage_address(linkage, DT_SYMTAB);
  const char *names = linkage_address(linkage, DT_STRTAB);
  if (!first || !symbols || !names) return;
  for (size_t i = 0; i < count; i++) {
    uint64_t kind = ELF64_R_TYPE(first[i].r_info);
    if (kind != TT_JUMP_SLOT && kind != TT_DATA_SLOT) continue;
    const char *name = names + symbols[ELF64_R_SYM(first[i].r_info)].st_name;
    uintptr_t slot = linkage->base + first[i].r_offset;
    if (!strcmp(name, "malloc")) linkage_point(linkage, slot, (uintptr_t)&pages_malloc);
    if (!strcmp(name, "posix_memalign")) linkage_point(linkage, slot, (uintptr_t)&pages_memalign);
  }
}

/* -- malloc's own settings -- */

static bool pages_set_by_user(void) {
  const char *tunables = getenv("GLIBC_TUNABLES");
  return getenv("MALLOC_TRIM_THRESHOLD_") || getenv("MALLOC_MMAP_THRESHOLD_") ||
         getenv("MALLOC_TOP_PAD_") || (tunables && strstr(tunables, "glibc.malloc."));
}

void tt_host_pages_tune(const void *code) {
  if (strcmp(tt_env(TT_ENV_HOST_PAGES), "off") == 0) return;
  if (!pages_set_by_user()) {
    (void)mallopt(M_MMAP_THRESHOLD, (int)TT_MAPPED_BLOCK);
    (void)mallopt(M_TRIM_THRESHOLD, (int)TT_KEPT_HEAP);
    (void)mallopt(M_TOP_PAD, (int)TT_THREAD_HEAP);
  }
  tt_linkage linkage = {.code = (uintptr_t)code};
  if (!dl_iterate_phdr(&linkage_find, &linkage)) return;
  size_t each = sizeof(ElfW(Rela)), relative = linkage_number(&linkage, DT_RELACOUNT);
  size_t count = linkage_number(&linkage, DT_RELASZ) / each;
  const ElfW(Rela) *data = linkage_address(&linkage, DT_RELA);
  if (data && relative <= count) linkage_redirect(&linkage, data + relative, count - relative);
  linkage_redirect(&linkage, linkage_address(&linkage, DT_JMPREL),
                   linkage_number(&linkage, DT_PLTRELSZ) / each);
  tt_log(TT_LOG_PLUGIN, "blocks of %zu MiB and more take huge pages", TT_MAPPED_BLOCK >> 20);
}

#else

void tt_host_pages_tune(const void *code) { (void)code; }

#endif
