#pragma once

const char* python_capsule_name(void* capsule);
void* python_capsule_pointer(void* capsule, const char* name);

/* Gives the GIL up if this thread holds it. The result is for python_lock, which takes it again. */
void* python_unlock(void);
void python_lock(void* state);
