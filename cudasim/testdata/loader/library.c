/* A library that calls the driver while the loader holds its lock. */
void call_the_driver(void);

__attribute__((constructor)) static void load(void) { call_the_driver(); }
__attribute__((destructor)) static void unload(void) { call_the_driver(); }
