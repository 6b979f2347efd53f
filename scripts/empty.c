/* Keeps the helper library valid when no test needs a helper. */
typedef int tt_empty_file;
