/* The ground that the stub's other files stand on: memory functions for the compiler, the end of the process, and the runner
 * of step tables. It calls nothing in them. */
#include "stub.h"

void *memset(void *to, int byte, size_t n)
{
	char *t = to;
	while (n--)
		*t++ = (char)byte;
	return to;
}

void *memcpy(void *restrict to, const void *restrict from, size_t n)
{
	char *t = to;
	const char *f = from;
	while (n--)
		*t++ = *f++;
	return to;
}

void *memmove(void *to, const void *from, size_t n)
{
	char *t = to;
	const char *f = from;
	if (t < f)
		return memcpy(to, from, n);
	while (n--)
		t[n] = f[n];
	return to;
}

int memcmp(const void *a, const void *b, size_t n)
{
	const u8 *x = a, *y = b;
	for (; n; n--, x++, y++)
		if (*x != *y)
			return *x - *y;
	return 0;
}

_Noreturn void leave(int code)
{
	for (;;)
		SYS1(__NR_exit_group, code);
}

int run_steps(const struct step *table, int count, int base, struct job *j, int *failed)
{
	for (int i = 0; i < count; i++) {
		*failed = base + i;
		if (MAY_SKIP && j->prepare.skip & (1ull << *failed))
			continue;
		int r = table[i].run(j);
		if (r < 0)
			return r;
	}
	return 0;
}
