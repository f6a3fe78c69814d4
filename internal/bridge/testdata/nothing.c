/* Shows whether programs of the flags of a test run at all. */
int main(void) { return 0; }
