/* Stops a thread between any two instructions, as a busy machine does, but when the test says so. */
#pragma once

/* Makes this thread the one that can be stopped. Returns 0, or -1. */
int foreign_stoppable(void);

/* Ends that: nobody calls foreign_stop meanwhile. */
void foreign_unstoppable(void);

/* Stops it. It goes on by itself after a few milliseconds. Returns whether it has stopped. */
int foreign_stop(void);

/* Lets it go on, and returns when it does. */
void foreign_go_on(void);
